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

use crate::gateway::endpoints::Endpoint;
use crate::protocols::http::body::Body;
use crate::types::reject::{Reason, Reject};

pub use basic::is_used as has_basic_credentials;
pub use call::{Call, check_no_credentials};
pub use form::Form;
pub use introspect::{INTROSPECT_SCOPE, authenticate as authenticate_introspection};

/// Carries out a call. Its body was read before.
pub async fn respond(mut call: Call<'_, '_>, endpoint: Endpoint, content: &[u8]) -> Result<Response<Body>, Reject> {
    let form = Form::read(call.headers, content)?;
    match endpoint {
        Endpoint::Token => call.token(&form).await,
        Endpoint::Revoke => call.revoke(&form).await,
        Endpoint::Introspect => call.introspect(&form).await,
        // These are no calls of OAuth clients.
        Endpoint::ProtectedResource | Endpoint::BackchannelLogout(_) | Endpoint::SecurityEvents(_) => {
            Err(Reason::NoRoute.into())
        }
    }
}
