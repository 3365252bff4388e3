//! What has to stand before the first connection: secrets, store, revocation set, keys.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::keys::KeyWatch;
use super::secrets::{read_roots, roots_as_they_are};
use crate::authenticate::Authenticator;
use crate::broker::{self, Broker};
use crate::clock::{Clock, UnixTime};
use crate::config::{Config, TokenSettings};
use crate::confirmations::Confirmations;
use crate::delivery::Target;
use crate::family::Lifetimes;
use crate::family::refresh_token::Roots;
use crate::family::revocation::Revocation;
use crate::forward::Forwarder;
use crate::gateway::Gateway;
use crate::headers::Hygiene;
use crate::judge::Judge;
use crate::keyring::{Keyring, Keys};
use crate::login::LoginHeaders;
use crate::metrics::Metrics;
use crate::revocations::Revocations;
use crate::route::{Capture, RouteTable};
use crate::secret::{self, Secret};
use crate::store::sqlite::{self, SqliteStore};
use crate::store::{Store, StoredKey};
use crate::throttle::Throttle;
use crate::token::replacement::Terms;
use crate::token::sign::{SigningKey, generate_pem, verifying_keys};
use crate::token::verify::TrustedIssuer;
use crate::token::{Algorithm, Audience, Issuer, algorithm_name, algorithm_named};
use crate::upstream::Upstream;
use crate::verified::VerifiedTokens;

/// Everything that requests share and that outlives a change of routes.
pub(super) struct Foundation {
    pub(super) store: Arc<dyn Store>,
    pub(super) revocations: Arc<Revocations>,
    pub(super) confirmations: Arc<Confirmations>,
    pub(super) broker: Arc<Broker>,
    keyring: Arc<Keyring>,
    key_watch: KeyWatch,
    /// The cache of the gateway in force. Each gets its own: entries hold headers that its configuration decided.
    verified: Arc<ArcSwap<VerifiedTokens>>,
    /// No issuer's tokens may live longer: revocations are remembered so long.
    longest_life: Duration,
}

impl Foundation {
    pub(super) async fn lay(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let now = clock.now();
        let roots = Arc::new(read_roots(&config.store.secret)?);
        let revocations = Arc::new(Revocations::new());
        let store: Arc<dyn Store> = Arc::new(open_store(config, revocations.clone(), clock.clone())?);
        load_revocations(&*store, &revocations, now).await?;
        let keyring = Arc::new(Keyring::new(read_own_keys(config, &*store, &roots, now).await?));
        let key_watch = KeyWatch::new(keyring.clone(), clock);
        key_watch.start(&config.issuers).await?;
        let confirmations = Arc::new(Confirmations::default());
        let broker = Arc::new(Broker {
            settings: broker_settings(config),
            store: store.clone(),
            roots,
            keyring: keyring.clone(),
            confirmations: confirmations.clone(),
            throttle: Arc::new(Throttle::new(&config.throttle)),
        });
        let verified = Arc::new(ArcSwap::from_pointee(VerifiedTokens::new(config.limits.token_cache)));
        let longest_life = longest_life(config);
        Ok(Foundation { store, revocations, confirmations, broker, keyring, key_watch, verified, longest_life })
    }

    pub(super) fn gateway(&self, config: &Config, clock: Arc<dyn Clock>) -> Result<Gateway, String> {
        for route in config.routes.iter().filter(|route| !route.enforce) {
            tracing::warn!(route = route.name, "enforce = false: what should be refused is only reported");
        }
        let captures_logins = config.routes.iter().any(|route| route.capture == Some(Capture::Login));
        let login = captures_logins.then(|| config.login.headers.clone());
        let hygiene = Hygiene::new(&config.identity).and(login.iter().flat_map(LoginHeaders::names));
        let verified = Arc::new(VerifiedTokens::new(config.limits.token_cache));
        self.verified.store(verified.clone());
        let upstreams = config.upstreams.iter().map(|upstream| {
            let named = |fault| format!("upstream {}: {fault}", upstream.name);
            Upstream::new(upstream.clone(), config.workers).map_err(named)
        });
        Ok(Gateway {
            clock,
            judge: Judge {
                routes: RouteTable::new(&config.routes).with_endpoints(&config.oauth),
                authenticator: Authenticator {
                    keyring: self.keyring.clone(),
                    revocations: self.revocations.clone(),
                    verified,
                    confirmations: self.confirmations.clone(),
                    identity: config.identity.clone(),
                    token_size: config.limits.token_size,
                },
                uri_size: config.connections.uri_size,
            },
            forwarding: config.forwarding.clone(),
            resource: config.oauth.resource.clone(),
            broker: self.broker.clone(),
            keyring: self.keyring.clone(),
            forwarder: Forwarder {
                upstreams: upstreams.collect::<Result<_, String>>()?,
                hygiene: Arc::new(hygiene),
                login,
                body_idle: config.connections.body_idle,
                body_size: config.connections.body_size.unwrap_or(u64::MAX),
                keyring: self.keyring.clone(),
                replacement: Terms {
                    issuer: config.tokens.issuer.as_str().into(),
                    lifetime: config.tokens.lifetimes.access,
                },
            },
            login_answer_size: config.login.answer_size,
            body_idle: config.connections.body_idle,
        })
    }

