//! The settings of the gateway, composed of the settings of its modules. No module below this one knows [`Config`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Uri};

use crate::admin::AdminSettings;
use crate::auth::credentials::Credentials;
use crate::auth::identity;
use crate::auth::introspection::IntrospectionSettings;
use crate::auth::keyring::KeySource;
use crate::auth::proofs::OwnHosts;
use crate::auth::provider::Provider;
use crate::auth::token_exchange::TokenExchangeSettings;
use crate::config::named_files::NamedFile;
use crate::config::values::Values;
use crate::gateway::cors;
use crate::gateway::endpoints::{Endpoint, Endpoints, ProviderReport};
use crate::gateway::forward_auth::ForwardAuthSettings;
use crate::gateway::https::Https;
use crate::gateway::route;
use crate::gateway::sign_in::SignInSettings;
use crate::limits::limiter::Rate;
use crate::limits::rate_limit::RateLimitSettings;
use crate::limits::throttle::ThrottleSettings;
use crate::protocols::http::forwarded;
use crate::protocols::url::SecureUrl;
use crate::store::postgres::PostgresSettings;
use crate::telemetry::access_log::AccessLogSettings;
use crate::telemetry::audit_log::AuditLogSettings;
use crate::telemetry::spans::SpanSettings;
use crate::tokens::family::Lifetimes;
use crate::tokens::jwt::{Algorithm, Issuer};
use crate::tokens::login::LoginSettings;
use crate::tokens::provider_events::EffectSettings;
use crate::tokens::provider_events::security_event::EventPolicy;
use crate::upstream::UpstreamSettings;
use crate::{admin, server};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Every key with its value and where it comes from.
    pub values: Values,
    /// The files that were read because a key names them.
    pub files: Vec<NamedFile>,
    /// `include`: patterns of files.
    pub include: Vec<PathBuf>,
    pub watch: Watch,
    /// How often the watched files are read, and the key files of issuers. Their content decides: Kubernetes swaps
    /// links, and copies keep old times. No key sets it: tests set a shorter time.
    pub file_poll: Duration,
    /// At least 1. `workers = 0` in the file is replaced by the number of CPU cores.
    pub workers: usize,
    pub listeners: Vec<server::ListenerSettings>,
    pub acme: Arc<server::acme::AcmeSettings>,
    pub connections: server::ConnectionSettings,
    pub admin: AdminSettings,
    pub store: StoreSettings,
    pub tokens: TokenSettings,
    pub issuers: Vec<ForeignIssuer>,
    pub providers: Vec<Arc<Provider>>,
    pub upstreams: Vec<UpstreamSettings>,
    /// `[[rate]]`: limits for all routes together.
    pub rates: Vec<RateLimitSettings>,
    pub routes: Vec<route::Route>,
    pub token_exchanges: Vec<TokenExchangeSettings>,
    pub identity: identity::Identity,
    pub login: LoginSettings,
    pub oauth: Endpoints,
    /// `sign_in.path`
    pub sign_in_path: String,
    /// `None`: no route signs browsers in.
    pub sign_in: Option<SignInSettings>,
    pub cors: Option<Arc<cors::Policy>>,
    pub https: Https,
    pub forwarding: forwarded::Forwarding,
    pub event_streams: Vec<EventStream>,
    /// `None`: no other proxy may ask.
    pub forward_auth: Option<ForwardAuthSettings>,
    pub access_log: AccessLogSettings,
    pub audit: AuditLogSettings,
    /// `None`: no spans are sent.
    pub trace: Option<SpanSettings>,
    pub limits: Limits,
    pub throttle: ThrottleSettings,
}

impl Config {
    /// Returns true if the store remembers used proofs. Without nonces, several gateways have nothing else in common.
    pub fn shares_proofs(&self) -> bool {
        let tokens = &self.tokens;
        tokens.proofs_in_store.unwrap_or(self.store.is_shared() && !tokens.proof_nonce)
    }

    /// The hosts at which clients reach the gateway, besides those that the certificate of a listener names.
    pub fn own_hosts(&self) -> OwnHosts {
        let urls = [Some(&self.tokens.issuer), self.oauth.mtls_url.as_ref()].into_iter().flatten();
        let resource = self.oauth.resources.all.iter().map(|metadata| &metadata.resource.origin);
        let pages = self.sign_in.iter().flat_map(|sign_in| &sign_in.external_urls).map(|url| &url.origin);
        let urls = urls.chain(resource).chain(pages).filter_map(|url| url.parse::<Uri>().ok());
        let of_routes = self.routes.iter().filter_map(|route| route.host.as_deref());
        let public = self.listeners.iter().filter_map(|listener| Some(&*listener.public_url.as_ref()?.authority));
        let mut hosts = OwnHosts::default();
        hosts.extend(urls.collect::<Vec<_>>().iter().filter_map(Uri::host));
        hosts.extend(of_routes.chain(public).chain(self.https.hosts.iter().map(String::as_str)));
        hosts
    }

