//! The gateway's own keys, at a start and beside a gateway that runs: from the operator's file, or from the store.

use std::fs;
use std::sync::Arc;

use super::secrets::roots_as_they_are;
use crate::auth::keyring::{Keyring, Keys, Own};
use crate::broker::keys::{KeyTools, OwnKeys};
use crate::config::{Config, TokenSettings};
use crate::store::{Store, sqlite};
use crate::telemetry::metrics::Metrics;
use crate::tokens::family::Lifetimes;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::{SIGNING, SigningKey, generate_pem, verifying_keys};
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::tokens::jwt::{Algorithm, Audience, Issuer};
use crate::tokens::signing::KeyLifetimes;
use crate::types::clock::UnixTime;

/// Puts our own keys in force, the first of which is made here.
pub(super) async fn start(
    config: &Config,
    store: &Arc<dyn Store>,
    roots: &Arc<Roots>,
    now: UnixTime,
) -> Result<(Arc<Keyring>, Arc<OwnKeys>), String> {
    let tokens = &config.tokens;
    if let Some(key) = operators_key(tokens)? {
        tracing::info!(kid = key.kid, "tokens.signing_key_file signs: keys are not rotated, a new one takes a restart");
        let keyring = Arc::new(Keyring::new(Keys::new(alone(tokens, key)?)));
        return Ok((keyring.clone(), Arc::new(OwnKeys::new(None, Vec::new(), keyring, now))));
    }
    let (store, roots) = (store.clone(), roots.clone());
    let workshop = KeyTools {
        store,
        patience: config.store.patience,
        roots,
        terms: terms(tokens),
        policy: own_policy(tokens, SIGNING.to_vec()),
    };
    let known = workshop.load(now).await?;
    let keyring = Arc::new(Keyring::new(Keys::new(workshop.own(&known, now)?)));
    Ok((keyring.clone(), Arc::new(OwnKeys::new(Some(workshop), known, keyring, now))))
}

/// As a start would find them, beside a gateway that may be running: nothing is made or changed. Before the first start,
/// there is a key that nothing was ever signed with.
pub(super) fn as_they_are(config: &Config, now: UnixTime) -> Result<Keys, String> {
    let tokens = &config.tokens;
    if let Some(key) = operators_key(tokens)? {
        return alone(tokens, key).map(Keys::new);
    }
    let stored = sqlite::stored_signing_keys(&config.store.sqlite).map_err(|error| error.to_string())?;
    if stored.is_empty() {
        let key = SigningKey::from_pem(generate_pem(tokens.algorithm)?.expose(), tokens.algorithm)?;
        return alone(tokens, key).map(Keys::new);
    }
    let roots = roots_as_they_are(&config.store.secret)?;
    Own::stored(&own_policy(tokens, SIGNING.to_vec()), &stored, &roots, &terms(tokens), now).map(Keys::new)
}

/// How old the key that signs is, and how long it will sign.
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
    metrics.gauge("signing_key_age_seconds", "Seconds since the signing key began to sign", move || age().0);
    let help = "Seconds until the next signing key signs; 0 if that is overdue";
    metrics.gauge("signing_key_rotation_seconds", help, move || ages().1);
}

pub(super) fn own_policy(tokens: &TokenSettings, algorithms: Vec<Algorithm>) -> Issuer {
    Issuer {
        issuer: tokens.issuer.as_str().into(),
        audience: Audience::OneOf(tokens.audience.clone()),
        algorithms,
        types: vec!["at+jwt".into()],
        clock_skew: tokens.clock_skew,
        // Not `lifetimes.access`: when that is lowered, the tokens from before live on, and their logins with them.
        max_lifetime: Lifetimes::MOST_ACCESS,
        require_subject: true,
        own: true,
    }
}

fn terms(tokens: &TokenSettings) -> KeyLifetimes {
    KeyLifetimes {
        algorithm: tokens.algorithm,
        lifetime: tokens.key_lifetime,
        ahead: tokens.key_ahead,
        access: tokens.lifetimes.access,
        clock_skew: tokens.clock_skew,
        idle: tokens.lifetimes.idle,
    }
}

fn alone(tokens: &TokenSettings, key: SigningKey) -> Result<Own, String> {
    let policy = Arc::new(own_policy(tokens, vec![key.algorithm]));
    let keys = Arc::new(verifying_keys([&key])?);
    Ok(Own::alone(TrustedIssuer { policy, keys }, key))
}

fn operators_key(tokens: &TokenSettings) -> Result<Option<SigningKey>, String> {
    let Some(path) = &tokens.signing_key_file else { return Ok(None) };
    let named = |fault: String| format!("{}: {fault}", path.display());
    let pem = fs::read(path).map_err(|error| named(error.to_string()))?;
    SigningKey::from_pem(&pem, tokens.algorithm).map(Some).map_err(named)
}
