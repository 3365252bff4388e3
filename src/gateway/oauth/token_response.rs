//! The response of the token endpoint (RFC 6749 section 5.1).

use serde::Serialize;

use crate::broker::{AccessGrant, TokenPair};

#[derive(Serialize)]
pub(super) struct TokenResponse<'p> {
    access_token: &'p str,
    /// RFC 8693 section 2.2.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    issued_token_type: Option<&'static str>,
    token_type: &'static str,
    /// Seconds.
    expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<&'p str>,
    /// What was granted, also if the client requests another scope: section 3.3 requires to say so. Also if it is
    /// nothing: without it, the client takes the scope that it has requested for the granted one.
    scope: &'p str,
}

impl TokenResponse<'_> {
    pub(super) fn with_type(self, issued: &'static str) -> Self {
        TokenResponse { issued_token_type: Some(issued), ..self }
    }
}

impl<'p> From<&'p TokenPair> for TokenResponse<'p> {
    fn from(pair: &'p TokenPair) -> Self {
        TokenResponse {
            access_token: &pair.access_token,
            issued_token_type: None,
            token_type: token_type(pair.is_bound),
            expires_in: pair.lifetime,
            refresh_token: Some(&pair.refresh_token),
            scope: &pair.scope,
        }
    }
}

impl<'p> From<&'p AccessGrant> for TokenResponse<'p> {
    fn from(grant: &'p AccessGrant) -> Self {
        TokenResponse {
            access_token: &grant.access_token,
            issued_token_type: None,
            token_type: token_type(grant.is_bound),
            expires_in: grant.lifetime,
            refresh_token: None,
            scope: &grant.scope,
        }
    }
}

/// RFC 9449 section 5.
pub(super) fn token_type(is_bound: bool) -> &'static str {
    if is_bound { "DPoP" } else { "Bearer" }
}
