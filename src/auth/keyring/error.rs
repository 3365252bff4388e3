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
#[derive(Debug)]
pub enum KeySourceError {
    ReadFile {
        path: PathBuf,
        source: io::Error,
    },
    /// The file or the response is not an acceptable key set.
    Keys {
        /// The file or the URL.
        place: String,
        source: Cause,
    },
    /// The message of the cause names the URL.
    Fetch(Cause),
    Discovery {
        url: String,
        source: DiscoveryError,
    },
    /// No discovery URL of the issuer works. One error for each.
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

impl fmt::Display for KeySourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySourceError::ReadFile { path, .. } => write!(f, "cannot read {}", path.display()),
            KeySourceError::Keys { place, .. } => write!(f, "cannot use the keys in {place}"),
            KeySourceError::Fetch(source) => source.fmt(f),
            KeySourceError::Discovery { url, .. } => write!(f, "cannot use the discovery document {url}"),
            KeySourceError::NotDiscovered(errors) => {
                for (index, error) in errors.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{}", with_causes(error))?;
                }
                Ok(())
            }
        }
    }
}

impl Error for KeySourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            KeySourceError::ReadFile { source, .. } => Some(source),
            KeySourceError::Keys { source, .. } => Some(&**source),
            KeySourceError::Fetch(source) => source.source(),
            KeySourceError::Discovery { source, .. } => Some(source),
            KeySourceError::NotDiscovered(_) => None,
        }
    }
}

/// What is wrong with a discovery document (OpenID Connect Discovery, RFC 8414).
#[derive(Debug)]
pub enum DiscoveryError {
    NotJson(serde_json::Error),
    NoIssuer,
    OtherIssuer {
        found: String,
        expected: String,
    },
    /// The member that it lacks.
    Missing(&'static str),
    /// The member that is no text.
    NotText(&'static str),
    Url {
        member: &'static str,
        fault: UrlError,
    },
    /// The host is nearer than the server of the document.
    Host {
        member: &'static str,
        host: String,
    },
}

impl fmt::Display for DiscoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiscoveryError::NotJson(error) => write!(f, "not a JSON object: {error}"),
            DiscoveryError::NoIssuer => f.write_str("it has no issuer"),
            DiscoveryError::OtherIssuer { found, expected } => {
                write!(f, "its issuer is {found:?}, not {expected:?}")
            }
            DiscoveryError::Missing(member) => write!(f, "it has no {member}"),
            DiscoveryError::NotText(member) => write!(f, "{member}: not a text"),
            DiscoveryError::Url { member, fault } => write!(f, "{member}: {fault}"),
            DiscoveryError::Host { member, host } => write!(
                f,
                "{member}: the host {host:?} is on this machine or in a private network, and the document is not; \
                 if that is right, list the host in `jwks_hosts`"
            ),
        }
    }
}

impl Error for DiscoveryError {}

/// Why the gateway's own signing keys cannot be put in force.
#[derive(Debug)]
pub enum OwnKeysError {
    /// The message of the cause names the key.
    Key(Cause),
    NoSigningKey,
}

impl OwnKeysError {
    pub(super) fn key(source: impl Into<Cause>) -> Self {
        OwnKeysError::Key(source.into())
    }
}

impl fmt::Display for OwnKeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnKeysError::Key(source) => source.fmt(f),
            OwnKeysError::NoSigningKey => f.write_str("the store has no signing key"),
        }
    }
}

impl Error for OwnKeysError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OwnKeysError::Key(source) => source.source(),
            OwnKeysError::NoSigningKey => None,
        }
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
