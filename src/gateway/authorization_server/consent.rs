//! The consent page: finds the user of the browser, or sends it to a provider first, and shows who asks for what.

use http::{Request, Response};

use super::call::AuthorizationCall;
use super::clients::AskingClient;
use super::pages::{self, Question};
use crate::gateway::authorization_counts::Consent;
use crate::protocols::http::body::Body;
use crate::protocols::http::parameters;
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::authorization::request::{RequestError, SignInWish};
use crate::tokens::family::Family;
use crate::types::reject::Reject;

impl AuthorizationCall<'_, '_> {
    /// `GET`: the page, a redirect to a provider, or an answer if the client wants the user not to be asked.
    pub(super) async fn show_consent<B>(&mut self, request: &Request<B>) -> Result<Response<Body>, Reject> {
        self.check_host()?;
        self.check_navigation(request.headers())?;
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
            return self.begin_sign_in(&self.consent_path(&sealed), &pending.request.at_sign_in(), request).await;
        };
        let client = self.client_of(&pending).await?;
        if client.skips_consent {
            let to = client.grantee();
            return self.allow(&pending, &session, to, Consent::Skipped);
        }
        if is_silent {
            let error = RequestError::new("consent_required", "the user must be asked");
            return self.answer_error(&pending, error).await;
        }
        self.page(&client, &pending, &sealed, &session)
    }

    pub(super) fn page(
        &self,
        client: &AskingClient<'_>,
        pending: &PendingRequest,
        sealed: &str,
        session: &Family,
    ) -> Result<Response<Body>, Reject> {
        let text_of = |name: &String| {
            let known = self.settings.scope(name).and_then(|scope| scope.text.clone());
            known.unwrap_or_else(|| name.clone())
        };
        let scopes = self.grantable(pending, session);
        Ok(pages::consent(&Question {
            client_id: client.id,
            known_by: &client.known_by,
            redirect_uri: &pending.request.redirect_uri,
            resources: &pending.request.resources,
            scopes: scopes.iter().map(text_of).collect(),
            user: name_of(session),
            lifetime: self.settings.grant_lifetime,
            action: &self.settings.consent_page,
            other_user: self.other_user(&self.consent_path(sealed))?,
            request: sealed,
            session: session.id.to_string(),
        }))
    }
}

/// How the user knows the session: by the most familiar claim.
fn name_of(session: &Family) -> &str {
    let claims = ["email", "preferred_username", "name"];
    let named = claims.iter().find_map(|claim| session.claims.get(*claim)?.as_str());
    named.unwrap_or(&session.subject)
}
