//! Header hygiene: what is removed on the way in and out, and what is set. Pure.

use http::HeaderName;

/// `[identity]`: the headers that tell the upstream who is asking. Whatever the client sent under these names, in any
/// spelling, is removed first.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    pub subject: Option<HeaderName>,
    pub scope: Option<HeaderName>,
    pub token_id: Option<HeaderName>,
    pub issuer: Option<HeaderName>,
}
