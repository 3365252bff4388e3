//! The gateway as an issuer: which of its keys signs, which verify, and which are published.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::error::OwnKeysError;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::key_set::KeySet;
use crate::tokens::jwt::sign::SigningKey;
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::tokens::jwt::{Algorithm, Issuer, PublicKey};
use crate::tokens::signing::file_key::use_beside;
use crate::tokens::signing::schedule::{Use, use_of};
use crate::tokens::signing::{KeyLifetimes, StoredKey, seal};
use crate::types::clock::UnixTime;

#[derive(Clone)]
pub struct OwnIssuer {
    /// The keys that verify access tokens everywhere.
    pub trusted: TrustedIssuer,
    /// The keys that verify the bearer token of a refresh. This includes keys that have no unexpired token
    /// any more.
    pub at_refresh: Arc<KeySet>,
    pub signing: Arc<SigningKey>,
    /// The body of `/.well-known/jwks.json`.
    pub published: Value,
    /// How long services may cache that body.
    pub max_age: Duration,
}

impl OwnIssuer {
    /// One key, which is never rotated.
    pub fn single_key(trusted: TrustedIssuer, signing: impl Into<Arc<SigningKey>>) -> Self {
        let signing = signing.into();
        OwnIssuer {
            at_refresh: trusted.keys.clone(),
            trusted,
            published: json!({ "keys": [signing.public_jwk()] }),
            signing,
            max_age: Duration::from_mins(10),
        }
    }

    /// The keys of the store, newest first, each with its use at `now`. The algorithms of `policy` are those that a key
    /// may have. `in_file`: the key in `tokens.signing_key_file`, which signs whatever the store says, and verifies
    /// unless the store has it as revoked.
    pub fn from_stored(
        policy: &Issuer,
        keys: &[StoredKey],
        roots: &Roots,
        lifetimes: &KeyLifetimes,
        in_file: Option<Arc<SigningKey>>,
        now: UnixTime,
    ) -> Result<Self, OwnKeysError> {
        let used = |key: &StoredKey| match &in_file {
            Some(own) => use_beside(&own.kid, key, lifetimes, now),
            None => use_of(key, lifetimes, now),
        };
        let new = in_file.as_ref().filter(|own| !keys.iter().any(|key| key.kid == own.kid));
        let mut signing = in_file.clone();
        let mut verifying = Vec::new();
        let mut at_refreshes = Vec::new();
        verifying.extend(new.map(|own| own.public()));
        for (key, key_use) in keys.iter().map(|key| (key, used(key))) {
            let public = match key_use {
                Use::Nothing => continue,
                Use::Sign if in_file.is_none() => {
                    let opened = Arc::new(seal::open(key, roots).map_err(OwnKeysError::key)?);
                    let public = opened.public();
                    signing.get_or_insert(opened);
                    public
                }
                _ => seal::open_public(key, roots).map_err(OwnKeysError::key)?,
            };
            if key_use >= Use::Verify { &mut verifying } else { &mut at_refreshes }.push(public);
        }
        let signing = signing.ok_or(OwnKeysError::NoSigningKey)?;
        let revoked = |at_most: Use| {
            let gone = keys.iter().filter(|key| key.revoked_at.is_some() && used(key) <= at_most);
            gone.map(|key| key.kid.clone()).collect()
        };
        let policy = Issuer { algorithms: algorithms_of(policy, &verifying), ..policy.clone() };
        let published = json!({ "keys": verifying.iter().map(|key| &key.jwk).collect::<Vec<_>>() });
        let set = |keys: &[PublicKey]| PublicKey::set(keys).map_err(OwnKeysError::key);
        let verify_everywhere = set(&verifying)?.with_revoked(revoked(Use::RefreshOnly));
        verifying.append(&mut at_refreshes);
        Ok(OwnIssuer {
            published,
            at_refresh: Arc::new(set(&verifying)?.with_revoked(revoked(Use::Nothing))),
            trusted: TrustedIssuer { keys: Arc::new(verify_everywhere), policy: Arc::new(policy) },
            signing,
            max_age: lifetimes.max_age(),
        })
    }
}

/// Each algorithm once and in a fixed order, so that another key of the same algorithm leaves the policy unchanged.
fn algorithms_of(policy: &Issuer, keys: &[PublicKey]) -> Vec<Algorithm> {
    let has_a_key = |algorithm: &&Algorithm| keys.iter().any(|key| key.algorithm == **algorithm);
    policy.algorithms.iter().filter(has_a_key).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::jwt::sign::generate_pem;
    use crate::tokens::jwt::{Audience, Confirmation};
    use crate::types::secret::Secret;

    #[test]
    fn only_algorithms_of_keys_that_verify_are_accepted() {
        let now = UnixTime::from_secs(1_700_000_000);
        let roots = Roots::new((1, Secret::new(vec![7; 32])), vec![]);
        let hour = Duration::from_hours(1);
        let policy = Issuer {
            issuer: "https://gateway.example".into(),
            audience: Audience::Any,
            resources: Vec::new(),
            algorithms: vec![Algorithm::EdDSA, Algorithm::ES256, Algorithm::RS256],
            types: Vec::new(),
            clock_skew: Duration::ZERO,
            max_lifetime: hour,
            require_subject: true,
            confirmation: Confirmation::Reject,
            own: true,
        };
        let key = |algorithm: Algorithm, activated_at| {
            let pem = generate_pem(algorithm).expect("a key");
            let kid = SigningKey::from_pem(pem.expose(), algorithm).expect("its own key").kid;
            let (root, sealed) = seal::seal(&kid, &pem, &roots).expect("sealed");
            let algorithm = crate::tokens::jwt::algorithm_name(algorithm).to_owned();
            let retired_at = None;
            let revoked_at = None;
            StoredKey {
                kid,
                algorithm,
                root,
                sealed,
                created_at: now,
                activated_at,
                retired_at,
                revoked_at,
                token_life: hour,
            }
        };
        let keys = [key(Algorithm::EdDSA, None), key(Algorithm::ES256, Some(now))];
        let skew = Duration::ZERO;
        let day = 24 * hour;
        let lifetimes = KeyLifetimes {
            algorithm: Algorithm::ES256,
            lifetime: 90 * day,
            ahead: day,
            access: hour,
            clock_skew: skew,
            idle: day,
        };
        let own = OwnIssuer::from_stored(&policy, &keys, &roots, &lifetimes, None, now).expect("a key signs");
        assert_eq!(own.trusted.policy.algorithms, [Algorithm::EdDSA, Algorithm::ES256]);
    }
}
