//! The settings of the gateway, composed of the settings of its modules. No module below this one knows [`Config`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::identity;
use crate::auth::keyring::KeySource;
use crate::config::values::Values;
use crate::gateway::cors;
use crate::gateway::endpoints::Endpoints;
use crate::gateway::forward_auth;
use crate::gateway::https::Https;
use crate::gateway::route;
use crate::limits::limiter::Rate;
use crate::limits::{rate_limit, throttle};
use crate::protocols::http::forwarded;
use crate::store::postgres;
use crate::telemetry::{access_log, audit_log, spans};
use crate::tokens::family::Lifetimes;
use crate::tokens::jwt::{Algorithm, Issuer};
use crate::tokens::login;
use crate::{admin, server, upstream};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Every key with its value and where it comes from.
    pub values: Values,
    /// `include`: patterns of files.
    pub include: Vec<PathBuf>,
    pub watch: Watch,
    /// At least 1. `workers = 0` in the file is replaced by the number of CPU cores.
    pub workers: usize,
    pub listeners: Vec<server::ListenerSettings>,
    pub connections: server::ConnectionSettings,
    pub admin: admin::Settings,
    pub store: StoreSettings,
    pub tokens: TokenSettings,
    pub issuers: Vec<ForeignIssuer>,
    pub upstreams: Vec<upstream::Settings>,
    /// `[[rate]]`: limits for all routes together.
    pub rates: Vec<rate_limit::Settings>,
    pub routes: Vec<route::Route>,
    pub identity: identity::Identity,
    pub login: login::Settings,
    pub oauth: Endpoints,
    pub cors: Option<Arc<cors::Policy>>,
    pub https: Https,
    pub forwarding: forwarded::Forwarding,
    /// `None`: no other proxy may ask.
    pub forward_auth: Option<forward_auth::Settings>,
    pub access_log: access_log::Settings,
    pub audit: audit_log::Settings,
    /// `None`: no spans are sent.
    pub trace: Option<spans::Settings>,
    pub limits: Limits,
    pub throttle: throttle::Settings,
}

impl Config {
    /// The limits for all routes, then those of each route, in the order of their numbers.
    pub fn all_rates(&self) -> impl Iterator<Item = &rate_limit::Settings> {
        self.rates.iter().chain(self.routes.iter().flat_map(|route| &route.rates))
    }
}

/// `watch`: which files the gateway reloads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Off,
    /// Certificates and their private keys.
    Certificates,
    /// Also the configuration.
    All,
}

/// `[store]`.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSettings {
    pub database: Database,
    /// Begin of the paths of what belongs to this gateway alone: its admin socket, its audit file. `store.sqlite`, or a
    /// path beside the configuration.
    pub beside: PathBuf,
    pub secret: admin::SecretSource,
    /// `timeouts.store`: how long a call waits for its result.
    pub timeout: Duration,
}

impl StoreSettings {
    /// Returns true if several gateways can have the store open at once.
    pub fn is_shared(&self) -> bool {
        self.postgres().is_some()
    }

    /// The settings of PostgreSQL, if that is the store.
    pub fn postgres(&self) -> Option<&postgres::Settings> {
        match &self.database {
            Database::Sqlite(_) => None,
            Database::Postgres(settings) => Some(settings),
        }
    }
}

/// `store.sqlite` or `store.postgres`.
#[derive(Clone, Debug, PartialEq)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(Box<postgres::Settings>),
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(file) => write!(f, "{}", file.display()),
            Database::Postgres(settings) => settings.target.fmt(f),
        }
    }
}

impl Database {
    /// The key that names it.
    pub fn key(&self) -> &'static str {
        match self {
            Database::Sqlite(_) => "store.sqlite",
            Database::Postgres(_) => "store.postgres",
        }
    }
}

/// `[tokens]`: the tokens that this gateway issues.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSettings {
    pub issuer: String,
    pub audience: Vec<String>,
    pub algorithm: Algorithm,
    /// PKCS#8 PEM, not rotated. `None`: the gateway creates keys, rotates them and keeps them in the store.
    pub signing_key_file: Option<PathBuf>,
    /// How long a key from the store signs.
    pub key_lifetime: Duration,
    /// How long a key is published before it signs.
    pub key_ahead: Duration,
    pub lifetimes: Lifetimes,
    pub clock_skew: Duration,
    /// `tokens.lifetime_jitter`, in percent.
    pub lifetime_jitter: u8,
    /// If true, `expiresAt` is in milliseconds instead of seconds.
    pub expires_at_milliseconds: bool,
    /// If true, refresh responses also contain `tokenId` and `expiresIn`.
    pub extra_fields: bool,
    /// `limits.sessions_per_subject`: maximum number of live families of one subject.
    pub sessions_per_subject: usize,
}

/// `[[issuer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignIssuer {
    pub policy: Issuer,
    pub keys: KeySource,
}

/// The part of `[limits]` that is not about one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `limits.token_size`
    pub token_size: usize,
    /// `limits.token_cache_size`: maximum memory for verified tokens, in bytes.
    pub token_cache_size: usize,
    /// `limits.bad_signatures`: a burst for each address, which is available again after ten seconds.
    pub bad_signatures: Rate,
    /// `limits.introspected_bad_signatures`: the same for the tokens that one caller introspects.
    pub introspected_bad_signatures: Rate,
}

/// What a check does beyond reading files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Only compares addresses with each other: for a check beside a running gateway, and for a reload.
    None,
    /// Binds each address for a moment: before a start.
    Addresses,
}
