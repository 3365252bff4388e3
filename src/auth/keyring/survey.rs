//! The algorithms of an issuer's keys, for a new configuration.

use std::sync::Arc;
use std::time::Duration;

use super::error::KeySourceError;
use super::remote::KeySourceClient;
use super::settings::{Location, OnStale, Remote, Startup};
use crate::protocols::url::SecureUrl;
use crate::tokens::jwt::{ALGORITHMS, Algorithm, Audience, Confirmation, Issuer, is_hmac};

/// A key without `alg` can have one of these. An RSA key is then for RS256, as RFC 7518 section 3.1 recommends.
const USUAL: [Algorithm; 4] = [Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA, Algorithm::RS256];

/// Fetches the keys of `issuer` by its discovery document, with the rules of `discover = true`. Returns their
/// algorithms. `urls`: see [`SecureUrl::well_known`].
pub async fn algorithms(issuer: &str, urls: &[SecureUrl; 2]) -> Result<Vec<Algorithm>, KeySourceError> {
    let public = ALGORITHMS.iter().map(|(_, algorithm)| *algorithm).filter(|algorithm| !is_hmac(*algorithm));
    let public: Vec<Algorithm> = public.collect();
    let mut found = Vec::new();
    let mut failed = None;
    for allowed in [USUAL.to_vec(), public.clone()] {
        match client(issuer, urls, allowed).fetch(false).await {
            Ok(fetched) => found.extend(fetched.keys.iter().flat_map(|set| set.keys()).map(|key| key.algorithm)),
            // It has no key of these algorithms.
            Err(error @ KeySourceError::Keys { .. }) => failed = Some(error),
            Err(error) => return Err(error),
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(public.into_iter().filter(|algorithm| found.contains(algorithm)).collect()),
    }
}

fn client(issuer: &str, urls: &[SecureUrl; 2], algorithms: Vec<Algorithm>) -> KeySourceClient {
    let remote = Remote {
        location: Location::Discovery(urls.clone()),
        allow_http: false,
        jwks_hosts: Vec::new(),
        ca_file: None,
        refresh: Duration::ZERO..=Duration::MAX,
        refetch_cooldown: Duration::ZERO,
        max_age: Duration::MAX,
        on_stale: OnStale::Keep,
        startup: Startup::Continue,
    };
    let policy = Issuer {
        issuer: issuer.into(),
        audience: Audience::Any,
        resources: Vec::new(),
        algorithms,
        types: Vec::new(),
        clock_skew: Duration::ZERO,
        max_lifetime: Duration::ZERO,
        require_subject: true,
        confirmation: Confirmation::Reject,
        own: false,
    };
    KeySourceClient::new(remote, Arc::new(policy))
}
