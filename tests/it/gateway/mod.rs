//! What happens to a request between its head and its response.

pub mod enforce;
pub mod forward;
pub mod login;
pub mod logout;
pub mod oauth;
pub mod replaced_tokens;
pub mod rules;
pub mod streams;
