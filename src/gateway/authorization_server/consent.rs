//! The consent page: finds the user of the browser, or sends it to a provider first, and shows who asks for what.

use http::{HeaderMap, Request, Response};

use super::clients::AskingClient;
use super::pages::{self, Question};
use super::{AuthorizationCall, browser_cookie};
use crate::gateway::sign_in::paths;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::request::{RequestError, SignInWish};
use crate::tokens::family::Family;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// `GET`: the page, a redirect to a provider, or an answer if the client wants the user not to be asked.
    pub(super) async fn show_consent<B>(&mut self, request: &Request<B>) -> Result<Response<Body>, Reject> {
        self.check_host()?;
        let query = parameters::read(request.uri().query().unwrap_or_default());
        let sealed = query.ok().and_then(|mut query| query.remove("request")).unwrap_or_default();
        let pending = self.pending(&sealed, request.headers())?;
        let session = self.session(request.headers(), &pending).await?;
        let is_silent = pending.request.sign_in == SignInWish::Silent;
        let Some(session) = session else {
            if is_silent {
                return self.answer_error(&pending, RequestError::new("login_required", "the user is not signed in"));
            }
            return self.begin_sign_in(&sealed, request);
        };
        let client = self.client_of(&pending)?;
        if client.skips_consent {
            return self.allow(&pending, &session);
        }
        if is_silent {
            return self.answer_error(&pending, RequestError::new("consent_required", "the user must be asked"));
        }
        Ok(self.page(&client, &pending, &sealed, &session))
    }

    /// The request that a browser began here, within ten minutes.
    pub(super) fn pending(&self, sealed: &str, headers: &HeaderMap) -> Result<PendingRequest, Reject> {
        let opened = PendingRequest::open(sealed, &self.sign_in.broker.roots);
        let pending = opened.ok_or_else(|| Reject::new(Reason::ConsentStale, "this is no request of the gateway"))?;
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

    /// The client as it is now: the operator may have removed it, or changed its redirect URIs.
    pub(super) fn client_of<'s>(&'s self, pending: &'s PendingRequest) -> Result<AskingClient<'s>, Reject> {
        let client = self.client(&pending.client_id);
        let client = client.ok_or_else(|| Reject::new(Reason::UnknownClient, "the client was removed meanwhile"))?;
        if client.target(pending.request.redirect_uri.as_str()).is_none() {
            return Err(Reject::new(Reason::RedirectMismatch, "the redirect URI was removed meanwhile"));
        }
        Ok(client)
    }

    /// The live session of this browser at one of the providers, if it is as new as the client wants.
    pub(super) async fn session(
        &self,
        headers: &HeaderMap,
        pending: &PendingRequest,
    ) -> Result<Option<Family>, Reject> {
        for (family, login) in self.sign_in.sessions(headers, self.context).await? {
            let is_of_provider = self.settings.providers.iter().any(|provider| **provider == *login.provider);
            if is_of_provider && self.is_new_enough(&family, pending) {
                return Ok(Some(family));
            }
        }
        Ok(None)
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

    /// Sends the browser to the only provider, or lets the user choose one. It comes back to this page.
    fn begin_sign_in<B>(&self, sealed: &str, request: &Request<B>) -> Result<Response<Body>, Reject> {
        let target = self.consent_path(sealed);
        if let [provider] = &*self.settings.providers {
            return self.sign_in.start(provider, &target, request, self.context);
        }
        let link = |provider: &str| {
            let path = self.sign_in.path_of(paths::SIGN_IN, provider);
            format!("{path}?{}", parameters::write([("return", &*target)]))
        };
        let links: Vec<_> = self.settings.providers.iter().map(|provider| (&**provider, link(provider))).collect();
        Ok(pages::providers(&links))
    }

    pub(super) fn page(
        &self,
        client: &AskingClient<'_>,
        pending: &PendingRequest,
        sealed: &str,
        session: &Family,
    ) -> Response<Body> {
        let text_of = |name: &String| {
            let known = self.settings.scope(name).and_then(|scope| scope.text.clone());
            known.unwrap_or_else(|| name.clone())
        };
        let scopes = self.grantable(pending, session);
        pages::consent(&Question {
            client_id: client.id,
            known_by: &client.known_by,
            redirect_uri: &pending.request.redirect_uri,
            resources: &pending.request.resources,
            scopes: scopes.iter().map(text_of).collect(),
            user: name_of(session),
            lifetime: self.settings.grant_lifetime,
            action: &self.settings.consent_page,
            sign_out: &self.sign_in.path(paths::SIGN_OUT),
            request: sealed,
            session: session.id.to_string(),
        })
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
}

/// How the user knows the session: by the most familiar claim.
fn name_of(session: &Family) -> &str {
    let claims = ["email", "preferred_username", "name"];
    let named = claims.iter().find_map(|claim| session.claims.get(*claim)?.as_str());
    named.unwrap_or(&session.subject)
}
