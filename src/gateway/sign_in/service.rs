//! What all steps of a sign-in share: the settings, the providers and the broker.

use std::sync::Arc;

use http::Response;

use super::pages;
use super::paths::SIGN_IN;
use super::running::Running;
use super::settings::Settings;
use crate::broker::Broker;
use crate::broker::sign_in::{SignInProvider, SignInProviders};
use crate::gateway::context::RequestContext;
use crate::protocols::http::body::Body;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// Without any provider, no request reaches this.
pub struct SignIn {
    pub settings: Settings,
    pub providers: Arc<SignInProviders>,
    pub broker: Arc<Broker>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) running: Running,
}

impl SignIn {
    pub fn new(
        settings: Settings,
        providers: Arc<SignInProviders>,
        broker: Arc<Broker>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        SignIn { settings, providers, broker, clock, running: Running::default() }
    }

    /// A page for the user. The rejection is in the log and in the metrics, as every other one.
    pub(super) fn show(
        &self,
        reject: Reject,
        provider: Option<&str>,
        context: &mut RequestContext<'_>,
    ) -> Response<Body> {
        let again = provider.map(|provider| self.path_of(SIGN_IN, provider));
        let response = pages::failed(&reject, again.as_deref());
        context.record.rejected = Some(reject);
        response
    }

    /// The configured origin that the browser has asked for.
    pub(super) fn origin(&self, context: &RequestContext<'_>) -> Option<&str> {
        let host = context.record.host.as_ref()?.to_str().ok()?;
        self.settings.origin_of(host)
    }

    pub(super) fn own_origin(&self, context: &RequestContext<'_>) -> Result<&str, Reject> {
        self.origin(context).ok_or_else(|| Reject::new(Reason::SignInFailed, "Host is not in sign_in.external_urls"))
    }

    pub(super) fn provider(&self, name: &str) -> Result<&SignInProvider, Reject> {
        self.providers.named(name).ok_or_else(|| Reject::new(Reason::NoRoute, "there is no provider of this name"))
    }

    pub(super) fn path(&self, below: &str) -> String {
        format!("{}{below}", self.settings.paths.path)
    }

    pub(super) fn path_of(&self, below: &str, provider: &str) -> String {
        format!("{}{below}{provider}", self.settings.paths.path)
    }

    /// Returns true for a path where no sign-in may end.
    pub(super) fn is_own(&self, path: &str) -> bool {
        self.settings.paths.contain(path.as_bytes())
    }
}
