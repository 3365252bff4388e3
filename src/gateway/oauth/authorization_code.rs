//! The grant `authorization_code` (OAuth 2.1 section 4.1.3): a client redeems the code that a user has granted.
//!
//! The order of the checks: until the last one, nothing is used up, so that a thief who has only the code cannot spoil
//! it for its owner.

use http::{Response, StatusCode};

use super::call::Call;
use super::client::{Calling, CallingClient};
use super::form::Form;
use super::token_response::TokenResponse;
use crate::broker::RedeemedCode;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::authorization::client_name;
use crate::tokens::authorization::code::AuthorizationCode;
use crate::tokens::authorization::narrowing::{Narrowed, Narrowing};
use crate::tokens::bound::{Bound, ProvedClient};
use crate::tokens::family::Family;
use crate::tokens::login::Login;
use crate::types::reject::{Reason, Reject};

impl Call<'_, '_> {
    pub(super) async fn authorization_code(
        &mut self,
        form: &Form,
        calling: Calling<'_>,
        proved_client: ProvedClient,
    ) -> Result<Response<Body>, Reject> {
        let redeemed = self.redeem(form, calling, proved_client).await;
        self.counts.count_code(redeemed.as_ref().err().map(|reject| reject.reason));
        redeemed
    }

    async fn redeem(
        &mut self,
        form: &Form,
        calling: Calling<'_>,
        proved_client: ProvedClient,
    ) -> Result<Response<Body>, Reject> {
        let Calling { client, once } = calling;
        let text = form.required("code")?;
        let opened = AuthorizationCode::open(text, &self.broker.roots);
        let code = opened.ok_or_else(|| Reject::new(Reason::CodeMalformed, "this is no code of the gateway"))?;
        self.context.record.token_id = Some(code.id);
        let client_id = self.check_code(form, &code, client)?;
        self.name_client(client_id, &code);
        check_key(&code, proved_client.proved)?;
        let narrowing = Narrowing { scope: None, ..self.narrowing(form) };
        let Narrowed { scope, audience } = narrowing.of(&code.scope, &code.resources)?;
        let session = self.broker.session_of_code(&code, &self.context.event()).await?;
        self.use_up(once).await?;
        let settings = self.endpoints.authorization.as_deref().ok_or(Reason::UnsupportedGrantType)?;
        let login = Login {
            audience,
            client_id: client_id.to_owned(),
            label: code.label.clone(),
            address: Some(self.context.client()),
            absolute: Some(settings.grant_lifetime),
            // A client that authenticates may refresh with another key (RFC 9449 section 5) or certificate (RFC 8705
            // section 4).
            bound_to: if client.method().is_some() { Bound::default() } else { proved_client.bind },
            ..login_of(&session, scope)
        };
        let max_of_client = settings.sessions_per_client;
        let redeemed = RedeemedCode { text, code: &code, session, client_auth: client.method(), max_of_client };
        let pair = self.broker.redeem_code(redeemed, login, proved_client.bind, self.context.event()).await?;
        Ok(respond::json(StatusCode::OK, &TokenResponse::from(&pair)))
    }

    /// Names the client in the access log.
    fn name_client(&mut self, client_id: &str, code: &AuthorizationCode) {
        let is_named = self.endpoints.client(client_id).is_some();
        let name = client_name::for_operators(client_id, is_named, Some(&code.redirect_host));
        self.context.record.oauth.get_or_insert_default().client = name.map(str::to_owned);
    }

    /// Returns the id of the client, if it is the one that the code was made for.
    fn check_code<'f>(
        &self,
        form: &Form,
        code: &AuthorizationCode,
        client: CallingClient<'f>,
    ) -> Result<&'f str, Reject> {
        let lifetime = self.endpoints.authorization.as_ref().map(|settings| settings.code_lifetime).unwrap_or_default();
        if !code.is_current(lifetime, self.context.now) {
            return Err(Reject::new(Reason::CodeExpired, "older than oauth.code_lifetime"));
        }
        let client_id = client.id().ok_or_else(|| Reject::new(Reason::CodeClient, "client_id is missing"))?;
        if !code.is_of_client(client_id) {
            return Err(Reject::new(Reason::CodeClient, "the code was made for another client"));
        }
        if code.for_authenticated && client.method().is_none() {
            return Err(Reject::new(Reason::ClientNotAuthenticated, "the document of the client names a key"));
        }
        // OAuth 2.1 leaves it out: PKCE shows that the sender began the request.
        if form.get("redirect_uri").is_some_and(|uri| !code.is_for(uri)) {
            return Err(Reject::new(Reason::CodeRedirect, "redirect_uri is not that of the request"));
        }
        match form.get("code_verifier") {
            Some(verifier) if code.is_of_verifier(verifier) => Ok(client_id),
            Some(_) => Err(Reject::new(Reason::CodeVerifier, "code_verifier does not fit code_challenge")),
            None => Err(Reject::new(Reason::CodeVerifier, "code_verifier is missing")),
        }
    }
}

/// RFC 9449 section 10.
fn check_key(code: &AuthorizationCode, proved: Bound) -> Result<(), Reject> {
    let Some(wanted) = &code.dpop_jkt else { return Ok(()) };
    if proved.key.is_some_and(|key| key.to_string() == *wanted) {
        return Ok(());
    }
    Err(Reject::new(Reason::ProofRejected, "the code is bound to dpop_jkt, and the proof is missing or of another key"))
}

/// The user of a session, with what a backend learns of the user.
fn login_of(session: &Family, scope: String) -> Login {
    let mut claims = session.claims.clone();
    // The key of another client.
    claims.remove("cnf");
    Login { subject: session.subject.clone(), scope, claims, ..Login::default() }
}
