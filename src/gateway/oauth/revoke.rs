//! Revocation (RFC 7009): whoever shows a token may end its login, and every token of it.
//!
//! Unlike on `DELETE /token/{tokenId}`, the token itself is shown and not its name. So one that is not known, or not good, is
//! no error (section 2.2): there is nothing left to end.

use http::{Response, StatusCode};

use super::Call;
use super::form::Form;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::telemetry::access_log::Record;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};

impl Call<'_> {
    /// `token_type_hint` is not needed: the two kinds of token have nothing in common.
    pub(super) async fn revoke(&self, form: &Form, record: &mut Record) -> Result<Response<Body>, Reject> {
        self.check_client(form)?;
        let token = form.required("token")?;
        match PresentedToken::parse(token) {
            Some(presented) => {
                record.token_id = Some(presented.token_id);
                self.broker.revoke_presented(&presented, self.occasion(record)).await?;
            }
            None => self.revoke_access_token(token, record).await?,
        }
        Ok(respond::json(StatusCode::OK, &serde_json::json!({})))
    }

    async fn revoke_access_token(&self, token: &str, record: &mut Record) -> Result<(), Reject> {
        let caller = match self.authenticate(token).await {
            Ok(caller) => caller,
            Err(reject) if reject.reason.is_about_the_token() => return Ok(()),
            Err(reject) => return Err(reject),
        };
        record.caller = Some(caller.token().clone());
        if !caller.token().own {
            // It lives on: its issuer alone can end it.
            return Err(Reason::UnsupportedTokenType.into());
        }
        self.broker.revoke_login_of(caller.token(), self.occasion(record)).await
    }
}
