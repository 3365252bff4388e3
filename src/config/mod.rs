//! The configuration the process runs on, composed of the modules' own settings. Nobody below knows it exists.
//!
//! `gateway.toml` → `read` (tables with positions) → `check` (every fault at once) → [`Config`].

use std::path::PathBuf;
use std::time::Duration;

use crate::family::Lifetimes;
use crate::token::keys::KeySet;
use crate::token::{Algorithm, Issuer};
use crate::{access_log, admin, headers, route, server, upstream};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// At least 1; `workers = 0` in the file has become the number of cores.
    pub workers: usize,
    pub listeners: Vec<server::ListenerSettings>,
    pub connections: server::ConnectionSettings,
    pub admin: admin::Settings,
    pub store: StoreSettings,
    pub tokens: TokenSettings,
    pub issuers: Vec<ForeignIssuer>,
    pub upstreams: Vec<upstream::Settings>,
    pub routes: Vec<route::Route>,
    pub identity: headers::Identity,
    pub access_log: access_log::Settings,
    pub limits: Limits,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    pub sqlite: PathBuf,
    pub secret: admin::SecretSource,
}

/// `[tokens]`: the tokens this gateway issues.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSettings {
    pub issuer: String,
    pub audience: Vec<String>,
    pub algorithm: Algorithm,
    /// PKCS#8 PEM; `None`: made on first start and kept in the store.
    pub signing_key_file: Option<PathBuf>,
    pub lifetimes: Lifetimes,
    pub leeway: Duration,
    /// `expiresAt` in milliseconds instead of seconds.
    pub expires_at_milliseconds: bool,
    /// `tokenId` and `expiresIn` beside the four fields of a refresh answer.
    pub extra_fields: bool,
    /// `limits.families`: live families of one subject.
    pub families: usize,
}

/// `[[issuer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignIssuer {
    pub policy: Issuer,
    pub keys: KeyFile,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFile {
    Jwks(PathBuf),
    Pem(PathBuf),
    /// The bytes of the file, without a final line break, are the HMAC secret.
    Secret(PathBuf),
}

/// `[limits]` that are not about one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `limits.token_size`
    pub token_size: usize,
    /// `limits.token_cache`: bytes that verified tokens may take.
    pub token_cache: usize,
}

impl KeyFile {
    pub fn path(&self) -> &PathBuf {
        match self {
            KeyFile::Jwks(path) | KeyFile::Pem(path) | KeyFile::Secret(path) => path,
        }
    }

    /// Reads the keys and admits them on the issuer's terms.
    pub fn read(&self, issuer: &Issuer) -> Result<KeySet, String> {
        let path = self.path();
        let content = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let keys = match self {
            KeyFile::Jwks(_) => match std::str::from_utf8(&content) {
                Ok(text) => KeySet::from_jwks(text, &issuer.algorithms),
                Err(_) => Err("this is not UTF-8".into()),
            },
            KeyFile::Pem(_) => KeySet::from_pem(&content, &issuer.algorithms),
            KeyFile::Secret(_) => KeySet::from_secret(content.trim_ascii_end(), &issuer.algorithms),
        };
        keys.map_err(|fault| format!("{}: {fault}", path.display()))
    }
}
