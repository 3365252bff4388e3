//! A request that waits for the user: sealed in the URL of the consent page, so that every gateway can go on with it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::request::AuthorizationRequest;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sealed::{self, SealedKind, hash};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret;

/// How long the user may take.
pub const LIFETIME: Duration = Duration::from_mins(10);

/// How long after it began a page offers to begin it again.
const BEGUN_AGAIN: Duration = Duration::from_hours(1);

/// Maximum length of a sealed request: it travels in the return path of a sign-in.
pub const MAX_SEALED: usize = 4 * 1024;

/// How the names of the cookies begin by which a browser shows that it began a request.
pub const COOKIE_PREFIX: &str = "__Host-bw-ask-";
const PREFIX_LEN: usize = 6;

/// Replicas can have clocks that differ by this much.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// How every sealed request begins.
pub const PREFIX: &str = "bwq1_";

const SEALED: SealedKind = SealedKind { prefix: PREFIX, purpose: "bearward authorization request v1" };

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingRequest {
    /// The tokenId of the session that comes of it, so that only one does.
    #[serde(rename = "i")]
    pub id: TokenId,
    #[serde(rename = "n")]
    pub client_id: String,
    #[serde(rename = "q")]
    pub request: AuthorizationRequest,
    /// SHA-256 of the cookie of the browser, in base64url.
    #[serde(rename = "b")]
    browser: String,
    /// In milliseconds.
    #[serde(rename = "t")]
    begun_at: u64,
    /// The client has pushed it.
    #[serde(rename = "u", default, skip_serializing_if = "std::ops::Not::not")]
    is_pushed: bool,
}

impl PendingRequest {
    /// `browser`: the value of the cookie that the browser gets.
    pub fn begin(client_id: &str, request: AuthorizationRequest, browser: &str, now: UnixTime) -> Self {
        PendingRequest {
            id: TokenId::random(),
            client_id: client_id.to_owned(),
            request,
            browser: hash(browser),
            begun_at: now.as_millis(),
            is_pushed: false,
        }
    }

    /// The same request of a client that has pushed it. `id`: the tokenId that it has since then.
    #[must_use]
    pub fn pushed_as(self, id: TokenId) -> Self {
        PendingRequest { id, is_pushed: true, ..self }
    }

    pub fn seal(&self, roots: &Roots) -> Option<String> {
        SEALED.seal("", self, roots)
    }

    pub fn open(text: &str, roots: &Roots) -> Option<Self> {
        if text.len() > MAX_SEALED { None } else { SEALED.open("", text, roots) }
    }

    /// Returns true within [`LIFETIME`].
    pub fn is_current(&self, now: UnixTime) -> bool {
        sealed::is_current(self.begun_at(), LIFETIME, CLOCK_SKEW, now)
    }

    /// Returns true if a browser may begin it again: the client has not pushed it, and it began within an hour.
    pub fn may_begin_again(&self, now: UnixTime) -> bool {
        !self.is_pushed && sealed::is_current(self.begun_at(), BEGUN_AGAIN, CLOCK_SKEW, now)
    }

    pub fn begun_at(&self) -> UnixTime {
        UnixTime::from_millis(self.begun_at)
    }

    /// Returns true if this browser began the request. Takes the same time wherever the two differ.
    pub fn is_of_browser(&self, cookie: &str) -> bool {
        secret::equal(hash(cookie).as_bytes(), self.browser.as_bytes())
    }

    /// The name of the cookie of its browser.
    pub fn cookie_name(&self) -> String {
        format!("{COOKIE_PREFIX}{}", &self.browser[..PREFIX_LEN.min(self.browser.len())])
    }
}

/// Returns true for the name of such a cookie.
pub fn is_cookie_name(name: &[u8]) -> bool {
    name.starts_with(COOKIE_PREFIX.as_bytes())
}

/// The value of a new cookie: 256 bits in base64url.
pub fn new_browser() -> String {
    URL_SAFE_NO_PAD.encode(secret::random::<32>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::authorization::redirect_uri::RedirectUri;
    use crate::tokens::authorization::request::SignInWish;
    use crate::types::secret::Secret;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    fn request() -> AuthorizationRequest {
        AuthorizationRequest {
            redirect_uri: RedirectUri::parse("https://app.example/callback").expect("a redirect URI"),
            state: Some("s".repeat(1_024)),
            challenge: "c".repeat(43),
            resources: vec!["https://api.example/mcp".into(); 4],
            scopes: vec!["notes:read".into(); 20],
            dpop_jkt: Some("k".repeat(43)),
            sign_in: SignInWish::Within(60),
            wants_consent: true,
            hints: Default::default(),
        }
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
        let browser = new_browser();
        let pending = PendingRequest::begin("spa", request(), &browser, NOW);
        let sealed = pending.seal(&roots).expect("sealed");
        assert!(sealed.len() <= MAX_SEALED, "{}", sealed.len());
        let opened = PendingRequest::open(&sealed, &roots).expect("opens");
        assert_eq!(opened, pending);
        assert!(opened.is_of_browser(&browser) && !opened.is_of_browser(&new_browser()));
        assert!(is_cookie_name(opened.cookie_name().as_bytes()));
        assert_eq!(PendingRequest::open(&format!("{sealed}A"), &roots), None);
    }

    #[test]
    fn a_request_ends_after_ten_minutes() {
        let pending = PendingRequest::begin("spa", request(), "browser", NOW);
        let second = Duration::from_secs(1);
        for (now, expected) in [
            (NOW, true),
            (NOW + LIFETIME, true),
            (NOW + LIFETIME + second, false),
            (NOW - CLOCK_SKEW, true),
            (NOW - CLOCK_SKEW - second, false),
        ] {
            assert_eq!(pending.is_current(now), expected, "{now}");
        }
    }
}
