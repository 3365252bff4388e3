//! The gateway's own signing keys: from the store, or the operator's file with the keys that it had before.

use std::sync::Arc;

use super::error::{Cause, StartError};
use super::root_secrets::read_existing_roots;
use super::stored;
use crate::auth::keyring::{Keyring, Keys, OwnIssuer};
use crate::broker::keys::OwnKeys;
use crate::broker::{KeyFile, KeyTools};
use crate::config::{Config, TokenSettings};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::tokens::family::Lifetimes;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::{SIGNING, SigningKey, generate_pem, verifying_keys};
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer};
use crate::tokens::signing::KeyLifetimes;
use crate::types::clock::UnixTime;
use crate::types::private_file::{self, FileCreator};

/// Loads the gateway's own keys. At the first start, creates the first key.
pub(super) async fn start(
    config: &Config,
    store: &Arc<dyn Store>,
    roots: &Arc<Roots>,
    now: UnixTime,
) -> Result<(Arc<Keyring>, Arc<OwnKeys>), StartError> {
    let tokens = &config.tokens;
    let in_file = signing_key(tokens)?;
    if let Some(key) = &in_file {
        tracing::info!(kid = key.kid, "tokens.signing_key_file signs; the operator rotates it");
    }
    let tools = KeyTools {
        store: store.clone(),
        store_timeout: config.store.timeout,
        roots: roots.clone(),
        lifetimes: lifetimes(tokens),
        policy: own_policy(tokens, SIGNING.to_vec()),
        file: in_file.map(KeyFile::new),
    };
    let stored = tools.load(now).await.map_err(signing_keys)?;
    let keyring = Keyring::new(Keys::new(tools.own_issuer(&stored, now).map_err(signing_keys)?));
    let is_shared = store.freshness().is_some();
    let keyring = Arc::new(if is_shared { keyring.with_own_refetch() } else { keyring });
    Ok((keyring.clone(), Arc::new(OwnKeys::new(Some(tools), stored, keyring, now))))
}

/// The keys that a start would load. It changes nothing, because a gateway may be running. `None` if the store has no
/// keys, and no file has one.
pub(super) fn find(config: &Config, now: UnixTime) -> Result<Option<Keys>, StartError> {
    let tokens = &config.tokens;
    let in_file = signing_key(tokens)?.map(Arc::new);
    match stored(config, in_file.clone(), now)? {
        None => in_file.map(|key| single_key(tokens, key).map(Keys::new)).transpose(),
        own => Ok(own.map(Keys::new)),
    }
}

/// The keys of the store, and the key that signs if it is in a file. `None` if the store has no keys.
pub(super) fn stored(
    config: &Config,
    in_file: Option<Arc<SigningKey>>,
    now: UnixTime,
) -> Result<Option<OwnIssuer>, StartError> {
    let stored = stored::signing_keys(&config.store)?;
    if stored.is_empty() {
        return Ok(None);
    }
    let tokens = &config.tokens;
    let roots = read_existing_roots(&config.store.secret)?;
    let policy = own_policy(tokens, SIGNING.to_vec());
    OwnIssuer::from_stored(&policy, &stored, &roots, &lifetimes(tokens), in_file, now).map(Some).map_err(signing_keys)
}

/// A new key, which has signed nothing.
pub(super) fn unused(tokens: &TokenSettings) -> Result<Keys, StartError> {
    let key = new_key(tokens).map_err(signing_keys)?;
    // A stored key can have another algorithm than the one that `tokens.algorithm` now names.
    with_policy(own_policy(tokens, SIGNING.to_vec()), key).map(Keys::new)
}

/// The age of the signing key, and the time until its rotation.
pub(super) fn register_metrics(
    keys: &Arc<OwnKeys>,
    metrics: &mut Metrics,
    now: impl Fn() -> UnixTime + Send + Sync + Clone + 'static,
) {
    let ages = {
        let keys = keys.clone();
        move || keys.ages(now()).unwrap_or_default()
    };
    if keys.ages(UnixTime::default()).is_none() {
        return;
    }
    let age = ages.clone();
    metrics.gauge("signing_key_age_seconds", "Seconds since the signing key started to sign", move || age().0);
    let help = "Seconds until the next signing key signs; 0 if it is overdue";
    metrics.gauge("signing_key_rotation_seconds", help, move || ages().1);
}

pub(super) fn own_policy(tokens: &TokenSettings, algorithms: Vec<Algorithm>) -> Issuer {
    Issuer {
        issuer: tokens.issuer.as_str().into(),
        audience: Audience::OneOf(tokens.accepted_audience()),
        resources: tokens.resources.clone(),
        algorithms,
        types: vec!["at+jwt".into()],
        clock_skew: tokens.clock_skew,
        // Not `lifetimes.access`: after the operator lowers it, older tokens remain valid until they expire.
        max_lifetime: Lifetimes::MAX_ACCESS,
        require_subject: true,
        confirmation: Confirmation::Check,
        own: true,
    }
}

fn lifetimes(tokens: &TokenSettings) -> KeyLifetimes {
    KeyLifetimes {
        algorithm: tokens.algorithm,
        lifetime: tokens.key_lifetime,
        ahead: tokens.key_ahead,
        access: tokens.lifetimes.access,
        clock_skew: tokens.clock_skew,
        idle: tokens.lifetimes.idle,
    }
}

fn single_key(tokens: &TokenSettings, key: Arc<SigningKey>) -> Result<OwnIssuer, StartError> {
    with_policy(own_policy(tokens, vec![key.algorithm]), key)
}

fn with_policy(policy: Issuer, key: impl Into<Arc<SigningKey>>) -> Result<OwnIssuer, StartError> {
    let key = key.into();
    let keys = Arc::new(verifying_keys([&*key]).map_err(signing_keys)?);
    Ok(OwnIssuer::single_key(TrustedIssuer { policy: Arc::new(policy), keys }, key))
}

fn new_key(tokens: &TokenSettings) -> Result<SigningKey, Cause> {
    Ok(SigningKey::from_pem(generate_pem(tokens.algorithm)?.expose(), tokens.algorithm)?)
}

/// The key in `tokens.signing_key_file`.
pub(super) fn signing_key(tokens: &TokenSettings) -> Result<Option<SigningKey>, StartError> {
    let Some(file) = &tokens.signing_key_file else { return Ok(None) };
    let error = |source: Cause| StartError::SigningKeyFile { file: file.clone(), source };
    let pem = private_file::read(file, FileCreator::Operator).map_err(|source| error(source.into()))?;
    SigningKey::from_pem(&pem, tokens.algorithm).map(Some).map_err(|source| error(source.into()))
}

fn signing_keys(error: impl Into<Cause>) -> StartError {
    StartError::SigningKeys(error.into())
}
