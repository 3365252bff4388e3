//! The token endpoint (RFC 6749 section 3.2): which grant a call uses, and the grant `refresh_token`.
//!
//! Unlike `POST /user/refresh`, that grant takes no Bearer: OAuth clients send none. So the refresh token of a public
//! client alone is enough. It is protected by rotation and by the detection of reuse (RFC 9700 section 4.14.2), and
//! by a proof of its key (DPoP) or certificate, if the session is bound to one. A registered client proves who it is.

use http::{Response, StatusCode};

use super::call::Call;
use super::client::Calling;
use super::form::Form;
use super::token_response::TokenResponse;
use crate::broker::refresh::RefreshingClient;
use crate::gateway::endpoints::TOKEN_EXCHANGE;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::bound::ProvedClient;
use crate::tokens::family::ReuseRule;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};

impl Call<'_, '_> {
    pub(super) async fn token(&mut self, form: &Form) -> Result<Response<Body>, Reject> {
        let grant = form.required("grant_type")?;
        if !self.endpoints.grant_types().contains(&grant) {
            return Err(Reason::UnsupportedGrantType.into());
        }
        let asked = self.context.record.oauth.get_or_insert_default();
        asked.ask(form.get("client_id"), form.get("redirect_uri"), form.resources());
        // Before the client causes a fetch of its document.
        self.endpoints.denied.check(form.get("client_id").unwrap_or_default(), &self.broker.roots)?;
        let Calling { client, mut once } = self.client(form).await?;
        self.context.record.oauth.get_or_insert_default().client_id = client.id().map(str::to_owned);
        // A code and a refresh token are good only with the client_id of their client, so that none can leave it out.
        self.endpoints.denied.check(client.id().unwrap_or_default(), &self.broker.roots)?;
        // After the client, and before anything is granted.
        once.proof = self.authenticator.proof_verifier.grant_proof(&self.context.auth_by(self.headers)).await?;
        let proved = once.proof.bound;
        let known = client.id().and_then(|id| self.endpoints.client(id));
        if proved.key.is_none() && known.is_some_and(|client| client.dpop_bound) {
            return Err(Reject::new(Reason::ProofRejected, "dpop_bound_access_tokens is true, and there is no proof"));
        }
        let proved_client = client.with_proof(proved, self.broker.settings.certificate_bound)?;
        let calling = Calling { client, once };
        match grant {
            "authorization_code" => self.authorization_code(form, calling, proved_client).await,
            "client_credentials" => self.client_credentials(form, calling, proved_client).await,
            TOKEN_EXCHANGE => self.token_exchange(form, calling, proved_client).await,
            "refresh_token" => self.refresh(form, calling, proved_client).await,
            _ => Err(Reason::UnsupportedGrantType.into()),
        }
    }

    async fn refresh(
        &mut self,
        form: &Form,
        calling: Calling<'_>,
        proved_client: ProvedClient,
    ) -> Result<Response<Body>, Reject> {
        let presented = PresentedToken::parse(form.required("refresh_token")?).ok_or(Reason::GrantMalformed)?;
        self.context.record.token_id = Some(presented.token_id);
        if !calling.once.is_empty() && self.broker.family_of(&presented).await?.is_some() {
            self.use_up(calling.once).await?;
        }
        let by = RefreshingClient {
            client_id: calling.client.id(),
            proved: proved_client,
            reuse: self.reuse_rule(),
            narrowing: self.narrowing(form),
        };
        let pair = self.broker.refresh_for_client(presented, by, self.context.event()).await?;
        Ok(respond::json(StatusCode::OK, &TokenResponse::from(&pair)))
    }

    /// `oauth.reuse`. A reload can change it.
    fn reuse_rule(&self) -> ReuseRule {
        match &self.endpoints.authorization {
            Some(settings) if self.context.source.names_client() => settings.reuse,
            // Behind one proxy, a thief has the address of every owner.
            _ => ReuseRule::End,
        }
    }
}
