//! Authorization codes: sealed texts that only the token endpoint opens.
//!
//! The use of a code is a family with the id that the code names, so that each code is used once in the whole cluster.
//! Nothing is stored before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pending::PendingRequest;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sealed::{self, SealedKind, hash};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret;

/// How every code begins.
pub const PREFIX: &str = "bwc1_";

/// Maximum length of a code.
const MAX_LEN: usize = 8_192;

const SEALED: SealedKind = SealedKind { prefix: PREFIX, purpose: "bearward authorization code v1" };

/// RFC 7636 section 4.1.
const VERIFIER_LEN: std::ops::RangeInclusive<usize> = 43..=128;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuthorizationCode {
    /// The tokenId of the session that comes of it.
    #[serde(rename = "i")]
    pub id: TokenId,
    /// SHA-256 of the client id, and of the redirect URI.
    #[serde(rename = "n")]
    client: String,
    #[serde(rename = "u")]
    redirect_uri: String,
    /// Where the code goes, for operators: the host of the redirect URI, or its private scheme.
    #[serde(rename = "h", default)]
    pub redirect_host: String,
    #[serde(rename = "c")]
    challenge: String,
    #[serde(rename = "r")]
    pub resources: Vec<String>,
    /// What the user has granted.
    #[serde(rename = "p")]
    pub scope: String,
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub dpop_jkt: Option<String>,
    /// The session of the browser in which the user agreed.
    #[serde(rename = "b")]
    pub session: TokenId,
    /// How lists of sessions name the client.
    #[serde(rename = "l")]
    pub label: String,
    /// The client must authenticate: another one may know its name.
    #[serde(rename = "a", default, skip_serializing_if = "std::ops::Not::not")]
    pub for_authenticated: bool,
    /// In milliseconds.
    #[serde(rename = "t")]
    issued_at: u64,
}

/// What the user has decided.
pub struct Granted {
    pub scope: String,
    pub session: TokenId,
    pub label: String,
    pub for_authenticated: bool,
}

impl AuthorizationCode {
    pub fn new(pending: &PendingRequest, granted: Granted, now: UnixTime) -> Self {
        let request = &pending.request;
        AuthorizationCode {
            id: pending.id,
            client: hash(&pending.client_id),
            redirect_uri: hash(request.redirect_uri.as_str()),
            redirect_host: request.redirect_uri.goes_to().to_owned(),
            challenge: request.challenge.clone(),
            resources: request.resources.clone(),
            scope: granted.scope,
            dpop_jkt: request.dpop_jkt.clone(),
            session: granted.session,
            label: granted.label,
            for_authenticated: granted.for_authenticated,
            issued_at: now.as_millis(),
        }
    }

    pub fn seal(&self, roots: &Roots) -> Option<String> {
        SEALED.seal("", self, roots)
    }

    pub fn open(text: &str, roots: &Roots) -> Option<Self> {
        if text.len() > MAX_LEN { None } else { SEALED.open("", text, roots) }
    }

    /// Returns true from its issue on until `lifetime` has passed. A clock that was set back opens no code longer.
    pub fn is_current(&self, lifetime: Duration, now: UnixTime) -> bool {
        let issued = UnixTime::from_millis(self.issued_at);
        sealed::is_current(issued, lifetime, CLOCK_SKEW, now)
    }

    /// When the user agreed, and never later than `now`.
    pub fn granted_at(&self, now: UnixTime) -> UnixTime {
        UnixTime::from_millis(self.issued_at).min(now)
    }

    pub fn is_of_client(&self, client_id: &str) -> bool {
        self.client == hash(client_id)
    }

    pub fn is_for(&self, redirect_uri: &str) -> bool {
        self.redirect_uri == hash(redirect_uri)
    }

    /// RFC 7636 section 4.6. Takes the same time wherever the two differ.
    pub fn is_of_verifier(&self, verifier: &str) -> bool {
        let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        VERIFIER_LEN.contains(&verifier.len())
            && verifier.bytes().all(is_unreserved)
            && secret::equal(hash(verifier).as_bytes(), self.challenge.as_bytes())
    }
}

/// Replicas can have clocks that differ by this much.
const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// The salt of the family of a code. Half of it names the code: another code of the same request has another name. Half
/// is random: a store can tell its own lost write from that of another gateway.
pub fn salt(code: &str) -> [u8; 32] {
    let mut salt: [u8; 32] = secret::random();
    let (named, _) = salt.split_at_mut(16);
    named.copy_from_slice(&name(code));
    salt
}

/// Returns true if the family with this salt came of this code.
pub fn is_salt_of(salt: &[u8; 32], code: &str) -> bool {
    salt.starts_with(&name(code))
}

fn name(code: &str) -> [u8; 16] {
    secret::digest(&[b"code", code.as_bytes()]).first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
