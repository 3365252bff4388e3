//! The consent page: finds the user of the browser, or sends it to a provider first, and shows who asks for what.

use http::{Request, Response};

use super::call::AuthorizationCall;
use super::clients::{AskingClient, sign_in_place};
use super::pages::{self, Question, ShownScope};
use crate::gateway::authorization_counts::Consent;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::request::{RequestError, SignInWish};
use crate::tokens::family::Family;
use crate::types::reject::{Reason, Reject};

impl AuthorizationCall<'_, '_> {
    /// `GET`: the page, a redirect to a provider, or an answer if the client wants the user not to be asked.
    pub(super) async fn show_consent<B>(&mut self, request: &Request<B>) -> Result<Response<Body>, Reject> {
        self.check_page(request.headers())?;
        let query = parameters::read(request.uri().query().unwrap_or_default());
        let sealed = query.ok().and_then(|mut query| query.remove("request")).unwrap_or_default();
        let pending = self.pending(&sealed, request.headers())?;
        let session = self.session(request.headers(), &pending).await?;
        let is_silent = pending.request.sign_in == SignInWish::Silent;
        let Some(session) = session else {
            if is_silent {
                let error = RequestError::new("login_required", "the user is not signed in");
                return self.answer_error(&pending, error).await;
            }
            let place = sign_in_place(&pending.client_id, &self.call.endpoints.clients, self.settings);
            let wanted = pending.request.at_sign_in();
            return self.begin_sign_in(place, &self.consent_path(&sealed), &wanted, request).await;
        };
        let client = self.client_of(&pending).await?;
        if client.skips_consent && !pending.request.wants_consent {
            let scopes = self.grantable(&client, &pending, &session);
            return self.allow(&pending, &session, &scopes, client.grantee(), Consent::Skipped);
        }
        if is_silent {
            let error = RequestError::new("consent_required", "the user must be asked");
            return self.answer_error(&pending, error).await;
        }
        self.page(&client, &pending, &sealed, &session).await
    }

    pub(super) async fn page(
        &self,
        client: &AskingClient<'_>,
        pending: &PendingRequest,
        sealed: &str,
        session: &Family,
    ) -> Result<Response<Body>, Reject> {
        let scopes = self.grantable(client, pending, session);
        let grants = self.call.broker.grants_of(&session.subject, self.call.context.now).await?;
        if grants.iter().any(|grant| grant.id == pending.id) {
            return Err(Reject::new(Reason::ConsentStale, "the user has agreed, and the client has its tokens"));
        }
        let of_client: Vec<_> = grants.iter().filter(|grant| grant.client_id == client.id).collect();
        Ok(pages::consent(&Question {
            client_id: client.id,
            known_by: &client.known_by,
            redirect_uri: &pending.request.redirect_uri,
            resources: &pending.request.resources,
            scopes: scopes.iter().map(|name| self.shown_scope(name)).collect(),
            user: name_of(session),
            granted_since: of_client.iter().map(|grant| grant.created_at).min(),
            ends_oldest: of_client.len() >= self.settings.sessions_per_client,
            lifetime: self.settings.grant_lifetime,
            action: &self.settings.consent_page,
            other_user: self.other_user(&self.consent_path(sealed))?,
            request: sealed,
            session: session.id.to_string(),
        }))
    }

    fn shown_scope<'s>(&'s self, name: &'s str) -> ShownScope<'s> {
        let known = self.settings.scope(name);
        let text = known.and_then(|scope| scope.text.as_deref()).unwrap_or(name);
        let is_optional = known.is_some_and(|scope| scope.is_optional);
        ShownScope { text, field: field_of(name), is_optional }
    }
}

/// The field of the form that says that the user grants a scope.
pub(super) fn field_of(scope: &str) -> String {
    format!("scope:{scope}")
}

/// How the user knows the session: by the most familiar claim.
fn name_of(session: &Family) -> &str {
    let claims = ["email", "preferred_username", "name"];
    let named = claims.iter().find_map(|claim| session.claims.get(*claim)?.as_str());
    named.unwrap_or(&session.subject)
}
