//! `[[provider]]`: an identity provider at which the gateway is registered as a client.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::keyring::{KeySource, Location, OnStale, Remote, Source, Startup};
use crate::auth::oauth_client::OAuthClient;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer};
use crate::tokens::provider_events::logout_token::{LogoutEnds, LogoutTyp};

#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// In paths, logs and lists.
    pub name: Arc<str>,
    /// Its issuer identifier, byte for byte.
    pub issuer: Arc<str>,
    pub client: OAuthClient,
    /// Of ID tokens and logout tokens.
    pub algorithms: Vec<Algorithm>,
    /// What precedes the provider's `sub` in the subject of a login.
    pub subject_prefix: String,
    pub logout_typ: LogoutTyp,
    pub logout_ends: LogoutEnds,
    /// The URLs of the discovery document, in the order in which they are tried.
    pub discovery: [SecureUrl; 2],
    /// If true, `http://` is allowed, also in the discovery document.
    pub allow_http: bool,
    /// Hosts that the discovery document may name wherever they are, in lower case.
    pub hosts: Vec<String>,
}

/// How often the discovery document and the keys are fetched, at most and at least.
const REFRESH: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(15));
/// Minimum time between two fetches for an unknown key.
const REFETCH_COOLDOWN: Duration = Duration::from_secs(30);
/// How long keys are used after the provider last confirmed them.
const MAX_AGE: Duration = Duration::from_hours(24);

impl Provider {
    /// Where the keys come from. The policy only names the issuer and the algorithms: the tokens of a provider are
    /// checked by who uses them.
    pub fn keys(&self) -> (Issuer, KeySource) {
        let policy = Issuer {
            issuer: self.issuer.clone(),
            audience: Audience::OneOf(Vec::new()),
            resources: Vec::new(),
            algorithms: self.algorithms.clone(),
            types: Vec::new(),
            clock_skew: Duration::ZERO,
            max_lifetime: Duration::ZERO,
            require_subject: true,
            confirmation: Confirmation::Reject,
            own: false,
        };
        let remote = Remote {
            location: Location::Discovery(self.discovery.clone()),
            allow_http: self.allow_http,
            jwks_hosts: self.hosts.clone(),
            ca_file: self.client.ca_file.clone(),
            refresh: REFRESH.0..=REFRESH.1,
            refetch_cooldown: REFETCH_COOLDOWN,
            max_age: MAX_AGE,
            on_stale: OnStale::Reject,
            startup: Startup::Continue,
        };
        (policy, KeySource::Remote(Box::new(remote)))
    }

    /// Returns true if a call to the token endpoint of one is as the same call to that of the other.
    pub fn is_asked_as(&self, other: &Provider) -> bool {
        let place = |provider: &Self| (provider.issuer.clone(), provider.discovery.clone(), provider.allow_http);
        place(self) == place(other) && self.hosts == other.hosts && self.client == other.client
    }

    pub(super) fn has_source(&self, source: &Source) -> bool {
        let (policy, settings) = self.keys();
        *source.policy == policy && source.settings == settings
    }
}
