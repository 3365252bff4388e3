//! Revocation (RFC 7009): a client that has a token may end its session, and every token of it.
//!
//! Unlike `DELETE /token/{tokenId}`, this call carries the token itself. A token that is unknown, or not good, is no
//! error (section 2.2): there is nothing left to revoke. A session that was issued for a client ends only for that
//! client (section 2.1).

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::client::CallingClient;
use super::form::Form;
use crate::broker::check_client_id;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::family::api_key::PresentedKey;
use crate::tokens::family::has_client_auth;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};

impl Call<'_, '_> {
    /// Ignores `token_type_hint`: the format of a token shows its kind.
    pub(super) async fn revoke(&mut self, form: &Form) -> Result<Response<Body>, Reject> {
        let token = form.required("token")?;
        let client = self.client(form).await?.client;
        let client_id = client.id();
        match PresentedToken::parse(token) {
            Some(presented) => {
                self.context.record.token_id = Some(presented.token_id);
                let event = self.context.event().by_client();
                self.broker.revoke_presented(&presented, client_id, client.method().is_some(), event).await?;
            }
            None => self.revoke_access_token(token, client).await?,
        }
        Ok(respond::json(StatusCode::OK, &json!({})))
    }

    async fn revoke_access_token(&mut self, token: &str, client: CallingClient<'_>) -> Result<(), Reject> {
        let verified = self.authenticate(token).await;
        let was_good = |reject: &Reject| match reject.reason {
            Reason::Revoked => true,
            // A text without the form of a key was never one.
            Reason::BadApiKey => PresentedKey::parse(token).is_some(),
            _ => false,
        };
        if verified.as_ref().is_err_and(was_good) {
            // By an earlier call, which may have failed because the standby of the database is away.
            self.broker.settle().await?;
        }
        let Some(caller) = unless_invalid(verified)? else { return Ok(()) };
        self.context.record.caller = Some(caller.token().clone());
        if !caller.token().own {
            // Only its issuer can revoke it.
            return Err(Reason::UnsupportedTokenType.into());
        }
        // Only the gateway sets this claim in its tokens.
        let issued_to = caller.token().claims.get("client_id").and_then(Value::as_str).unwrap_or_default();
        check_client_id(issued_to, client.id())?;
        if has_client_auth(&caller.token().claims) && client.method().is_none() {
            return Err(Reason::ClientNotAuthenticated.into());
        }
        self.broker.revoke_login_of(caller.token(), self.context.event().by_client()).await
    }
}

/// RFC 7009 section 2.2: an invalid token needs no revocation. `None` for one. If the gateway cannot tell, the client
/// must not believe that its token is revoked.
fn unless_invalid<T>(verified: Result<T, Reject>) -> Result<Option<T>, Reject> {
    match verified {
        Ok(verified) => Ok(Some(verified)),
        Err(reject) if reject.reason.is_invalid_token() => Ok(None),
        Err(reject) => Err(reject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_invalid_token_counts_as_revoked() {
        let found = |reason: Reason| unless_invalid::<()>(Err(reason.into())).map_err(|reject| reject.reason);
        for invalid in [Reason::Expired, Reason::Revoked, Reason::BadSignature, Reason::MalformedToken] {
            assert_eq!(found(invalid), Ok(None));
        }
        for unknown in [Reason::KeysUnavailable, Reason::RateLimited, Reason::Internal] {
            assert_eq!(found(unknown), Err(unknown));
        }
        assert!(matches!(unless_invalid(Ok(1)), Ok(Some(1))));
    }
}
