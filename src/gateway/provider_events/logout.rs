//! `POST {sign_in.path}/backchannel_logout/NAME`: OpenID Connect Back-Channel Logout 1.0.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use serde_json::json;

use crate::auth::provider::{Provider, Providers};
use crate::auth::signed_jwt::SignatureCheck;
use crate::broker::{Broker, ReportOutcome};
use crate::gateway::context::RequestContext;
use crate::gateway::oauth::Form;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::jwt::signed::UnverifiedToken;
use crate::tokens::provider_events::logout_token::{self, LogoutPolicy};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// Receives the logout tokens of one provider.
pub struct LogoutReceiver {
    pub provider: Arc<Provider>,
    pub providers: Arc<Providers>,
}

impl LogoutReceiver {
    /// Ends what the logout token names. A valid one always gets 200: its sender must not learn who is logged in.
    pub async fn receive(
        &self,
        broker: &Broker,
        headers: &HeaderMap,
        content: &[u8],
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let received = self.carry_out(broker, headers, content, context).await;
        let outcome = match &received {
            Ok(Marked::First) => ReportOutcome::Revoked,
            Ok(_) => ReportOutcome::Repeated,
            Err(reject) if reject.reason.status() == StatusCode::BAD_REQUEST => ReportOutcome::Rejected,
            Err(_) => ReportOutcome::Failed,
        };
        broker.reports.count(&self.provider.name, "logout", outcome);
        received.map(|_| respond::json(StatusCode::OK, &json!({})))
    }

    async fn carry_out(
        &self,
        broker: &Broker,
        headers: &HeaderMap,
        content: &[u8],
        context: &RequestContext<'_>,
    ) -> Result<Marked, Reject> {
        let form = Form::read(headers, content)?;
        let token = form.required("logout_token")?;
        let logout = self.verify(token, context).await.map_err(as_bad_logout)?;
        let Provider { name, issuer, logout_ends, .. } = &*self.provider;
        let mark = Mark {
            kind: MarkKind::LogoutToken,
            issuer: issuer.to_string(),
            key: logout.jti.clone(),
            value: secret::digest(&[token.as_bytes()]),
            until: logout.until,
        };
        let revoked = logout.revokes(issuer, *logout_ends);
        match broker.revoke_reported(mark, revoked, context.event().by_provider(name)).await? {
            Marked::Taken => Err(Reject::new(Reason::BadLogoutToken, "another logout token had this jti")),
            marked => Ok(marked),
        }
    }

    /// Claims come first: they cost less than a signature. All that is wrong here would be rejected anyway.
    async fn verify(&self, token: &str, context: &RequestContext<'_>) -> Result<logout_token::LogoutToken, Reject> {
        let Provider { issuer, client, logout_typ, .. } = &*self.provider;
        let policy = LogoutPolicy { issuer, client_id: &client.client_id, typ: *logout_typ };
        let jwt = UnverifiedToken::parse(token)?;
        let logout = logout_token::read(jwt.header(), jwt.claims(), &policy, context.now)?;
        let keys = self.providers.source(&self.provider)?;
        SignatureCheck::from(context.auth()).verify(&jwt, &keys).await?;
        Ok(logout)
    }
}

/// A 401 is for tokens that prove who calls, and this one does not. What is not the token's fault stays as it is.
fn as_bad_logout(reject: Reject) -> Reject {
    match reject.reason.is_invalid_token() {
        true => Reject::new(Reason::BadLogoutToken, format!("{}: {}", reject.reason.code(), reject.detail)),
        false => reject,
    }
}
