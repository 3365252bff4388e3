//! Errors of keys and of their sources. Each error says what failed; [`with_causes`] adds why.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::protocols::url::UrlError;
use crate::types::private_file::LaxFile;
use crate::types::reject::with_causes;

type Cause = Box<dyn Error + Send + Sync>;

/// Why the keys of another issuer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeySourceError {
    #[error("cannot read {path}")]
    ReadFile { path: PathBuf, source: io::Error },
    /// The file or the response is not an acceptable key set.
    #[error("cannot use the keys in {place}")]
    Keys {
        /// The file or the URL.
        place: String,
        source: Cause,
    },
    /// The message of the cause names the URL.
    #[error(transparent)]
    Fetch(Cause),
    #[error("cannot use the discovery document {url}")]
    Discovery { url: String, source: DiscoveryError },
    /// No discovery URL of the issuer works. One error for each.
    #[error("{}", joined(.0))]
    NotDiscovered(Vec<KeySourceError>),
}

impl KeySourceError {
    pub(super) fn keys(place: impl fmt::Display, source: impl Into<Cause>) -> Self {
        KeySourceError::Keys { place: place.to_string(), source: source.into() }
    }

    pub(super) fn fetch(source: impl Into<Cause>) -> Self {
        KeySourceError::Fetch(source.into())
    }

    /// Returns true if other users can change the file, or read a secret in it.
    pub(super) fn is_lax_file(&self) -> bool {
        let KeySourceError::ReadFile { source, .. } = self else { return false };
        source.get_ref().is_some_and(|cause| cause.is::<LaxFile>())
    }
}

fn joined(errors: &[KeySourceError]) -> String {
    errors.iter().map(|error| with_causes(error)).collect::<Vec<_>>().join("; ")
}

/// What is wrong with a discovery document (OpenID Connect Discovery, RFC 8414).
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("not a JSON object: {0}")]
    NotJson(serde_json::Error),
    #[error("it has no issuer")]
    NoIssuer,
    #[error("its issuer is {found:?}, not {expected:?}")]
    OtherIssuer { found: String, expected: String },
    /// The member that it lacks.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// The member that is no text.
    #[error("{0}: not a text")]
    NotText(&'static str),
    #[error("{member}: {fault}")]
    Url { member: &'static str, fault: UrlError },
    /// The host is nearer than the server of the document.
    #[error(
        "{member}: the host {host:?} is on this machine or in a private network, and the document is not; if that is \
         right, list the host in `jwks_hosts`"
    )]
    Host { member: &'static str, host: String },
}

/// Why the gateway's own signing keys cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum OwnKeysError {
    /// The message of the cause names the key.
    #[error(transparent)]
    Key(Cause),
    #[error("the store has no signing key")]
    NoSigningKey,
}

impl OwnKeysError {
    pub(super) fn key(source: impl Into<Cause>) -> Self {
        OwnKeysError::Key(source.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_failed_and_why() {
        let of = |host: &str| KeySourceError::Discovery {
            url: format!("https://{host}/"),
            source: DiscoveryError::Host { member: "jwks_uri", host: "10.0.0.1".into() },
        };
        let both = KeySourceError::NotDiscovered(vec![of("a"), of("b")]).to_string();
        let (one, other) = both.split_once("; cannot use").expect("two errors");
        assert!(one.starts_with("cannot use the discovery document https://a/: jwks_uri: the host"), "{both}");
        assert!(other.starts_with(" the discovery document https://b/: jwks_uri: the host"), "{both}");
        let other = DiscoveryError::OtherIssuer { found: "https://b".into(), expected: "https://a".into() };
        assert_eq!(other.to_string(), r#"its issuer is "https://b", not "https://a""#);
    }

    #[test]
    fn only_a_file_that_others_can_change_is_lax() {
        let of = |source| KeySourceError::ReadFile { path: "keys.json".into(), source };
        let lax = LaxFile { problem: "anyone can write to it".into(), advice: "run: chmod 600".into() };
        assert!(of(io::Error::other(lax)).is_lax_file());
        assert!(!of(io::ErrorKind::NotFound.into()).is_lax_file());
        assert!(!KeySourceError::NotDiscovered(Vec::new()).is_lax_file());
    }
}