    /// Reads the keys of other issuers again and puts them in force. Nothing changes if one of them is unfit.
    pub(super) fn reload_keys(&self, config: &Config) -> Result<(), String> {
        if longest_life(config) > self.longest_life {
            return Err("an issuer's max_lifetime is longer than any at the start: that takes a restart".into());
        }
        self.key_watch.restart(&config.issuers)
    }

    /// What of this can be measured.
    pub(super) fn show(&self, metrics: &mut Metrics) {
        self.key_watch.show(metrics);
        let revocations = self.revocations.clone();
        metrics.gauge("revocations", "Entries in the revocation set", move || revocations.len() as f64);
        let revocations = self.revocations.clone();
        metrics.gauge("revocation_sequence", "Newest entry of the store's log that is enforced", move || {
            revocations.sequence() as f64
        });
        let verified = self.verified.clone();
        metrics.gauge("known_tokens", "Tokens in the verified-token cache", move || verified.load().len() as f64);
    }
}

fn broker_settings(config: &Config) -> broker::Settings {
    let tokens = &config.tokens;
    broker::Settings {
        issuer: tokens.issuer.clone(),
        audience: tokens.audience.clone(),
        lifetimes: tokens.lifetimes,
        token_size: config.limits.token_size,
        families: tokens.families,
        store_patience: config.store.patience,
        expires_at_milliseconds: tokens.expires_at_milliseconds,
        extra_fields: tokens.extra_fields,
    }
}

/// A clock may be set back by so much while a token lives: that token lives longer than anybody could count on when it was
/// revoked, and stays revoked nevertheless.
const CLOCK_STEP: Duration = Duration::from_mins(5);

fn open_store(config: &Config, revocations: Arc<Revocations>, clock: Arc<dyn Clock>) -> Result<SqliteStore, String> {
    let settings = sqlite::Settings {
        issuer: config.tokens.issuer.clone(),
        longest_life: longest_life(config) + CLOCK_STEP,
        longest_family: config.tokens.lifetimes.absolute + CLOCK_STEP,
        audit: if config.audit.target == Target::Off { 0 } else { config.audit.outbox },
    };
    let enforce = Arc::new(move |revocation: &Revocation| revocations.enforce(revocation, clock.now()));
    SqliteStore::open(&config.store.sqlite, settings, enforce).map_err(|error| error.to_string())
}

/// The longest that any accepted token can live, leeway included.
fn longest_life(config: &Config) -> Duration {
    let own = config.tokens.lifetimes.access + config.tokens.leeway;
    let foreign = config.issuers.iter().map(|issuer| issuer.policy.max_lifetime + issuer.policy.leeway);
    foreign.fold(own, Duration::max)
}

/// The whole set, before anything is served: a gateway that starts with a part of it would let revoked tokens in.
async fn load_revocations(store: &dyn Store, revocations: &Revocations, now: UnixTime) -> Result<(), String> {
    let entries = store.revocations_since(0, now).await.map_err(|error| error.to_string())?;
    for entry in &entries {
        revocations.enforce(entry, now);
    }
    revocations.tidy();
    tracing::info!(entries = entries.len(), "loaded the revocation set");
    Ok(())
}

/// The gateway's own, before those of other issuers.
async fn read_own_keys(config: &Config, store: &dyn Store, roots: &Roots, now: UnixTime) -> Result<Keys, String> {
    let (signing, retired) = own_keys(&config.tokens, store, roots, now).await?;
    keys_of_our_own(&config.tokens, signing, retired)
}

/// As a start would find them, beside a gateway that may be running: nothing is made or changed. Before the first start,
/// there is a key that nothing was ever signed with.
pub(super) fn own_keys_as_they_are(config: &Config) -> Result<Keys, String> {
    let tokens = &config.tokens;
    if let Some(key) = operators_key(tokens)? {
        return keys_of_our_own(tokens, key, Vec::new());
    }
    let stored = sqlite::stored_signing_keys(&config.store.sqlite).map_err(|error| error.to_string())?;
    let mut keys = match stored.is_empty() {
        true => Vec::new(),
        false => unseal_all(&stored, &roots_as_they_are(&config.store.secret)?)?,
    };
    let signing = match take_signing(&mut keys, tokens.algorithm) {
        Some(key) => key,
        None => SigningKey::from_pem(generate_pem(tokens.algorithm)?.expose(), tokens.algorithm)?,
    };
    keys_of_our_own(tokens, signing, keys)
}

