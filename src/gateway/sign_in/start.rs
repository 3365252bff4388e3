//! The way out: an attempt begins, and the browser goes to the provider. Nothing is stored, and an existing login stays
//! as it is.

use http::header::SET_COOKIE;
use http::{HeaderMap, Request, Response, StatusCode};

use super::navigation::is_navigation;
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
    /// else can be chosen by those who write links.
    pub(super) fn link<B>(
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
        self.start(provider, &target, request.headers(), context)
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
