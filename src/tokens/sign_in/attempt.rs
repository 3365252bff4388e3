//! The state of one attempt to sign in, restored when the provider sends the browser back.
//!
//! It is kept in a cookie of the browser, encrypted and authenticated, and nowhere else: beginning logins fills no
//! memory (CVE-2021-22119). The name of the cookie is authenticated with it, so that no attempt can replace another.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sealed::{self, SealedKind, hash};
use crate::tokens::sign_in::freshness::{AuthenticatedSince, Freshness};
use crate::types::clock::UnixTime;
use crate::types::secret;

/// How long the browser may take at the provider.
pub const LIFETIME: Duration = Duration::from_mins(10);

/// How the names of attempt cookies begin. The first characters of the state follow.
pub const COOKIE_PREFIX: &str = "__Host-bw-try-";
const PREFIX_LEN: usize = 6;

const SEALED: SealedKind = SealedKind { prefix: "", purpose: "bearward sign-in attempt v1" };

/// Length of a state: 256 bits in base64url.
pub const STATE_LEN: usize = 43;

/// Replicas can have clocks that differ by this much.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

#[derive(Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// `provider.name`
    pub provider: String,
    pub issuer: String,
    /// SHA-256 of the state, in base64url: an opened cookie does not give the state away.
    state_hash: String,
    pub nonce: String,
    /// `code_verifier` (RFC 7636 section 4.1)
    pub verifier: String,
    /// Where the browser goes after the login: path and query.
    pub return_path: String,
    /// In milliseconds.
    begun_at: u64,
    /// Older versions write none.
    #[serde(default)]
    freshness: Freshness,
}

/// A new attempt and its state, which only the redirect to the provider has.
pub fn begin(
    provider: &str,
    issuer: &str,
    return_path: &str,
    freshness: Freshness,
    now: UnixTime,
) -> (Attempt, String) {
    let state = random::<32>();
    let attempt = Attempt {
        provider: provider.to_owned(),
        issuer: issuer.to_owned(),
        state_hash: hash(&state),
        nonce: random::<24>(),
        verifier: random::<32>(),
        return_path: return_path.to_owned(),
        begun_at: now.as_millis(),
        freshness,
    };
    (attempt, state)
}

/// The name of the cookie for this state. `None` for what cannot be a state.
pub fn cookie_name(state: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_state = state.len() == STATE_LEN && state.bytes().all(is_plain);
    is_state.then(|| format!("{COOKIE_PREFIX}{}", &state[..PREFIX_LEN]))
}

/// Returns true for the name of an attempt cookie.
pub fn is_cookie_name(name: &[u8]) -> bool {
    name.starts_with(COOKIE_PREFIX.as_bytes())
}

impl Attempt {
    /// `code_challenge` with the method S256 (RFC 7636 section 4.2).
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(secret::digest(&[self.verifier.as_bytes()]))
    }

    /// Returns true if this is the attempt of the state. Takes the same time wherever they differ.
    pub fn has_state(&self, state: &str) -> bool {
        secret::equal(hash(state).as_bytes(), self.state_hash.as_bytes())
    }

    pub fn begun_at(&self) -> UnixTime {
        UnixTime::from_millis(self.begun_at)
    }

    /// Since when the user must have authenticated at the provider.
    pub fn authenticated_since(&self) -> Option<AuthenticatedSince> {
        self.freshness.since(self.begun_at())
    }

    /// Returns true within [`LIFETIME`].
    pub fn is_current(&self, now: UnixTime) -> bool {
        sealed::is_current(self.begun_at(), LIFETIME, CLOCK_SKEW, now)
    }

    /// The value of its cookie. `None` if there is no root secret.
    pub fn seal(&self, cookie_name: &str, roots: &Roots) -> Option<String> {
        SEALED.seal(cookie_name, self, roots)
    }
}

/// Reverses [`Attempt::seal`]. `None` for any value that this gateway did not write under this name.
pub fn open(cookie_name: &str, value: &str, roots: &Roots) -> Option<Attempt> {
    SEALED.open(cookie_name, value, roots)
}

fn random<const N: usize>() -> String {
    URL_SAFE_NO_PAD.encode(secret::random::<N>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::secret::Secret;

    const NOW: UnixTime = UnixTime::from_secs(1_000_000);

    fn roots(number: u8, byte: u8) -> Roots {
        Roots::new((number, Secret::new(vec![byte; 32])), vec![])
    }

    fn sealed() -> (String, String, String) {
        let (attempt, state) = begin("main", "https://login.example", "/a?b", Freshness::Any, NOW);
        let name = cookie_name(&state).expect("a state");
        let value = attempt.seal(&name, &roots(1, 7)).expect("sealed");
        (state, name, value)
    }

    #[test]
    fn an_attempt_opens_only_under_its_own_name() {
        let (state, name, value) = sealed();
        let opened = open(&name, &value, &roots(1, 7)).expect("opens");
        assert!(opened.has_state(&state) && !opened.has_state(&state[1..]) && !opened.has_state(""));
        assert_eq!((&*opened.provider, &*opened.return_path), ("main", "/a?b"));
        let (other_state, other_name, _) = sealed();
        assert!(!opened.has_state(&other_state));
        assert!(open(&other_name, &value, &roots(1, 7)).is_none());
        assert!(open(&name, &value, &roots(1, 8)).is_none(), "another root secret");
        assert!(open(&name, &value, &roots(2, 7)).is_none(), "an unknown number");
        for place in 0..value.len() {
            let other = if value.as_bytes()[place] == b'A' { "B" } else { "A" };
            let wrong = format!("{}{other}{}", &value[..place], &value[place + 1..]);
            assert!(open(&name, &wrong, &roots(1, 7)).is_none(), "place {place}");
        }
    }

    #[test]
    fn an_attempt_ends_after_ten_minutes() {
        let (attempt, _) = begin("main", "https://login.example", "/", Freshness::Any, NOW);
        let second = Duration::from_secs(1);
        for (now, expected) in [
            (NOW, true),
            (NOW + LIFETIME, true),
            (NOW + LIFETIME + second, false),
            (NOW - CLOCK_SKEW, true),
            (NOW - CLOCK_SKEW - second, false),
        ] {
            assert_eq!(attempt.is_current(now), expected, "{now}");
        }
    }

    #[test]
    fn each_attempt_has_secrets_of_its_own() {
        let (first, state) = begin("main", "https://login.example", "/", Freshness::Any, NOW);
        let (second, other) = begin("main", "https://login.example", "/", Freshness::Any, NOW);
        assert!(state != other && first.nonce != second.nonce && first.verifier != second.verifier);
        assert_eq!((state.len(), first.nonce.len(), first.verifier.len()), (STATE_LEN, 32, 43));
    }

    /// RFC 7636 appendix B.
    #[test]
    fn the_challenge_is_the_hash_of_the_verifier() {
        let (attempt, _) = begin("main", "https://login.example", "/", Freshness::Any, NOW);
        let attempt = Attempt { verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into(), ..attempt };
        assert_eq!(attempt.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn only_a_state_names_a_cookie() {
        let state = "abcDEF-_".to_owned() + &"x".repeat(STATE_LEN - 8);
        assert_eq!(cookie_name(&state).as_deref(), Some("__Host-bw-try-abcDEF"));
        for wrong in
            ["", "abcdef", &state[1..], &format!("{state}x"), &state.replace('x', ";"), &state.replace('x', "=")]
        {
            assert_eq!(cookie_name(wrong), None, "{wrong}");
        }
        assert!(is_cookie_name(b"__Host-bw-try-abcDEF") && !is_cookie_name(b"__Host-bearward"));
    }
}
