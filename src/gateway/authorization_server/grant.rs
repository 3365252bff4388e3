//! What a user grants: the request, the scopes, and the code.

use http::header::ORIGIN;
use http::{HeaderMap, Response};

use super::browser_cookie;
use super::call::{AuthorizationCall, redirect};
use super::clients::{AskingClient, Grantee};
use crate::gateway::authorization_counts::Consent;
use crate::gateway::oauth::metadata;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::code::{AuthorizationCode, Granted};
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::family::Family;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// The request that a browser began here, within ten minutes.
    pub(super) fn pending(&mut self, sealed: &str, headers: &HeaderMap) -> Result<PendingRequest, Reject> {
        let opened = PendingRequest::open(sealed, &self.call.broker.roots);
        let pending = opened.ok_or_else(|| Reject::new(Reason::ConsentStale, "this is no request of the gateway"))?;
        let asked = &pending.request;
        self.keep_request(Some(&pending.client_id), Some(asked.redirect_uri.as_str()), &asked.resources);
        if !pending.is_current(self.call.context.now) {
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

    /// A form of another site has the cookies of the user as well.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Reject> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let is_own = origins.next().is_some_and(|origin| *origin == *metadata::base(self.call.issuer()));
        if !is_own || origins.next().is_some() {
            return Err(Reject::new(Reason::Csrf, "Origin is not that of tokens.issuer"));
        }
        let site = headers.get("sec-fetch-site");
        if site.is_some_and(|site| site != "same-origin") {
            return Err(Reject::new(Reason::Csrf, "Sec-Fetch-Site is not same-origin"));
        }
        Ok(())
    }

    /// The scopes that this user can grant to the client now: those of the user's own session, and those of
    /// `[[oauth.scope]]` for which the session has the claim. The operator may have taken some of them from the client
    /// since it asked.
    pub(super) fn grantable(
        &self,
        client: &AskingClient<'_>,
        pending: &PendingRequest,
        session: &Family,
    ) -> Vec<String> {
        let own: Vec<&str> = session.scope.split(' ').collect();
        let is_grantable = |name: &&String| {
            if client.scopes.is_some_and(|scopes| !scopes.contains(name)) {
                return false;
            }
            let by_rule = self.settings.scope(name).is_some_and(|scope| {
                scope.claim.as_ref().is_none_or(|claim| claim.violation(&session.claims).is_none())
            });
            by_rule || own.contains(&name.as_str())
        };
        pending.request.scopes.iter().filter(is_grantable).cloned().collect()
    }

    /// Answers with a code. `scopes`: those that the user grants. `consent`: whether the user was asked.
    pub(super) fn allow(
        &mut self,
        pending: &PendingRequest,
        session: &Family,
        scopes: &[String],
        to: Grantee,
        consent: Consent,
    ) -> Result<Response<Body>, Reject> {
        let Grantee { label, authenticates: for_authenticated } = to;
        let granted = Granted { scope: scopes.join(" "), session: session.id, label, for_authenticated };
        let code = AuthorizationCode::new(pending, granted, self.call.context.now);
        let code = code.seal(&self.call.broker.roots);
        let code = code.ok_or_else(|| Reject::new(Reason::Internal, "there is no root secret"))?;
        self.call.context.record.token_id = Some(pending.id);
        self.consent = Some(consent);
        let state = pending.request.state.as_deref().map(|state| ("state", state));
        let answer = [("code", &*code)].into_iter().chain(state).chain([("iss", self.call.issuer())]);
        redirect(&pending.request.redirect_uri.with_query(&parameters::write(answer)))
    }
}
