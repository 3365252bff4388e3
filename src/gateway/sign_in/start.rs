//! The way out: an attempt begins, and the browser goes to the provider. Nothing is stored, and an existing login stays
//! as it is.

use http::header::{REFERER, SET_COOKIE};
use http::{HeaderMap, Request, Response, StatusCode};

use super::callback::presented;
use super::navigation::{is_navigation, is_of_other_site};
use super::parameters::Authorization;
use super::service::SignIn;
use super::{pages, paths, return_path, starts};
use crate::auth::bearer::session_cookie;
use crate::gateway::context::RequestContext;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters as form;
use crate::tokens::sign_in::attempt;
use crate::types::reject::{Reason, Reject};

impl SignIn {
    /// `GET {path}/sign_in/{provider}`: a link of a page. Its parameter `return` is a path of the same origin. Nothing
    /// else can be chosen by those who write links. A page of another site replaces no session by one that the provider
    /// gives without a question: it could be that of another user.
    pub(super) async fn link<B>(
        &self,
        provider: &str,
        request: &Request<B>,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        if !is_navigation(request.method(), request.headers()) {
            return Err(Reject::new(Reason::NoToken, "only a page load can be sent to a provider"));
        }
        let query = form::read(request.uri().query().unwrap_or_default());
        let target = query.ok().and_then(|mut query| query.remove("return")).unwrap_or_else(|| "/".to_owned());
        if is_of_other_site(request.headers()) && self.is_signed_in(provider, request.headers(), context).await? {
            let origin = self.own_origin(context)?;
            let target = format!("{origin}{}", return_path::accepted(&target, |path| self.is_own(path)));
            let internal = || Reject::new(Reason::Internal, "the target is no header");
            return pages::redirect(StatusCode::SEE_OTHER, &target).ok_or_else(internal);
        }
        self.start(provider, &target, request.headers(), context)
    }

    /// Returns true if the browser has a session at this provider.
    async fn is_signed_in(
        &self,
        provider: &str,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<bool, Reject> {
        for presented in presented(headers) {
            self.broker.throttle.count_call(context.client())?;
            let found = self.broker.login_of(&presented).await?;
            if found.is_some_and(|(family, login)| family.is_live(context.now) && login.provider == provider) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The path of a link from which the browser comes back to the page that it shows, if that is of this origin.
    pub(super) fn sign_in_from(&self, provider: &str, origin: &str, headers: &HeaderMap) -> String {
        let page = headers.get(REFERER).and_then(|page| page.to_str().ok()?.strip_prefix(origin));
        let page = return_path::accepted(page.unwrap_or_default(), |path| self.is_own(path));
        let query = form::write([("return", page)]);
        format!("{}?{query}", self.path_of(paths::SIGN_IN, provider))
    }

    /// `target`: where the browser comes back to, if that is a path of the same origin.
    pub(super) fn start(
        &self,
        provider: &str,
        target: &str,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let (with, origin, now) = (self.provider(provider)?, self.own_origin(context)?, context.now);
        let endpoint = with.metadata_to_start()?.authorization.text();
        let times = starts::count(headers, now)?;
        let target = return_path::accepted(target, |path| self.is_own(path));
        let (attempt, state) = attempt::begin(provider, &with.provider.issuer, target, now);
        let internal = || Reject::new(Reason::Internal, "cannot make the cookie of a sign-in");
        let name = attempt::cookie_name(&state).ok_or_else(internal)?;
        let sealed = attempt.seal(&name, &self.broker.roots).ok_or_else(internal)?;
        let redirect_uri = format!("{origin}{}", self.path_of(paths::CALLBACK, provider));
        let authorization = Authorization {
            endpoint: &endpoint,
            client_id: &with.provider.client.client_id,
            redirect_uri: &redirect_uri,
            scopes: &with.settings.scopes,
            more: &with.settings.parameters,
        };
        // Not 307: a browser would send the body of its request to the provider.
        let redirect = pages::redirect(StatusCode::FOUND, &authorization.url(&attempt, &state));
        let mut redirect = redirect.ok_or_else(internal)?;
        let cookies = redirect.headers_mut();
        for surplus in starts::surplus(headers, &self.broker.roots, now) {
            cookies.append(SET_COOKIE, surplus);
        }
        cookies.append(SET_COOKIE, session_cookie::set(&name, &sealed, starts::AGE).ok_or_else(internal)?);
        cookies.append(SET_COOKIE, session_cookie::set_starts(&times).ok_or_else(internal)?);
        Ok(redirect)
    }
}
