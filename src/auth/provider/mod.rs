//! Identity providers (`[[provider]]`): what discovery says of them, and the signed tokens that they send.
//!
//! Their keys are kept as those of `[[issuer]]` are, and apart from them: a token of a provider is no Bearer token
//! unless an `[[issuer]]` says so.

mod metadata;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::auth::keyring::{KeyUser, RefetchOutcome, Source};
use crate::tokens::jwt::signed::{SignedToken, verify_signed};
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};

pub use metadata::{Metadata, Optional};
pub use settings::Provider;

/// Maximum characters of what is wrong with the endpoints of a provider, in the log.
const MAX_DETAIL: usize = 1_000;

/// The keys and documents of all providers. It outlives a reload.
#[derive(Default)]
pub struct Providers {
    sources: ArcSwap<Vec<Arc<Source>>>,
    /// What the log says of the endpoints of each provider, by its name. Each sign-in would repeat it.
    reported: Mutex<BTreeMap<Arc<str>, String>>,
}

impl KeyUser for Providers {
    fn sources(&self) -> Vec<Arc<Source>> {
        self.sources.load().to_vec()
    }

    fn replace_sources(&self, sources: Vec<Arc<Source>>) {
        self.sources.store(Arc::new(sources));
    }

    /// Each use reads the keys of its source.
    fn publish(&self) {}
}

impl Providers {
    /// The endpoints of a provider.
    ///
    /// # Errors
    /// 503 until its document is known here, and if it has no usable endpoints.
    pub fn metadata(&self, provider: &Provider) -> Result<Metadata, Reject> {
        let unavailable = |detail: String| Reject::new(Reason::ProviderUnavailable, detail);
        let document = self.source(provider)?.document();
        let document =
            document.ok_or_else(|| unavailable(format!("no discovery document of provider {} yet", provider.name)))?;
        match Metadata::read(&document, provider) {
            Ok(metadata) => {
                self.report(provider, &metadata.unusable, "unusable endpoints of a provider are left out");
                Ok(metadata)
            }
            Err(error) => {
                let wrong = error.to_string();
                let reject = unavailable(format!("provider {}: {wrong}", provider.name));
                self.report(provider, &[wrong], "no user can sign in at a provider without these endpoints");
                Err(reject)
            }
        }
    }

    /// As [`Providers::metadata`]. A gateway that has just started waits for its first fetch of the document.
    pub async fn first_metadata(&self, provider: &Provider, now: Uptime) -> Result<Metadata, Reject> {
        let source = self.source(provider)?;
        if source.document().is_none() {
            source.refetch(now).await;
        }
        self.metadata(provider)
    }

    /// Writes into the log what is wrong with the endpoints of a provider, when that has changed.
    fn report(&self, provider: &Provider, wrong: &[String], message: &'static str) {
        let detail: String = wrong.join("; ").chars().take(MAX_DETAIL).collect();
        let mut reported = self.reported.lock();
        let before = reported.insert(provider.name.clone(), detail.clone()).unwrap_or_default();
        if !detail.is_empty() && detail != before {
            tracing::warn!(provider = &*provider.name, detail, "{message}");
        }
    }

    /// Verifies the signature of a token that this provider has sent in a response. Asks for its keys once if the
    /// token's is unknown: without a cooldown, which strangers can begin (by logout tokens), and would end logins with.
    /// Asks within the cooldown if the signature is wrong: a provider can replace a key under the same `kid`, or
    /// without one.
    ///
    /// # Errors
    /// 503 if the keys cannot be asked for: the token may be good.
    pub async fn verify(&self, provider: &Provider, token: &str, now: Uptime) -> Result<SignedToken, Reject> {
        let source = self.source(provider)?;
        match verify_signed(token, &source.trusted()) {
            Err(unknown) if unknown.reason == Reason::UnknownKey => {}
            Err(bad) if bad.reason == Reason::BadSignature => {
                source.refetch(now).await;
                return verify_signed(token, &source.trusted());
            }
            verified => return verified,
        }
        let unavailable = |reject: Reject| match reject.reason {
            Reason::KeysUnavailable => Reject::new(Reason::ProviderUnavailable, reject.detail),
            _ => reject,
        };
        if source.refetch_unknown(now).await.map_err(unavailable)? == RefetchOutcome::CoolingDown {
            source.fetch_now();
            source.refetch_unknown(now).await.map_err(unavailable)?;
        }
        verify_signed(token, &source.trusted()).map_err(|still| unavailable(source.still_rejected(still)))
    }

    /// The keys of a provider.
    pub fn source(&self, provider: &Provider) -> Result<Arc<Source>, Reject> {
        let sources = self.sources.load();
        let found = sources.iter().find(|source| provider.has_source(source));
        // A reload that fails half way may leave a provider without one.
        found.cloned().ok_or_else(|| Reject::new(Reason::ProviderUnavailable, "the provider has no source of keys"))
    }
}
