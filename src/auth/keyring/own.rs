//! The gateway's own part of a snapshot: which of its keys signs, which verify, and which are published.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::sign::{SigningKey, verifying_keys};
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::tokens::jwt::{Algorithm, Issuer};
use crate::tokens::signing::schedule::{Use, use_of};
use crate::tokens::signing::{KeyLifetimes, StoredKey, seal};
use crate::types::clock::UnixTime;

#[derive(Clone)]
pub struct Own {
    /// What verifies everywhere.
    pub trusted: TrustedIssuer,
    /// What verifies the Bearer of a refresh: also keys whose last token has expired.
    pub at_refresh: Arc<KeySet>,
    pub signing: Arc<SigningKey>,
    /// The body of `/.well-known/jwks.json`.
    pub published: Value,
    /// How long others may keep it.
    pub max_age: Duration,
}

impl Own {
    /// One key, which nobody rotates.
    pub fn alone(trusted: TrustedIssuer, signing: SigningKey) -> Self {
        Own {
            at_refresh: trusted.keys.clone(),
            trusted,
            published: json!({ "keys": [signing.public_jwk()] }),
            signing: Arc::new(signing),
            max_age: Duration::from_mins(10),
        }
    }

    /// Those of the store, newest first, as they are to be used at `now`. `policy` says everything but the algorithms.
    pub fn stored(
        policy: &Issuer,
        keys: &[StoredKey],
        roots: &Roots,
        terms: &KeyLifetimes,
        now: UnixTime,
    ) -> Result<Self, String> {
        let (mut signing, mut verifying, mut refreshing) = (None, Vec::new(), Vec::new());
        for (key, good_for) in keys.iter().map(|key| (key, use_of(key, terms, now))) {
            if good_for == Use::Nothing {
                continue;
            }
            let opened = Arc::new(seal::open(key, roots)?);
            refreshing.push(opened.clone());
            if good_for >= Use::Verify {
                verifying.push(opened.clone());
            }
            if good_for == Use::Sign {
                signing.get_or_insert(opened);
            }
        }
        let signing = signing.ok_or("the store has no signing key")?;
        let revoked = |good_for: Use| {
            let gone = keys.iter().filter(move |key| key.revoked_at.is_some() && use_of(key, terms, now) <= good_for);
            gone.map(|key| key.kid.clone()).collect()
        };
        let policy = Issuer { algorithms: algorithms_of(policy, &verifying), ..policy.clone() };
        let set = |keys: &[Arc<SigningKey>]| verifying_keys(keys.iter().map(|key| &**key));
        Ok(Own {
            published: json!({ "keys": verifying.iter().map(|key| key.public_jwk()).collect::<Vec<_>>() }),
            at_refresh: Arc::new(set(&refreshing)?.with_revoked(revoked(Use::Nothing))),
            trusted: TrustedIssuer {
                keys: Arc::new(set(&verifying)?.with_revoked(revoked(Use::RefreshOnly))),
                policy: Arc::new(policy),
            },
            signing,
            max_age: terms.max_age(),
        })
    }
}

/// Each once and in one order, so that a key more of the same algorithm leaves the policy as it is.
fn algorithms_of(policy: &Issuer, keys: &[Arc<SigningKey>]) -> Vec<Algorithm> {
    let has_a_key = |algorithm: &&Algorithm| keys.iter().any(|key| key.algorithm == **algorithm);
    policy.algorithms.iter().filter(has_a_key).copied().collect()
}
