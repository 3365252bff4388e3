//! The tokens of a provider in the store, encrypted and authenticated with a key that is derived from a root secret.
//!
//! The family, the issuer and the version are authenticated too, so that a sealed value cannot be moved to another
//! login or version. A row that is restored as a whole is not noticed by this.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::known_claims::KnownClaims;
use crate::tokens::family::refresh_token::Roots;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::secret::{self, Secret};

/// No `Debug`: it must not reach a log.
#[derive(Clone, Serialize, Deserialize)]
pub struct ProviderTokens {
    /// `None`: the provider issued none, and is not asked again.
    pub refresh_token: Option<String>,
    /// For the sign-out at the provider.
    pub id_token: Option<String>,
    /// `sub` at the provider.
    pub subject: String,
    pub nonce: String,
    pub auth_time: Option<u64>,
    /// `None`: an older version of the gateway sealed this.
    #[serde(default)]
    pub claims: Option<KnownClaims>,
    /// When the provider's access token ends, in milliseconds.
    access_ends: u64,
    /// How long it lives, in milliseconds. `None`: an older version of the gateway sealed this.
    #[serde(default)]
    access_lives: Option<u64>,
}

impl ProviderTokens {
    /// Without tokens. [`ProviderTokens::renew_access`] says how long the access token lives.
    pub fn new(subject: String, nonce: String, auth_time: Option<u64>) -> Self {
        ProviderTokens {
            refresh_token: None,
            id_token: None,
            subject,
            nonce,
            auth_time,
            claims: None,
            access_ends: 0,
            access_lives: None,
        }
    }

    pub fn access_ends(&self) -> UnixTime {
        UnixTime::from_millis(self.access_ends)
    }

    /// How long the access token of the provider lives.
    pub fn access_lifetime(&self) -> Option<Duration> {
        self.access_lives.map(Duration::from_millis)
    }

    pub fn renew_access(&mut self, issued: UnixTime, lifetime: Duration) {
        let ends = issued + lifetime;
        self.access_ends = ends.as_millis();
        self.access_lives = Some(ends.since(issued).as_millis().try_into().unwrap_or(u64::MAX));
    }

    /// The number of the root secret, and the sealed tokens. `None` if there is no root secret.
    pub fn seal(&self, place: Place<'_>, roots: &Roots) -> Option<(u8, Vec<u8>)> {
        let plain = Secret::new(serde_json::to_vec(self).ok()?);
        let sealed = secret::seal(&key(roots.newest_secret()?), &place.name(), plain.expose())?;
        Some((roots.newest(), sealed))
    }

    /// Reverses [`ProviderTokens::seal`]. `None` for anything that was not sealed for this place.
    pub fn open(root: u8, sealed: &[u8], place: Place<'_>, roots: &Roots) -> Option<Self> {
        let plain = secret::unseal(&key(roots.find(root)?), &place.name(), sealed)?;
        serde_json::from_slice(plain.expose()).ok()
    }
}

/// Where sealed tokens belong.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    pub family: TokenId,
    pub issuer: &'p str,
    pub version: u64,
}

impl Place<'_> {
    /// Family and version have a fixed form, so that no two places have the same name.
    fn name(&self) -> String {
        format!("{} {} {}", self.family, self.version, self.issuer)
    }
}

fn key(root: &Secret) -> Secret {
    secret::derive(root, b"", "bearward provider tokens v1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_tokens_open_only_in_their_place() {
        let roots = |byte| Roots::new((1, Secret::new(vec![byte; 32])), vec![]);
        let here = TokenId::from_bytes([1; 16]);
        let there = TokenId::from_bytes([2; 16]);
        let place = Place { family: here, issuer: "https://login.example", version: 3 };
        let mut tokens = ProviderTokens::new("alice".into(), "n".into(), Some(7));
        tokens.renew_access(UnixTime::from_secs(4), Duration::from_secs(5));
        tokens.refresh_token = Some("r".into());
        let (root, sealed) = tokens.seal(place, &roots(7)).expect("sealed");
        let open = |place, roots: &Roots| ProviderTokens::open(root, &sealed, place, roots);
        let opened = open(place, &roots(7)).expect("opens");
        assert_eq!((opened.refresh_token.as_deref(), opened.access_ends()), (Some("r"), UnixTime::from_secs(9)));
        assert!(open(Place { family: there, ..place }, &roots(7)).is_none());
        assert!(open(Place { issuer: "https://other.example", ..place }, &roots(7)).is_none());
        assert!(open(Place { version: 2, ..place }, &roots(7)).is_none());
        assert!(open(place, &roots(8)).is_none());
        assert_eq!(opened.access_lifetime(), Some(Duration::from_secs(5)));
        assert!(!String::from_utf8_lossy(&sealed).contains("alice"));
    }

    #[test]
    fn tokens_of_an_older_version_can_be_read() {
        let json = r#"{"refresh_token":"r","id_token":null,"subject":"a","nonce":"n","auth_time":1,"access_ends":9}"#;
        let tokens: ProviderTokens = serde_json::from_str(json).expect("readable");
        assert_eq!((tokens.access_ends(), tokens.access_lifetime()), (UnixTime::from_millis(9), None));
        assert!(tokens.claims.is_none());
    }
}
