//! Finds the one access token of a request: in the Authorization header, and in the other locations that a route allows
//! ([`TokenLocations`]). Pure.
//!
//! A token from here is not verified yet. `tokens::jwt::verify` decides whether it is valid.

mod cookie;
mod header;
mod locations;
pub mod login_cookies;
mod query;
pub mod session_cookie;
mod subprotocol;
mod token;

pub use header::{find, find_with_scheme, is_bearer, is_dpop};
pub use locations::{FoundToken, TokenLocation, TokenLocations};
pub use subprotocol::MARKER;
pub use token::{BearerToken, TokenScheme, is_sendable};
