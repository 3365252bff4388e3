//! The revision of the keyring, and the age of a source.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::sign::{SigningKey, generate_pem, verifying_keys};
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::tokens::jwt::{Algorithm, Audience, Confirmation, Issuer};
use crate::types::clock::Uptime;

const T0: Uptime = Uptime::from_secs(1_700_000_000);
const HOUR: Duration = Duration::from_hours(1);
const MILLI: Duration = Duration::from_millis(1);

fn signing_key() -> SigningKey {
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key")
}

fn set(keys: &[&SigningKey]) -> KeySet {
    let keys: Vec<_> = keys.iter().map(|key| key.public_jwk()).collect();
    KeySet::from_jwks(&json!({ "keys": keys }).to_string(), &[Algorithm::ES256]).expect("good keys")
}

fn policy(name: &str) -> Issuer {
    Issuer {
        issuer: name.into(),
        audience: Audience::Any,
        resources: Vec::new(),
        algorithms: vec![Algorithm::ES256],
        types: vec!["at+jwt".into()],
        clock_skew: Duration::ZERO,
        max_lifetime: HOUR,
        require_subject: true,
        confirmation: Confirmation::Reject,
        own: false,
    }
}

fn remote(on_stale: OnStale, startup: Startup) -> KeySource {
    KeySource::Remote(Box::new(Remote {
        location: Location::Jwks(SecureUrl::parse("https://a.example/keys", false).expect("a good URL")),
        allow_http: false,
        jwks_hosts: Vec::new(),
        ca_file: None,
        refresh: Duration::from_secs(60)..=Duration::from_secs(900),
        refetch_cooldown: Duration::from_secs(30),
        max_age: HOUR,
        on_stale,
        startup,
    }))
}

fn source(on_stale: OnStale, startup: Startup) -> Arc<Source> {
    Arc::new(Source::new(policy("https://a.example"), remote(on_stale, startup)))
}

fn keyring() -> Keyring {
    let signing = signing_key();
    let keys = Arc::new(verifying_keys([&signing]).expect("good"));
    let own = TrustedIssuer { policy: Arc::new(policy("https://own.example")), keys };
    Keyring::new(Keys::new(OwnIssuer::single_key(own, signing)))
}

fn keys_in_force(keyring: &Keyring) -> usize {
    keyring.keys().issuers.last().map_or(0, |issuer| issuer.keys.keys().len())
}

#[test]
fn the_revision_changes_only_if_a_key_or_policy_changes() {
    let a = signing_key();
    let b = signing_key();
    let keyring = keyring();
    let source = source(OnStale::Keep, Startup::Wait);
    let mut moved = {
        let mut before = keyring.revision();
        move |keyring: &Keyring| std::mem::replace(&mut before, keyring.revision()) != keyring.revision()
    };
    keyring.replace_sources(vec![source.clone()]);
    assert!(!moved(&keyring), "another issuer is added");
    let mut confirm = |keys: &[&SigningKey]| {
        let changed = source.confirm(set(keys), T0);
        if changed {
            keyring.publish();
        }
        (changed, moved(&keyring), keys_in_force(&keyring))
    };
    assert_eq!(confirm(&[&a]), (true, false, 1), "the first keys");
    assert_eq!(confirm(&[&a]), (false, false, 1), "the same again");
    assert_eq!(confirm(&[&b, &a]), (true, false, 2), "a key is added: a rotation begins");
    assert_eq!(confirm(&[&a, &b]), (false, false, 2), "in another order");
    assert_eq!(confirm(&[&b]), (true, true, 1), "a key is removed: its tokens are no longer valid");
    assert_eq!(confirm(&[&a]), (true, true, 1), "another key instead");

    let mut before = keyring.revision();
    let mut moved = || std::mem::replace(&mut before, keyring.revision()) != keyring.revision();
    let lenient = Source::new(Issuer { clock_skew: HOUR, ..policy("https://a.example") }, source.settings.clone());
    lenient.inherit_keys(&source);
    keyring.replace_sources(vec![Arc::new(lenient)]);
    assert!(moved(), "another policy");
    assert_eq!(keys_in_force(&keyring), 1, "the keys are inherited");
    keyring.replace_sources(Vec::new());
    assert!(moved(), "an issuer is removed");
}

/// After a reload, keys of another place must not stay in force.
#[test]
fn only_the_same_source_has_the_same_keys() {
    let of = |policy, settings| Source::new(policy, settings);
    let settings = || remote(OnStale::Keep, Startup::Wait);
    let one = of(policy("https://a.example"), settings());
    for (other, expected) in [
        (of(Issuer { clock_skew: HOUR, ..policy("https://a.example") }, settings()), true),
        (of(policy("https://b.example"), settings()), false),
        (of(Issuer { algorithms: vec![Algorithm::ES384], ..policy("https://a.example") }, settings()), false),
        (of(policy("https://a.example"), remote(OnStale::Reject, Startup::Wait)), false),
    ] {
        assert_eq!(one.has_same_keys(&other), expected, "{:?}", other.policy);
    }
}

#[test]
fn stale_keys_make_the_gateway_not_ready() {
    let key = signing_key();
    for (on_stale, kept) in [(OnStale::Keep, 1), (OnStale::Reject, 0)] {
        let keyring = keyring();
        let source = source(on_stale, Startup::Wait);
        keyring.replace_sources(vec![source.clone()]);
        source.confirm(set(&[&key]), T0);
        keyring.publish();
        let key_revision = keyring.revision();
        source.record_failure(&KeySourceError::fetch("the source is down"), Uptime::default());
        for (now, ready, keys) in [(T0 + HOUR, true, 1), (T0 + HOUR + MILLI, false, kept)] {
            if source.withdraw_if_stale(now) {
                keyring.publish();
            }
            assert_eq!(
                (keyring.not_ready(now).is_none(), keys_in_force(&keyring)),
                (ready, keys),
                "{on_stale:?} {now:?}"
            );
        }
        assert!(!source.withdraw_if_stale(T0 + HOUR + MILLI), "withdrawn once");
        assert_eq!(keyring.revision() > key_revision, kept == 0, "known tokens are checked again");
        // The source confirms the same keys.
        let changed = source.confirm_unchanged(T0 + 2 * HOUR);
        assert_eq!(changed, kept == 0);
        keyring.publish();
        assert_eq!((keyring.not_ready(T0 + 2 * HOUR), keys_in_force(&keyring)), (None, 1));
        assert_eq!(source.age(T0 + 3 * HOUR), Some(HOUR));
    }
}

#[test]
fn without_keys_readiness_depends_on_the_startup_setting() {
    for (startup, ready) in [(Startup::Wait, false), (Startup::Continue, true)] {
        let keyring = keyring();
        let source = source(OnStale::Keep, startup);
        keyring.replace_sources(vec![source.clone()]);
        assert_eq!(keyring.not_ready(T0).is_none(), ready);
        assert_eq!(source.blocks_startup(), !ready);
        source.confirm(set(&[&signing_key()]), T0);
        assert_eq!((keyring.not_ready(T0), source.blocks_startup()), (None, false));
    }
}
