//! The token endpoint (RFC 6749 section 3.2): which grant a call uses, and the grant `refresh_token`.
//!
//! Unlike `POST /user/refresh`, that grant takes no Bearer: OAuth clients send none. So the refresh token of a public
//! client alone is enough. It is protected by rotation and by the detection of reuse (RFC 9700 section 4.14.2), and
//! by a proof of its key, if the session is bound to one (DPoP). A registered client proves who it is.

use http::{Response, StatusCode};

use super::call::Call;
use super::client::CallingClient;
use super::form::Form;
use super::token_response::TokenResponse;
use crate::gateway::endpoints::TOKEN_EXCHANGE;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

impl Call<'_, '_> {
    pub(super) async fn token(&mut self, form: &Form) -> Result<Response<Body>, Reject> {
        let grant = form.required("grant_type")?;
        if !self.endpoints.grant_types().contains(&grant) {
            return Err(Reason::UnsupportedGrantType.into());
        }
        let client = self.client(form).await?;
        // After the client, and before anything is granted.
        let key = self.authenticator.grant_key(&self.context.auth_by(self.headers)).await?;
        if key.is_none() && client.registered().is_ok_and(|client| client.dpop_bound) {
            return Err(Reject::new(Reason::ProofRejected, "dpop_bound_access_tokens is true, and there is no proof"));
        }
        match grant {
            "client_credentials" => self.client_credentials(form, client, key).await,
            TOKEN_EXCHANGE => self.token_exchange(form, client, key).await,
            _ => self.refresh(form, client, key).await,
        }
    }

    async fn refresh(
        &mut self,
        form: &Form,
        client: CallingClient<'_>,
        key: Option<Thumbprint>,
    ) -> Result<Response<Body>, Reject> {
        let presented = PresentedToken::parse(form.required("refresh_token")?).ok_or(Reason::GrantMalformed)?;
        self.context.record.token_id = Some(presented.token_id);
        let occasion = self.context.event();
        let pair = self.broker.refresh_for_client(presented, client.id(), key, occasion).await?;
        Ok(respond::json(StatusCode::OK, &TokenResponse::from(&pair)))
    }
}
