//! The rules of tokens, without I/O: JWTs, families, signing keys, logins, audit events and the events of providers.

pub mod audit_event;
pub mod authorization;
pub mod bound;
pub mod credential_kind;
pub mod dpop;
pub mod family;
pub mod jwt;
pub mod login;
pub mod provider_events;
pub mod scope;
pub mod sealed;
pub mod sign_in;
pub mod signing;
pub mod ticket_key;
