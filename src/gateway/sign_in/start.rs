//! The way out: an attempt begins, and the browser goes to the provider. Nothing is stored, and an existing login stays
//! as it is.

use std::collections::BTreeMap;

use http::header::{REFERER, SET_COOKIE};
use http::{HeaderMap, Request, Response, StatusCode};

use super::attempt_cookies::{self, MAX_SEALED};
use super::navigation::{is_navigation, is_of_other_site};
use super::parameters::Authorization;
use super::return_path::path_of;
use super::service::SignIn;
use super::{paths, starts};
use crate::auth::bearer::session_cookie;
use crate::broker::sign_in::SignInProvider;
use crate::gateway::context::RequestContext;
use crate::gateway::route_table::RouteTable;
use crate::protocols::http::body::Body;
use crate::protocols::http::{parameters as form, respond};
use crate::tokens::sign_in::attempt::{self, Attempt};
use crate::tokens::sign_in::freshness::{Freshness, SignInRequest};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Maximum length of the page in a link, encoded, in bytes: `limits.uri_size` has 8 KiB by default.
const MAX_ENCODED: usize = 6 * 1024;

/// A new attempt, and what the browser gets of it.
struct Begun {
    attempt: Attempt,
    /// For the provider.
    state: String,
    /// The name of its cookies.
    name: String,
    sealed: String,
}

impl SignIn {
    /// `GET {path}/sign_in/{provider}`: a link of a page. Its parameter `return` is a path of the same origin, `prompt`
    /// and `max_age` ask for a new authentication, and `login_hint` and `ui_locales` are hints. Nothing else can be
    /// chosen by those who write links. A page of another site replaces no session by one that the provider gives
    /// without a question: it could be that of another user.
    pub(super) async fn link<B>(
        &self,
        provider: &str,
        request: &Request<B>,
        routes: &RouteTable,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        if !is_navigation(request.method(), request.headers()) {
            return Err(Reject::new(Reason::NoToken, "only a page load can be sent to a provider"));
        }
        let mut query = form::read(request.uri().query().unwrap_or_default()).unwrap_or_default();
        let wanted = query.remove("return").unwrap_or_else(|| "/".to_owned());
        let origin = self.own_origin(context)?;
        let target = self.return_path(&wanted, origin, routes);
        if is_of_other_site(request.headers()) && self.is_signed_in(provider, request.headers(), context).await? {
            let internal = || Reject::new(Reason::Internal, "the target is no header");
            return respond::redirect(StatusCode::SEE_OTHER, &format!("{origin}{target}")).ok_or_else(internal);
        }
        self.start_with(provider, target, &SignInRequest::of_link(&query), request, context)
    }

    /// Returns true if the browser has a session at this provider.
    async fn is_signed_in(
        &self,
        provider: &str,
        headers: &HeaderMap,
        context: &RequestContext<'_>,
    ) -> Result<bool, Reject> {
        let sessions = self.sessions(headers, context).await?;
        Ok(sessions.iter().any(|(_, login)| login.provider == provider))
    }

    /// The path of a link that signs the user in and leads to the page that the browser shows, if that is of this
    /// origin.
    pub(super) fn link_from(&self, provider: &str, origin: &str, headers: &HeaderMap, routes: &RouteTable) -> String {
        let page = headers.get(REFERER).and_then(|page| page.to_str().ok()?.strip_prefix(origin));
        self.link_to(provider, self.return_path(page.unwrap_or_default(), origin, routes))
    }

    /// The path of a link that begins a sign-in anew, after one that has failed.
    pub(super) fn link_again(&self, provider: &str, page: &str) -> String {
        match page {
            "/" => self.path_of(paths::SIGN_IN, provider),
            page => self.link_to(provider, page),
        }
    }

    /// The path of a link that signs the user in and leads to `page`.
    fn link_to(&self, provider: &str, page: &str) -> String {
        let page = if form::encode(page).len() > MAX_ENCODED { "/" } else { page };
        format!("{}?{}", self.path_of(paths::SIGN_IN, provider), form::write([("return", page)]))
    }

    /// `target`: where the browser comes back to, path and query of the same origin.
    pub(super) fn start<B>(
        &self,
        provider: &str,
        target: &str,
        request: &Request<B>,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        self.start_with(provider, target, &SignInRequest::default(), request, context)
    }

    /// As [`SignIn::start`], for a client that asks how new the authentication is. It replaces what the operator asks.
    /// A hint of the client does not.
    pub(crate) fn start_with<B>(
        &self,
        provider: &str,
        target: &str,
        wanted: &SignInRequest,
        request: &Request<B>,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let now = context.now;
        let headers = request.headers();
        let with = self.provider(provider)?;
        let origin = self.own_origin(context)?;
        let endpoint = with.metadata_to_start()?.authorization.text();
        let times = starts::count(headers, now)?;
        let internal = || Reject::new(Reason::Internal, "cannot make the cookie of a sign-in");
        let room = starts::room(request, self.max_head);
        let begun = self.begin(with, target, wanted.freshness, room, now);
        let Begun { attempt, state, name, sealed } = begun.ok_or_else(internal)?;
        let redirect_uri = format!("{origin}{}", self.path_of(paths::CALLBACK, provider));
        let hints = wanted.hints.parameters().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut parameters: BTreeMap<String, String> = hints.collect();
        parameters.extend(with.settings.parameters.clone());
        parameters.extend(wanted.freshness.parameter().map(|(name, value)| (name.to_owned(), value)));
        let authorization = Authorization {
            endpoint: &endpoint,
            client_id: &with.provider.client.client_id,
            redirect_uri: &redirect_uri,
            scopes: &with.settings.scopes,
            more: &parameters,
        };
        // Not 307: a browser would send the body of its request to the provider.
        let redirect = respond::redirect(StatusCode::FOUND, &authorization.url(&attempt, &state));
        let mut redirect = redirect.ok_or_else(internal)?;
        let surplus = starts::surplus(headers, &self.broker.roots, now, sealed.len(), room);
        let own = attempt_cookies::set(&name, &sealed).ok_or_else(internal)?;
        let starts = session_cookie::set_starts(&times).ok_or_else(internal)?;
        for cookie in surplus.into_iter().chain(own).chain([starts]) {
            redirect.headers_mut().append(SET_COOKIE, cookie);
        }
        Ok(redirect)
    }

    /// An attempt with as much of `target` as its cookies can have, in `room` bytes: quotes and backslashes take more
    /// than a byte. `/` is kept in any case.
    fn begin(
        &self,
        with: &SignInProvider,
        target: &str,
        freshness: Freshness,
        room: usize,
        now: UnixTime,
    ) -> Option<Begun> {
        [target, path_of(target), "/"].into_iter().find_map(|target| {
            let (attempt, state) = attempt::begin(&with.provider.name, &with.provider.issuer, target, freshness, now);
            let name = attempt::cookie_name(&state)?;
            let most = if target == "/" { MAX_SEALED } else { room };
            let sealed = attempt.seal(&name, &self.broker.roots).filter(|sealed| sealed.len() <= most)?;
            Some(Begun { attempt, state, name, sealed })
        })
    }
}
