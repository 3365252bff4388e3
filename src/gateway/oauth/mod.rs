//! Endpoints for OAuth clients: the token endpoint (RFC 6749), revocation (RFC 7009) and introspection (RFC 7662).
//!
//! They use the same rotation, revocation and verification as every other call. A rejection is an error as RFC 6749
//! section 5.2 has it, with the members of every rejection beside it.

mod authorization_code;
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

use crate::gateway::endpoints::ClientEndpoint;
use crate::protocols::http::body::Body;
use crate::types::reject::Reject;

pub use call::{Call, check_no_credentials};

pub use form::Form;
pub use introspect::{INTROSPECT_SCOPE, Introspector, introspector};

/// Carries out a call of an OAuth client. Its body was read before.
pub async fn respond(
    mut call: Call<'_, '_>,
    endpoint: ClientEndpoint,
    content: &[u8],
) -> Result<Response<Body>, Reject> {
    let form = Form::read(call.headers, content)?;
    match endpoint {
        ClientEndpoint::Token => call.token(&form).await,
        ClientEndpoint::Revoke => call.revoke(&form).await,
        ClientEndpoint::Introspect => call.introspect(&form).await,
    }
}
