//! What a user grants: the request, the session of the browser, the scopes, and the code.

use http::header::ORIGIN;
use http::{HeaderMap, Request, Response};

use super::call::{AuthorizationCall, redirect};
use super::{browser_cookie, pages};
use crate::gateway::authorization_counts::Consent;
use crate::gateway::oauth::metadata;
use crate::gateway::sign_in::{is_of_other_site, is_part_of_page, paths};
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::code::{AuthorizationCode, Granted};
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::request::SignInWish;
use crate::tokens::family::Family;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// The request that a browser began here, within ten minutes.
    pub(super) fn pending(&mut self, sealed: &str, headers: &HeaderMap) -> Result<PendingRequest, Reject> {
        let opened = PendingRequest::open(sealed, &self.sign_in.broker.roots);
        let pending = opened.ok_or_else(|| Reject::new(Reason::ConsentStale, "this is no request of the gateway"))?;
        let asked = &pending.request;
        self.keep_request(Some(&pending.client_id), Some(asked.redirect_uri.as_str()), &asked.resources);
        if !pending.is_current(self.context.now) {
            return Err(Reject::new(Reason::ConsentStale, "the request is older than 10 minutes"));
        }
        if !browser_cookie::is_there(headers, &pending) {
            let detail = if browser_cookie::has_none(headers) {
                "the browser has sent no cookie"
            } else {
                "the browser has the cookie of another request, or another browser began this one"
            };
            return Err(Reject::new(Reason::ConsentCookie, detail));
        }
        Ok(pending)
    }

    /// The live session of this browser at one of the providers, if it is as new as the client wants.
    pub(super) async fn session(
        &self,
        headers: &HeaderMap,
        pending: &PendingRequest,
    ) -> Result<Option<Family>, Reject> {
        let sessions = self.sessions(headers).await?;
        Ok(sessions.into_iter().find(|family| self.is_new_enough(family, pending)))
    }

    /// The live sessions of this browser at one of the providers. There is one, unless another site has set a cookie.
    pub(super) async fn sessions(&self, headers: &HeaderMap) -> Result<Vec<Family>, Reject> {
        let mut sessions = Vec::new();
        for (family, login) in self.sign_in.sessions(headers, self.context).await? {
            if self.settings.providers.iter().any(|provider| **provider == *login.provider) {
                sessions.push(family);
            }
        }
        Ok(sessions)
    }

    /// Sends the browser to the only provider, or lets the user choose one. It comes back to `target`. `wish`: how new
    /// the session has to be.
    ///
    /// If the browser has a session, a new one ends it. Another site must not cause that without the user: the page has
    /// a link to itself.
    pub(super) async fn begin_sign_in<B>(
        &self,
        target: &str,
        wish: SignInWish,
        request: &Request<B>,
    ) -> Result<Response<Body>, Reject> {
        let headers = request.headers();
        if is_of_other_site(headers) && !self.sign_in.sessions(headers, self.context).await?.is_empty() {
            return Ok(pages::sign_in_again(target));
        }
        if let [provider] = &*self.settings.providers {
            let more = match wish {
                SignInWish::Any | SignInWish::Silent => None,
                SignInWish::Anew => Some(("prompt", "login".to_owned())),
                SignInWish::Within(seconds) => Some(("max_age", seconds.to_string())),
            };
            return self.sign_in.start_with(provider, target, more, request, self.context);
        }
        let link = |provider: &str| {
            let path = self.sign_in.path_of(paths::SIGN_IN, provider);
            format!("{path}?{}", parameters::write([("return", target)]))
        };
        let links: Vec<_> = self.settings.providers.iter().map(|provider| (&**provider, link(provider))).collect();
        Ok(pages::providers(&links))
    }

    /// A script or an image of a page of this host is no user that reads a page.
    pub(super) fn check_navigation(&self, headers: &HeaderMap) -> Result<(), Reject> {
        if is_part_of_page(headers) {
            return Err(Reject::new(Reason::BadAuthorization, "Sec-Fetch-Mode is not navigate"));
        }
        Ok(())
    }

    /// A form of another site has the cookies of the user as well.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Reject> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_own = origins.next().is_some_and(|origin| *origin == *metadata::base(self.issuer));
        if !is_own || origins.next().is_some() {
            return Err(Reject::new(Reason::Csrf, "Origin is not that of tokens.issuer"));
        }
        let site = headers.get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin") {
            return Err(Reject::new(Reason::Csrf, "Sec-Fetch-Site is not same-origin"));
        }
        Ok(())
    }

    fn is_new_enough(&self, family: &Family, pending: &PendingRequest) -> bool {
        // The date of a login is earlier than its time by what the clocks can be wrong.
        let is_after_request = family.created_at + self.context.clock.uncertainty() >= pending.begun_at();
        match pending.request.sign_in {
            SignInWish::Any | SignInWish::Silent => true,
            SignInWish::Anew => is_after_request,
            SignInWish::Within(seconds) => {
                is_after_request || self.context.now.since(family.created_at).as_secs() < seconds
            }
        }
    }

    /// The scopes that this user can grant: those of the user's own session, and those of `[[oauth.scope]]` for which
    /// the session has the claim. A client never gets more than its user has.
    pub(super) fn grantable(&self, pending: &PendingRequest, session: &Family) -> Vec<String> {
        let own: Vec<&str> = session.scope.split(' ').collect();
        let is_grantable = |name: &&String| {
            let by_rule = self.settings.scope(name).is_some_and(|scope| {
                scope.claim.as_ref().is_none_or(|claim| claim.violation(&session.claims).is_none())
            });
            by_rule || own.contains(&name.as_str())
        };
        pending.request.scopes.iter().filter(is_grantable).cloned().collect()
    }

    /// Answers with a code. `consent`: whether the user was asked.
    pub(super) fn allow(
        &mut self,
        pending: &PendingRequest,
        session: &Family,
        label: String,
        consent: Consent,
    ) -> Result<Response<Body>, Reject> {
        let granted = Granted { scope: self.grantable(pending, session).join(" "), session: session.id, label };
        let code = AuthorizationCode::new(pending, granted, self.context.now);
        let code = code.seal(&self.sign_in.broker.roots);
        let code = code.ok_or_else(|| Reject::new(Reason::Internal, "there is no root secret"))?;
        self.context.record.token_id = Some(pending.id);
        self.consent = Some(consent);
        let state = pending.request.state.as_deref().map(|state| ("state", state));
        let answer = [("code", &*code)].into_iter().chain(state).chain([("iss", self.issuer)]);
        redirect(&pending.request.redirect_uri.with_query(&parameters::write(answer)))
    }
}
