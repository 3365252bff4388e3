//! `[[issuer]]`, as far as it says where the keys are and how they are kept.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::protocols::url::KeyUrl;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::key_set::KeySet;

/// Where an issuer's keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(KeyFile),
    Remote(Box<Remote>),
}

/// A file of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    Jwks(PathBuf),
    Pem(PathBuf),
    /// The bytes of the file, without a final line break, are the HMAC secret.
    Secret(PathBuf),
}

/// The issuer itself, over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    pub location: Location,
    /// Cleartext is allowed, also for what a discovery document names.
    pub allow_http: bool,
    /// Roots for `https://`; the system's when `None`.
    pub ca_file: Option<PathBuf>,
    /// From one refresh to the next, whatever the source says about caching.
    pub refresh: RangeInclusive<Duration>,
    /// From one refetch for an unknown `kid` to the next.
    pub refetch_cooldown: Duration,
    /// Keys that were not confirmed for so long are stale: the gateway is not ready.
    pub max_age: Duration,
    pub on_stale: OnStale,
    pub startup: Startup,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Jwks(KeyUrl),
    /// The places at which the issuer may describe itself, in the order they are asked.
    Discovery([KeyUrl; 2]),
}

/// What becomes of tokens whose issuer's keys are stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStale {
    /// They are checked with the last good keys.
    Keep,
    /// 503 until the source confirms its keys.
    Reject,
}

/// What a start does without the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup {
    /// Wait for them, for a bounded time, and be not ready as long as they are missing.
    Wait,
    /// Go on. Tokens of this issuer get 503 until its keys are there.
    Continue,
}

impl KeyFile {
    pub fn path(&self) -> &PathBuf {
        match self {
            KeyFile::Jwks(path) | KeyFile::Pem(path) | KeyFile::Secret(path) => path,
        }
    }

    /// The keys in the file's content, admitted on the issuer's terms.
    pub fn admit(&self, content: &[u8], issuer: &Issuer) -> Result<KeySet, String> {
        match self {
            KeyFile::Jwks(_) => match std::str::from_utf8(content) {
                Ok(text) => KeySet::from_jwks(text, &issuer.algorithms),
                Err(_) => Err("this is not UTF-8".into()),
            },
            KeyFile::Pem(_) => KeySet::from_pem(content, &issuer.algorithms),
            KeyFile::Secret(_) => KeySet::from_secret(content.trim_ascii_end(), &issuer.algorithms),
        }
    }

    /// As [`KeyFile::admit`], of what the file holds now.
    pub fn read(&self, issuer: &Issuer) -> Result<KeySet, String> {
        let path = self.path().display();
        let content = std::fs::read(self.path()).map_err(|error| format!("{path}: {error}"))?;
        self.admit(&content, issuer).map_err(|fault| format!("{path}: {fault}"))
    }
}
