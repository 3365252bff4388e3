//! Clients that have registered themselves (RFC 7591): the client id is the sealed registration, so that nothing is
//! stored.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::redirect_uri::RedirectUri;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::sealed::SealedKind;
use crate::types::clock::UnixTime;

/// How every such client id begins. No client of the configuration may have such a name.
pub const PREFIX: &str = "bwd1_";

/// Maximum length of a client id: it is a claim of each access token.
pub const MAX_LEN: usize = 600;

const SEALED: SealedKind = SealedKind { prefix: PREFIX, purpose: "bearward client registration v1" };

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRegistration {
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(rename = "u")]
    pub redirect_uris: Vec<RedirectUri>,
    /// In seconds.
    #[serde(rename = "t")]
    pub registered_at: u64,
}

impl ClientRegistration {
    /// The client id. `None` without a root secret.
    pub fn seal(&self, roots: &Roots) -> Option<String> {
        SEALED.seal("", self, roots)
    }

    /// The client with this id, for `lifetime` after its registration.
    pub fn open(client_id: &str, roots: &Roots, lifetime: Duration, now: UnixTime) -> Option<Self> {
        if client_id.len() > MAX_LEN {
            return None;
        }
        let opened: ClientRegistration = SEALED.open("", client_id, roots)?;
        let is_current = now.since(UnixTime::from_secs(opened.registered_at)) <= lifetime;
        is_current.then_some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::secret::Secret;

    #[test]
    fn a_client_id_is_its_registration() {
        let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
        let uri = |text| RedirectUri::parse(text).expect("a redirect URI");
        let client = ClientRegistration {
            name: Some("Codex".into()),
            redirect_uris: vec![uri("http://127.0.0.1/callback"), uri("http://localhost/callback")],
            registered_at: 1_000,
        };
        let id = client.seal(&roots).expect("sealed");
        assert!(id.len() <= 250, "{}", id.len());
        let day = Duration::from_hours(24);
        let opened = |id: &str, now| ClientRegistration::open(id, &roots, day, UnixTime::from_secs(now));
        assert_eq!(opened(&id, 1_000 + 86_400), Some(client));
        assert_eq!(opened(&id, 1_000 + 86_401), None);
        assert_eq!(opened(&format!("{id}A"), 1_000), None);
        assert_eq!(opened("spa", 1_000), None);
    }
}
