//! The rules of tokens, without I/O: JWTs, families, signing keys, logins and audit events.

pub mod audit_event;
pub mod family;
pub mod jwt;
pub mod login;
pub mod scope;
pub mod signing;
pub mod ticket_key;