    /// The limits for all routes, then those of each route, in the order of their numbers.
    pub fn all_rates(&self) -> impl Iterator<Item = &RateLimitSettings> {
        self.rates.iter().chain(self.routes.iter().flat_map(|route| &route.rates))
    }

    /// The paths at which identity providers report.
    pub fn report_paths(&self) -> impl Iterator<Item = (Endpoint, String)> {
        let logouts = self.providers.iter().map(|provider| logout_path(&self.sign_in_path, &provider.name));
        let logouts = logouts.enumerate().map(|(number, path)| (ProviderReport::BackchannelLogout(number), path));
        let pushed = self.event_streams.iter().filter_map(EventStream::path).enumerate();
        let pushed = pushed.map(|(number, path)| (ProviderReport::SecurityEvents(number), path.to_owned()));
        logouts.chain(pushed).map(|(report, path)| (Endpoint::Report(report), path))
    }
}

/// Where the logout tokens of this provider arrive.
pub(super) fn logout_path(sign_in_path: &str, provider: &str) -> String {
    format!("{sign_in_path}/backchannel_logout/{provider}")
}

/// `watch`: which files the gateway reloads by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Off,
    /// Certificates and their private keys, and the signing key.
    Certificates,
    /// Also the configuration, and every other file that it names.
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
    /// How long a start waits for PostgreSQL if it does not respond yet: both may have been started together. No key
    /// sets it: tests set a shorter time.
    pub start_patience: Duration,
}

impl TokenSettings {
    /// The audiences of tokens of this gateway that are good where no route has a resource of its own.
    pub fn accepted_audience(&self) -> Vec<String> {
        let resource = self.gateway_resource.iter().filter(|resource| !self.audience.contains(resource));
        self.audience.iter().chain(resource).cloned().collect()
    }
}

impl StoreSettings {
    /// Returns true if several gateways can have the store open at once.
    pub fn is_shared(&self) -> bool {
        self.postgres().is_some()
    }

    /// The settings of PostgreSQL, if that is the store.
    pub fn postgres(&self) -> Option<&PostgresSettings> {
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
    Postgres(Box<PostgresSettings>),
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
    /// `route.resource`, each once: other audiences of tokens that this gateway issues and accepts.
    pub resources: Vec<String>,
    /// `oauth.resource`, if clients get tokens for it: accepted as `audience` is, and never the default.
    pub gateway_resource: Option<String>,
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
    /// If true, tokens of a public client that shows a certificate are bound to it.
    pub certificate_bound: bool,
    /// `limits.sessions_per_subject`: maximum number of live families of one subject.
    pub sessions_per_subject: usize,
    /// If true, each proof needs a nonce (`tokens.proof_nonce`).
    pub proof_nonce: bool,
    /// `tokens.proof_replay`: true for "store", false for "process". `None`: as the store and `proof_nonce` suggest.
    pub proofs_in_store: Option<bool>,
}

/// `[[issuer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignIssuer {
    pub policy: Issuer,
    pub keys: KeySource,
    /// `issuer.introspection`
    pub introspection: Option<IntrospectionSettings>,
}

/// `[[event_stream]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct EventStream {
    pub name: Arc<str>,
    pub policy: EventPolicy,
    pub effects: EffectSettings,
    /// The transmitter and its keys.
    pub transmitter: ForeignIssuer,
    pub delivery: EventDelivery,
    pub verification: Option<EventVerification>,
}

/// How the events of a stream come.
#[derive(Clone, Debug, PartialEq)]
pub enum EventDelivery {
    Push {
        /// `event_stream.path`
        path: String,
        /// The whole value of `Authorization` of the transmitter.
        authorization: HeaderValue,
        /// For verifications.
        client: Option<Credentials>,
    },
    Poll {
        url: SecureUrl,
        ca_file: Option<PathBuf>,
        interval: Duration,
        credentials: Credentials,
    },
}

/// `event_stream.verification_url`
#[derive(Clone, Debug, PartialEq)]
pub struct EventVerification {
    pub url: SecureUrl,
    pub ca_file: Option<PathBuf>,
    /// `event_stream.verify_interval`
    pub interval: Duration,
    /// `event_stream.stream_id`
    pub stream_id: String,
}

impl EventDelivery {
    /// With which the gateway calls the transmitter.
    pub fn credentials(&self) -> Option<&Credentials> {
        match self {
            EventDelivery::Push { client, .. } => client.as_ref(),
            EventDelivery::Poll { credentials, .. } => Some(credentials),
        }
    }
}

impl EventStream {
    /// The path at which the transmitter pushes events.
    pub fn path(&self) -> Option<&str> {
        match &self.delivery {
            EventDelivery::Push { path, .. } => Some(path),
            EventDelivery::Poll { .. } => None,
        }
    }
}

/// The part of `[limits]` that is not about one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// `limits.token_size`
    pub token_size: usize,
    /// `limits.token_cache_size`: maximum memory for verified tokens, in bytes.
    pub token_cache_size: usize,
    /// `limits.used_proofs`: maximum number of DPoP proofs that are remembered.
    pub used_proofs: usize,
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
