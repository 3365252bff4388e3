//! The providers at which logins count: those of the active configuration, each with its issuer.

use arc_swap::ArcSwap;

use crate::tokens::jwt::SignedInAt;

/// Outlives a reload, as streams do. Without any, no login counts.
#[derive(Default)]
pub struct LoginProviders(ArcSwap<Vec<SignedInAt>>);

impl LoginProviders {
    pub fn replace(&self, providers: Vec<SignedInAt>) {
        self.0.store(providers.into());
    }

    /// Returns false for a login at a provider that a reload has removed, or given another issuer.
    pub fn accept(&self, login: &SignedInAt) -> bool {
        self.0.load().contains(login)
    }
}
