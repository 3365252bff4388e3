//! The tokens of a provider in the store, encrypted and authenticated with a key that is derived from a root secret.
//!
//! The family, the issuer and the version are authenticated too, so that a sealed value cannot be moved to another
//! login or version. A row that is restored as a whole is not noticed by this.

use serde::{Deserialize, Serialize};

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
    /// When the provider's access token ends, in milliseconds.
    access_ends: u64,
}

impl ProviderTokens {
    pub fn new(subject: String, nonce: String, auth_time: Option<u64>, access_ends: UnixTime) -> Self {
        let access_ends = access_ends.as_millis();
        ProviderTokens { refresh_token: None, id_token: None, subject, nonce, auth_time, access_ends }
    }

    pub fn access_ends(&self) -> UnixTime {
        UnixTime::from_millis(self.access_ends)
    }

    pub fn set_access_ends(&mut self, time: UnixTime) {
        self.access_ends = time.as_millis();
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
        let (here, there) = (TokenId::from_bytes([1; 16]), TokenId::from_bytes([2; 16]));
        let place = Place { family: here, issuer: "https://login.example", version: 3 };
        let mut tokens = ProviderTokens::new("alice".into(), "n".into(), Some(7), UnixTime::from_secs(9));
        tokens.refresh_token = Some("r".into());
        let (root, sealed) = tokens.seal(place, &roots(7)).expect("sealed");
        let open = |place, roots: &Roots| ProviderTokens::open(root, &sealed, place, roots);
        let opened = open(place, &roots(7)).expect("opens");
        assert_eq!((opened.refresh_token.as_deref(), opened.access_ends()), (Some("r"), UnixTime::from_secs(9)));
        assert!(open(Place { family: there, ..place }, &roots(7)).is_none());
        assert!(open(Place { issuer: "https://other.example", ..place }, &roots(7)).is_none());
        assert!(open(Place { version: 2, ..place }, &roots(7)).is_none());
        assert!(open(place, &roots(8)).is_none());
        assert!(!String::from_utf8_lossy(&sealed).contains("alice"));
    }
}
