//! The token endpoint (RFC 6749 section 3.2) with the grant `refresh_token`.
//!
//! Unlike `POST /user/refresh`, it takes no Bearer: OAuth clients send none, and clients are public here. So the
//! refresh token alone is enough. It is protected by rotation and by the detection of reuse (RFC 9700 section 4.14.2).

use http::{Response, StatusCode};
use serde::Serialize;

use super::call::Call;
use super::form::Form;
use crate::broker::TokenPair;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};

/// RFC 6749 section 5.1.
#[derive(Serialize)]
struct TokenResponse<'p> {
    access_token: &'p str,
    token_type: &'static str,
    /// Seconds.
    expires_in: u64,
    refresh_token: &'p str,
    /// The scope granted at the login, also if the client requests another one: section 3.3 requires to say so.
    #[serde(skip_serializing_if = "str::is_empty")]
    scope: &'p str,
}

impl Call<'_, '_> {
    pub(super) async fn exchange(&mut self, form: &Form) -> Result<Response<Body>, Reject> {
        self.check_client(form)?;
        if form.required("grant_type")? != "refresh_token" {
            return Err(Reason::UnsupportedGrantType.into());
        }
        let presented = PresentedToken::parse(form.required("refresh_token")?).ok_or(Reason::GrantMalformed)?;
        self.context.record.token_id = Some(presented.token_id);
        let occasion = self.context.event();
        let pair = self.broker.refresh_for_client(presented, form.get("client_id"), occasion).await?;
        Ok(respond::json(StatusCode::OK, &TokenResponse::of(&pair)))
    }
}

impl<'p> TokenResponse<'p> {
    fn of(pair: &'p TokenPair) -> Self {
        TokenResponse {
            access_token: &pair.access_token,
            token_type: "Bearer",
            expires_in: pair.lifetime,
            refresh_token: &pair.refresh_token,
            scope: &pair.scope,
        }
    }
}
