//! Calls that the gateway answers itself, without a backend. The route table finds a call by its path, and
//! [`crate::gateway::decide`] finds the others.

use http::Response;

use crate::gateway::endpoints::Endpoint;
use crate::gateway::sign_in::paths::SignInCall;
use crate::protocols::http::body::Body;

/// A request that the gateway answers itself.
pub enum OwnCall {
    /// A CORS preflight, which never reaches a backend.
    Preflight(Box<Response<Body>>),
    /// A cleartext request, which the client repeats over TLS.
    RedirectToHttps(Box<Response<Body>>),
    /// `POST /user/refresh`
    Refresh,
    /// `DELETE /token/{tokenId}`
    Revoke { token_id: String },
    /// `GET /.well-known/jwks.json`
    Keys,
    /// A path that the operator chooses
    Endpoint(Endpoint),
    /// `GET /.well-known/oauth-authorization-server`
    Metadata,
    /// One of `[sign_in]`
    SignIn(SignInCall),
}

impl OwnCall {
    /// Returns true if the gateway responds without a token and without the store.
    pub(super) fn is_public(&self) -> bool {
        match self {
            OwnCall::Preflight(_) | OwnCall::RedirectToHttps(_) | OwnCall::Keys | OwnCall::Metadata => true,
            OwnCall::Endpoint(endpoint) => *endpoint == Endpoint::ProtectedResource,
            OwnCall::Refresh | OwnCall::Revoke { .. } | OwnCall::SignIn(_) => false,
        }
    }
}
