//! Sign-in for browsers at a provider, by OpenID Connect (authorization code with PKCE).
//!
//! [`SignIn::answer`] turns the 401 of a page load into a redirect to the provider; `start` does the same for a link.
//! `callback` checks what the browser brings back, in the order in which a lie costs least, and sets the cookie of the
//! login. `sign_out` ends it. `broker/sign_in/` talks to the provider and to the store.

mod attempt_cookies;
mod callback;
mod navigation;
mod pages;
mod parameters;
pub mod paths;
mod return_path;
mod running;
mod service;
mod settings;
mod sign_out;
mod start;
mod starts;

use http::{Request, Response, StatusCode};

use crate::gateway::context::RequestContext;
use crate::gateway::route_methods::matches_method;
use crate::gateway::route_table::RouteTable;
use crate::gateway::sign_in::navigation::{is_form, is_navigation};
use crate::gateway::sign_in::paths::SignInCall;
use crate::protocols::http::body::Body;
use crate::types::reject::{Reason, Reject};

pub(crate) use navigation::{is_of_other_site, is_part_of_page};
pub use parameters::OWN_PARAMETERS;
pub use service::SignIn;
pub use settings::{ExternalUrl, SignInSettings, is_host_of};

impl SignIn {
    /// One of the gateway's own paths.
    pub(super) async fn respond<B>(
        &self,
        call: SignInCall,
        request: &Request<B>,
        routes: &RouteTable,
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let outcome = match call {
            SignInCall::Start(provider) => self.link(&provider, request, routes, context).await,
            SignInCall::Callback(provider) => self.callback(&provider, request, context).await,
            SignInCall::SignOutPage => Ok(pages::sign_out(&self.path(paths::SIGN_OUT))),
            SignInCall::SignOut => self.sign_out(request, context).await,
            SignInCall::SignedOut => Ok(pages::signed_out()),
        };
        match outcome {
            Err(reject) if is_navigation(request.method(), request.headers()) => Ok(self.show(reject, None, context)),
            outcome => outcome,
        }
    }

    /// The response to a request without a login, on a route that asks for one: a redirect to the provider if the user
    /// sees it, or a page if that would lose a form. Otherwise the same rejection, which says where to sign in.
    ///
    /// A user sees a page, too, if the login cannot go on without its provider.
    pub(super) fn answer<B>(
        &self,
        reject: Reject,
        request: &Request<B>,
        routes: &RouteTable,
        context: &mut RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        if !context.source.kind.gets_responses() {
            return Err(reject);
        }
        // For a method that the route does not have, a sign-in would only lead to a 405.
        let route = context.route.clone().filter(|route| matches_method(route, request.method()));
        let provider = route.as_ref().and_then(|route| route.sign_in.as_deref());
        let is_shown = is_navigation(request.method(), request.headers());
        if provider.is_some() && is_shown && reject.reason == Reason::ProviderUnavailable {
            return Ok(self.show(reject, None, context));
        }
        let (Some(provider), true) = (provider, reject.reason.status() == StatusCode::UNAUTHORIZED) else {
            return Err(reject);
        };
        let Some(origin) = self.origin(context) else { return Err(reject) };
        // A client with a token of its own is no browser that signs in.
        let has_token = request.headers().contains_key(http::header::AUTHORIZATION);
        if !has_token && is_form(request.method(), request.headers()) {
            let path = self.link_from(provider, origin, request.headers(), routes);
            let response = pages::form_not_sent(&reject, &path);
            context.record.rejected = Some(reject);
            return Ok(response);
        }
        if has_token || !is_shown {
            let login_url = format!("{origin}{}", self.path_of(paths::SIGN_IN, provider));
            return Err(reject.with_login_url(&login_url));
        }
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let target = self.return_path(target, origin, routes);
        match self.start(provider, target, request, context) {
            Ok(redirect) => Ok(redirect),
            Err(failed) => Ok(self.show(failed, Some(&self.link_again(provider, target)), context)),
        }
    }
}
