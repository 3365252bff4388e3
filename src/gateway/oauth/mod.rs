//! Endpoints for OAuth clients: the token endpoint (RFC 6749), revocation (RFC 7009) and introspection (RFC 7662).
//!
//! They use the same rotation, revocation and verification as every other call. A rejection is an error as RFC 6749
//! section 5.2 has it, with the members of every rejection beside it.

mod basic;
mod call;
mod client;
mod client_credentials;
mod form;
mod introspect;
pub mod metadata;
mod revoke;
mod token;
mod token_exchange;
mod token_response;

use http::Response;

use crate::protocols::http::body::Body;
use crate::tokens::bound::Bound;
use crate::types::reject::Reject;

pub use basic::is_used as has_basic_credentials;
pub use call::{Call, check_no_credentials};
pub use form::Form;
pub use introspect::{INTROSPECT_SCOPE, Introspector, authenticate};

/// The caller of an endpoint for OAuth clients.
pub enum EndpointCaller {
    /// Of the token endpoint: what the client has proved. The form names it.
    Client(Bound),
    /// Of the revocation endpoint: the form has the token that it owns.
    Owner,
    Introspector(Introspector),
}

/// Carries out a call of an OAuth client. Its head was checked, and its body was read.
pub async fn respond(mut call: Call<'_, '_>, by: EndpointCaller, content: &[u8]) -> Result<Response<Body>, Reject> {
    let form = Form::read(call.headers, content)?;
    match by {
        EndpointCaller::Client(proved) => call.token(&form, proved).await,
        EndpointCaller::Owner => call.revoke(&form).await,
        EndpointCaller::Introspector(by) => call.introspect(&form, by.key).await,
    }
}
