//! The kinds of credentials that requests bring, and how those of the gateway begin.
//!
//! A new kind is a variant here. The compiler then names the matches, which name all kinds. It does not name
//! `OWN_PREFIXES` and `of_own`, and comparisons with one kind: .github/CONTRIBUTING.md lists them.

use crate::tokens::authorization::{code, pending};
use crate::tokens::family::{api_key, handle, refresh_token};

/// What a credential is. It also says what a verified token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// Its signature proves it.
    Jwt,
    /// A key of this gateway, which is looked up in the store.
    ApiKey,
    /// The session of a browser, which is looked up in the store.
    Handle,
    /// Its issuer is asked about it.
    Opaque,
}

/// How the secrets begin that this gateway issues and that are no JWT. No log and no other server gets such a text.
/// Client ids of registrations and requests that clients push are no secrets.
pub const OWN_PREFIXES: [&str; 5] =
    [refresh_token::PREFIX, api_key::PREFIX, handle::PREFIX, code::PREFIX, pending::PREFIX];

/// Returns true if the text is meant to be a secret of this gateway.
pub fn begins_as_own(text: &str) -> bool {
    OWN_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

impl CredentialKind {
    /// Returns the kind of a credential of this gateway, by how it begins. `None` for every other credential: its
    /// issuer decides whether it is a JWT or opaque.
    pub fn of_own(credential: &[u8]) -> Option<Self> {
        let begins = |prefix: &str| credential.starts_with(prefix.as_bytes());
        if begins(api_key::PREFIX) {
            Some(CredentialKind::ApiKey)
        } else if begins(handle::PREFIX) {
            Some(CredentialKind::Handle)
        } else {
            None
        }
    }

    /// Returns true for what stands in the store: requests and streams read it again.
    pub fn is_of_store(self) -> bool {
        match self {
            CredentialKind::ApiKey | CredentialKind::Handle => true,
            CredentialKind::Jwt | CredentialKind::Opaque => false,
        }
    }
}

/// Returns true if a backend may get this credential. One of the store would be as good as its client for months.
pub fn is_for_backends(credential: &[u8]) -> bool {
    CredentialKind::of_own(credential).is_none_or(|kind| !kind.is_of_store())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_of_the_gateway_is_known_by_its_beginning() {
        for (text, kind, is_own) in [
            ("bwk_x", Some(CredentialKind::ApiKey), true),
            ("bws_x", Some(CredentialKind::Handle), true),
            ("bwr1_x", None, true),
            ("bwc1_x", None, true),
            ("bwq1_x", None, true),
            ("eyJx.y.z", None, false),
            ("bwk", None, false),
            ("xbwk_", None, false),
        ] {
            assert_eq!((CredentialKind::of_own(text.as_bytes()), begins_as_own(text)), (kind, is_own), "{text}");
            assert_eq!(is_for_backends(text.as_bytes()), kind.is_none(), "{text}");
        }
    }
}
