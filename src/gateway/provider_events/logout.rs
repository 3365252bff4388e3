//! `POST {sign_in.path}/backchannel_logout/NAME`: OpenID Connect Back-Channel Logout 1.0.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use serde_json::json;

use super::late::LateLogouts;
use super::reported_logout::ReportedLogout;
use crate::auth::provider::{Provider, Providers};
use crate::auth::signed_jwt::SignatureCheck;
use crate::broker::{Broker, ReportOutcome};
use crate::gateway::context::RequestContext;
use crate::gateway::oauth::Form;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::Marked;
use crate::tokens::jwt::signed::UnverifiedToken;
use crate::tokens::provider_events::logout_token::{self, LogoutPolicy, LogoutToken};
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};

/// Receives the logout tokens of one provider.
pub struct LogoutReceiver {
    provider: Arc<Provider>,
    providers: Arc<Providers>,
    late: LateLogouts,
}

impl LogoutReceiver {
    pub fn new(provider: Arc<Provider>, providers: Arc<Providers>, clock: Arc<dyn Clock>) -> Self {
        LogoutReceiver { provider, providers, late: LateLogouts::new(clock) }
    }

    /// Ends what the logout token names. A valid one always gets 200: its sender must not learn who is logged in.
    pub async fn receive(
        &self,
        broker: &Arc<Broker>,
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
        broker: &Arc<Broker>,
        headers: &HeaderMap,
        content: &[u8],
        context: &RequestContext<'_>,
    ) -> Result<Marked, Reject> {
        let form = Form::read(headers, content)?;
        let token = form.required("logout_token")?;
        let logout = ReportedLogout {
            provider: self.provider.clone(),
            providers: self.providers.clone(),
            broker: broker.clone(),
            token: token.to_owned(),
            logout: self.read(token, context).map_err(as_bad_logout)?,
            event: context.event(),
        };
        let verified = logout.verify_now(&SignatureCheck::from(context.auth())).await;
        let is_verified = verified.is_ok();
        let outcome = match verified {
            Ok(()) => logout.carry_out().await,
            Err(reject) => Err(reject),
        };
        match outcome {
            Err(reject) if may_pass(&reject) => self.late.go_on(logout, is_verified).await.map_err(as_bad_logout),
            outcome => outcome.map_err(as_bad_logout),
        }
    }

    /// Claims come first: they cost less than a signature. All that is wrong here would be rejected anyway.
    fn read(&self, token: &str, context: &RequestContext<'_>) -> Result<LogoutToken, Reject> {
        let Provider { issuer, client, logout_typ, .. } = &*self.provider;
        let policy = LogoutPolicy { issuer, client_id: &client.client_id, typ: *logout_typ };
        let jwt = UnverifiedToken::parse(token)?;
        logout_token::read(jwt.header(), jwt.claims(), &policy, context.now)
    }
}

/// Returns true if the logout can be carried out later: with a key that is not known yet, or when the database
/// responds.
fn may_pass(reject: &Reject) -> bool {
    reject.reason == Reason::UnknownKey || reject.reason.status().is_server_error()
}

/// A 401 is for tokens that prove who calls, and this one does not. What is not the token's fault stays as it is.
fn as_bad_logout(reject: Reject) -> Reject {
    if reject.reason.is_invalid_token() {
        Reject::new(Reason::BadLogoutToken, format!("{}: {}", reject.reason.code(), reject.detail))
    } else {
        reject
    }
}
