//! `[[issuer]]`: where the keys of another issuer are, and how they are kept up to date.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::error::KeySourceError;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::key_set::KeySet;
use crate::types::private_file::{self, FileCreator};

/// Where an issuer's keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(KeyFile),
    Remote(Box<Remote>),
    /// The issuer is only asked about its tokens (`issuer.introspection`).
    None,
}

/// A file that the operator provides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    Jwks(PathBuf),
    Pem(PathBuf),
    /// The HMAC secret is the content of the file without white space at its end.
    Secret(PathBuf),
}

/// The issuer itself, over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    pub location: Location,
    /// If true, `http://` is allowed, also for the URL in a discovery document.
    pub allow_http: bool,
    /// Hosts that a discovery document may name wherever they are, in lower case.
    pub jwks_hosts: Vec<String>,
    /// CA certificates (PEM) for `https://`. `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Minimum and maximum time between two refreshes, regardless of `Cache-Control`.
    pub refresh: RangeInclusive<Duration>,
    /// Minimum time between two refetches for an unknown `kid`.
    pub refetch_cooldown: Duration,
    /// How long keys are used after the source last confirmed them. Older keys are stale, and the gateway is not ready.
    pub max_age: Duration,
    pub on_stale: OnStale,
    pub startup: Startup,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Jwks(SecureUrl),
    /// The URLs of the discovery document, in the order in which they are tried.
    Discovery([SecureUrl; 2]),
    /// The URL of the configuration of a transmitter of security events (SSF section 7.2).
    EventTransmitter(SecureUrl),
}

impl Location {
    /// The documents that name the URL of the keys, in the order in which they are tried. `None` without discovery.
    pub fn documents(&self) -> Option<&[SecureUrl]> {
        match self {
            Location::Jwks(_) => None,
            Location::Discovery(urls) => Some(urls),
            Location::EventTransmitter(url) => Some(std::slice::from_ref(url)),
        }
    }
}

/// What happens to the tokens of an issuer with stale keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    /// They are verified with the last good keys.
    Keep,
    /// They get 503 until the source confirms its keys.
    Reject,
}

/// What a start without keys does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// It waits for them for a limited time. The gateway is not ready while they are missing.
    Wait,
    /// It continues. Tokens of this issuer get 503 until its keys arrive.
    Continue,
}

impl KeyFile {
    pub fn path(&self) -> &PathBuf {
        match self {
            KeyFile::Jwks(path) | KeyFile::Pem(path) | KeyFile::Secret(path) => path,
        }
    }

    /// The keys in this content of the file that the issuer's policy allows.
    pub fn admit(&self, content: &[u8], issuer: &Issuer) -> Result<KeySet, KeySourceError> {
        let place = self.path().display();
        let keys = match self {
            KeyFile::Jwks(_) => {
                let text = std::str::from_utf8(content).map_err(|error| KeySourceError::keys(&place, error))?;
                KeySet::from_jwks(text, &issuer.algorithms)
            }
            KeyFile::Pem(_) => KeySet::from_pem(content, &issuer.algorithms),
            KeyFile::Secret(_) => KeySet::from_secret(content.trim_ascii_end(), &issuer.algorithms),
        };
        keys.map_err(|error| KeySourceError::keys(&place, error))
    }

    /// Returns true if this content is a secret: a JWKS can be public keys or shared secrets.
    pub fn is_secret(&self, content: &[u8]) -> bool {
        match self {
            KeyFile::Jwks(_) => KeySet::has_secret(content),
            // A private key is an error of its own.
            KeyFile::Pem(_) => false,
            KeyFile::Secret(_) => true,
        }
    }

    /// Reads the file. Fails if other users can change it, or read a secret.
    pub(super) fn content(&self) -> Result<Vec<u8>, KeySourceError> {
        let content = match self {
            KeyFile::Jwks(path) | KeyFile::Pem(path) => {
                private_file::read_trusted(path, |content| self.is_secret(content))
            }
            KeyFile::Secret(path) => private_file::read(path, FileCreator::Operator),
        };
        content.map_err(|source| KeySourceError::ReadFile { path: self.path().clone(), source })
    }

    /// Reads the file, and then as [`KeyFile::admit`].
    pub fn read(&self, issuer: &Issuer) -> Result<KeySet, KeySourceError> {
        self.admit(&self.content()?, issuer)
    }
}
