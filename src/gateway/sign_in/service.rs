//! The parts that all steps of a sign-in share: the settings, the providers and the broker.
//!
//! The steps are methods of [`SignIn`] in `start.rs`, `callback.rs` and `sign_out.rs`. `mod.rs` chooses among them, and
//! none calls back into one that calls it.

use std::sync::Arc;

use http::{HeaderMap, Method, Response};

use super::pages;
use super::return_path::ReturnPaths;
use super::running::Running;
use super::settings::SignInSettings;
use crate::auth::bearer::session_cookie;
use crate::broker::Broker;
use crate::broker::sign_in::{SignInProvider, SignInProviders};
use crate::gateway::context::RequestContext;
use crate::gateway::route_table::RouteTable;
use crate::protocols::http::body::Body;
use crate::protocols::http::path;
use crate::store::ProviderLogin;
use crate::tokens::family::Family;
use crate::tokens::family::handle::PresentedHandle;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// Without any provider, no request reaches this.
pub struct SignIn {
    pub settings: SignInSettings,
    pub providers: Arc<SignInProviders>,
    pub broker: Arc<Broker>,
    /// `limits.request_header_size`, in bytes.
    pub max_head: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) running: Running,
}

impl SignIn {
    pub fn new(
        settings: SignInSettings,
        providers: Arc<SignInProviders>,
        broker: Arc<Broker>,
        max_head: usize,
        clock: Arc<dyn Clock>,
    ) -> Self {
        SignIn { settings, providers, broker, max_head, clock, running: Running::default() }
    }

    /// A page for the user. The rejection is in the log and in the metrics, as every other one. `again`: the path of a
    /// link to sign in.
    pub(super) fn show(&self, reject: Reject, again: Option<&str>, context: &mut RequestContext<'_>) -> Response<Body> {
        let response = pages::failed(&reject, again);
        context.record.rejected = Some(reject);
        response
    }

    /// Where a browser comes back to that wants to go to `target`: that path of this origin, or `/`.
    pub(super) fn return_path<'t>(&self, target: &'t str, origin: &str, routes: &RouteTable) -> &'t str {
        let host = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        let is_own = |path: &str| self.settings.paths.contain(&path::decode(path.as_bytes()));
        let is_routed = |path: &str| routes.find_loosened(host, &Method::GET, path).is_some();
        ReturnPaths { is_own: &is_own, is_routed: &is_routed }.accepted(target)
    }

    /// Returns true if this session is live, and its provider is configured with the issuer that it began at.
    fn has(&self, family: &Family, login: &ProviderLogin, context: &RequestContext<'_>) -> bool {
        family.is_live(context.now) && self.providers.of(family, login).is_some()
    }

    /// The live sessions of a browser, with their logins. Each look-up counts for the address.
    pub(crate) async fn sessions(
        &self,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<Vec<(Family, ProviderLogin)>, Reject> {
        let mut live = Vec::new();
        for presented in presented(headers) {
            self.broker.throttle.count_call(context.client())?;
            if let Some((family, login)) = self.broker.login_of(&presented).await?
                && self.has(&family, &login, context)
            {
                live.push((family, login));
            }
        }
        Ok(live)
    }

    /// The configured origin that the browser has asked for.
    pub(crate) fn origin(&self, context: &RequestContext<'_>) -> Option<&str> {
        let host = context.record.host.as_ref()?.to_str().ok()?;
        self.settings.origin_of(host)
    }

    pub(super) fn own_origin(&self, context: &RequestContext<'_>) -> Result<&str, Reject> {
        self.origin(context).ok_or_else(|| Reject::new(Reason::SignInFailed, "Host is not in sign_in.external_urls"))
    }

    pub(super) fn provider(&self, name: &str) -> Result<&SignInProvider, Reject> {
        self.providers.named(name).ok_or_else(|| Reject::new(Reason::NoRoute, "there is no provider of this name"))
    }

    pub(crate) fn path(&self, below: &str) -> String {
        format!("{}{below}", self.settings.paths.path)
    }

    pub(crate) fn path_of(&self, below: &str, provider: &str) -> String {
        format!("{}{below}{provider}", self.settings.paths.path)
    }
}

/// The well-formed handles of a request.
pub(super) fn presented(headers: &HeaderMap) -> impl Iterator<Item = PresentedHandle> {
    session_cookie::handles(headers).filter_map(|handle| PresentedHandle::parse(str::from_utf8(handle).ok()?))
}
