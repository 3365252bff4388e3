//! Pushed authorization requests (RFC 9126): sealed in the `request_uri` that the client gets, so that nothing is
//! stored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pending::{MAX_SEALED, PendingRequest};
use super::request::AuthorizationRequest;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sealed::{self, SealedKind};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// How every `request_uri` begins (RFC 9126 section 2.2).
const URN: &str = "urn:ietf:params:oauth:request_uri:";

/// How long the client may take until the browser comes with it.
pub const LIFETIME: Duration = Duration::from_secs(90);

/// The consent page seals the request again, with the cookie of the browser.
const MAX_LEN: usize = MAX_SEALED - 128;

/// Replicas can have clocks that differ by this much.
const CLOCK_SKEW: Duration = Duration::from_secs(10);

const SEALED: SealedKind = SealedKind { prefix: "bwp1_", purpose: "bearward pushed authorization request v1" };

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushedRequest {
    /// The tokenId of the session that comes of it, so that only one does, however often it is loaded.
    #[serde(rename = "i")]
    pub id: TokenId,
    #[serde(rename = "n")]
    pub client_id: String,
    #[serde(rename = "q")]
    pub request: AuthorizationRequest,
    /// In milliseconds.
    #[serde(rename = "t")]
    pushed_at: u64,
}

impl PushedRequest {
    pub fn new(client_id: &str, request: AuthorizationRequest, now: UnixTime) -> Self {
        PushedRequest { id: TokenId::random(), client_id: client_id.to_owned(), request, pushed_at: now.as_millis() }
    }

    /// The `request_uri`. `None` if there is no root secret, or if it is too long for a URL.
    pub fn seal(&self, roots: &Roots) -> Option<String> {
        let sealed = SEALED.seal("", self, roots)?;
        if sealed.len() > MAX_LEN { None } else { Some(format!("{URN}{sealed}")) }
    }

    pub fn open(request_uri: &str, roots: &Roots) -> Option<Self> {
        let sealed = request_uri.strip_prefix(URN)?;
        if sealed.len() > MAX_LEN { None } else { SEALED.open("", sealed, roots) }
    }

    /// The request in a browser that has brought it.
    pub fn in_browser(self, browser: &str, now: UnixTime) -> PendingRequest {
        PendingRequest::begin(&self.client_id, self.request, browser, now).pushed_as(self.id)
    }

    /// Returns true within [`LIFETIME`].
    pub fn is_current(&self, now: UnixTime) -> bool {
        sealed::is_current(UnixTime::from_millis(self.pushed_at), LIFETIME, CLOCK_SKEW, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::authorization::redirect_uri::RedirectUri;
    use crate::tokens::authorization::request::SignInWish;
    use crate::types::secret::Secret;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    fn request(state: &str) -> AuthorizationRequest {
        AuthorizationRequest {
            redirect_uri: RedirectUri::parse("https://app.example/callback").expect("a redirect URI"),
            state: Some(state.to_owned()),
            challenge: "c".repeat(43),
            resources: vec!["https://api.example/mcp".into()],
            scopes: vec!["notes:read".into()],
            dpop_jkt: None,
            sign_in: SignInWish::Any,
            wants_consent: false,
            hints: Default::default(),
        }
    }

    #[test]
    fn a_request_comes_back_as_it_was_for_90_seconds() {
        let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
        let pushed = PushedRequest::new("spa", request("s"), NOW);
        let uri = pushed.seal(&roots).expect("sealed");
        assert!(uri.starts_with("urn:ietf:params:oauth:request_uri:bwp1_"), "{uri}");
        assert_eq!(PushedRequest::open(&uri, &roots), Some(pushed.clone()));
        for wrong in [&uri[..uri.len() - 1], "https://evil.example/x", "urn:ietf:params:oauth:request_uri:", ""] {
            assert_eq!(PushedRequest::open(wrong, &roots), None, "{wrong}");
        }
        for (after, expected) in [(0, true), (90, true), (91, false)] {
            assert_eq!(pushed.is_current(NOW + Duration::from_secs(after)), expected, "{after}");
        }
        assert!(!pushed.is_current(NOW - Duration::from_secs(11)));
        assert_eq!(PushedRequest::new("spa", request(&"s".repeat(4_096)), NOW).seal(&roots), None, "too long");
    }
}
