//! The gateway and its requests: it checks tokens, forwards, serves its own endpoints, and watches streams.

pub mod authorization;
pub mod client_certificates;
pub mod cors;
pub mod enforce;
mod exchanged_tokens;
pub mod fixed_responses;
pub mod forward;
pub mod forward_auth;
pub mod https;
pub mod login;
pub mod logout;
pub mod methods;
pub mod oauth;
pub mod provider_events;
pub mod replaced_tokens;
pub mod rules;
pub mod sign_in;
pub mod streams;