fn keys_of_our_own(tokens: &TokenSettings, signing: SigningKey, retired: Vec<SigningKey>) -> Result<Keys, String> {
    let all_own = || [&signing].into_iter().chain(&retired);
    let own = own_policy(tokens, all_own().map(|key| key.algorithm).collect());
    let own = TrustedIssuer { policy: Arc::new(own), keys: Arc::new(verifying_keys(all_own())?) };
    Ok(Keys::new(own, signing, &retired))
}

pub(super) fn own_policy(tokens: &TokenSettings, algorithms: Vec<Algorithm>) -> Issuer {
    Issuer {
        issuer: tokens.issuer.as_str().into(),
        audience: Audience::OneOf(tokens.audience.clone()),
        algorithms,
        types: vec!["at+jwt".into()],
        leeway: tokens.leeway,
        // Not `lifetimes.access`: when that is lowered, the tokens from before live on, and their logins with them.
        max_lifetime: Lifetimes::MOST_ACCESS,
        require_subject: true,
        own: true,
    }
}

/// The key that signs, and those that did. The operator's own key stands alone; those in the store stay good after
/// `tokens.algorithm` was changed, so that nobody is logged out by it. The first of an algorithm is made here.
async fn own_keys(
    tokens: &TokenSettings,
    store: &dyn Store,
    roots: &Roots,
    now: UnixTime,
) -> Result<(SigningKey, Vec<SigningKey>), String> {
    if let Some(key) = operators_key(tokens)? {
        return Ok((key, Vec::new()));
    }
    let fault = |error: crate::store::StoreError| error.to_string();
    let mut stored = store.signing_keys().await.map_err(fault)?;
    let name = algorithm_name(tokens.algorithm);
    if !stored.iter().any(|key| key.algorithm == name) {
        let made = seal_new_key(tokens, roots, now)?;
        stored = store.add_first_signing_key(made).await.map_err(fault)?;
    }
    let mut keys = unseal_all(&stored, roots)?;
    let signing = take_signing(&mut keys, tokens.algorithm).ok_or("the store has no signing key")?;
    Ok((signing, keys))
}

fn operators_key(tokens: &TokenSettings) -> Result<Option<SigningKey>, String> {
    let Some(path) = &tokens.signing_key_file else { return Ok(None) };
    let named = |fault: String| format!("{}: {fault}", path.display());
    let pem = fs::read(path).map_err(|error| named(error.to_string()))?;
    SigningKey::from_pem(&pem, tokens.algorithm).map(Some).map_err(named)
}

/// The newest of the algorithm in force.
fn take_signing(keys: &mut Vec<SigningKey>, algorithm: Algorithm) -> Option<SigningKey> {
    let place = keys.iter().position(|key| key.algorithm == algorithm)?;
    Some(keys.remove(place))
}

fn unseal_all(stored: &[StoredKey], roots: &Roots) -> Result<Vec<SigningKey>, String> {
    stored.iter().map(|key| unseal_key(key, roots)).collect()
}

fn unseal_key(key: &StoredKey, roots: &Roots) -> Result<SigningKey, String> {
    let algorithm = algorithm_named(&key.algorithm)
        .ok_or_else(|| format!("the store's signing key {} is of an unknown algorithm", key.kid))?;
    let pem = roots
        .secrets()
        .find_map(|root| secret::unseal(&sealing_key(root), &key.kid, &key.sealed))
        .ok_or("the store's signing key was sealed under another root secret: is store.secret_file the right one?")?;
    SigningKey::from_pem(pem.expose(), algorithm)
}

fn seal_new_key(tokens: &TokenSettings, roots: &Roots, now: UnixTime) -> Result<StoredKey, String> {
    let pem = generate_pem(tokens.algorithm)?;
    let kid = SigningKey::from_pem(pem.expose(), tokens.algorithm)?.kid;
    let root = roots.newest_secret().ok_or("there is no root secret")?;
    let sealed = secret::seal(&sealing_key(root), &kid, pem.expose()).ok_or("sealing failed")?;
    tracing::info!(kid, "made a signing key");
    Ok(StoredKey { kid, algorithm: algorithm_name(tokens.algorithm).into(), sealed, created_at: now })
}

fn sealing_key(root: &Secret) -> Secret {
    secret::derive(root, b"", "bearward signing keys v1")
}
