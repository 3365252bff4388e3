//! The grant of RFC 8693: a token of another issuer becomes a family of this gateway, by a rule `[[oauth.exchange]]`.
//!
//! The family remembers the session that it came from, so that a revocation of that session, or of its subject at the
//! other issuer, ends it.

use http::{Response, StatusCode};

use super::call::Call;
use super::client::{Calling, CallingClient};
use super::client_credentials::{granted_scope, target};
use super::form::Form;
use super::token_response::TokenResponse;
use crate::auth::subject_token::{SubjectType, verify_subject_token};
use crate::gateway::exchange_rule::{ACCESS_TOKEN_TYPE, ExchangeRule, Presenter, SubjectTokenType, origin_of};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::audit_event::EventContext;
use crate::tokens::bound::{Bound, ProvedClient};
use crate::tokens::jwt::VerifiedToken;
use crate::tokens::jwt::verify::unverified_issuer;
use crate::tokens::login::Login;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// What a client asks for.
struct ExchangeRequest<'f> {
    subject_token: &'f str,
    kind: SubjectTokenType,
}

impl<'f> ExchangeRequest<'f> {
    /// RFC 8693 section 2.1. Delegation (`actor_token`) is not supported.
    fn read(form: &'f Form) -> Result<Self, Reject> {
        let bad = |detail: &'static str| Reject::new(Reason::BadParameter, detail);
        let subject_token = form.required("subject_token")?;
        let kind = SubjectTokenType::of(form.required("subject_token_type")?);
        let kind = kind.ok_or_else(|| bad("this subject_token_type is not supported"))?;
        if ["actor_token", "actor_token_type"].iter().any(|name| form.get(name).is_some()) {
            return Err(bad("actor_token is not supported"));
        }
        if form.get("requested_token_type").is_some_and(|requested| requested != ACCESS_TOKEN_TYPE) {
            return Err(bad("only an access token can be requested"));
        }
        Ok(ExchangeRequest { subject_token, kind })
    }
}

impl<'c> Call<'c, '_> {
    pub(super) async fn token_exchange(
        &mut self,
        form: &Form,
        calling: Calling<'_>,
        proved_client: ProvedClient,
    ) -> Result<Response<Body>, Reject> {
        let client = calling.client;
        let request = ExchangeRequest::read(form)?;
        let audience = target(form, &self.broker.settings.audience)?;
        let rules = self.rules_for(client)?;
        let (rule, token) = self.verify(&request, &rules, client).await?;
        let possible = rule.possible_scopes(&token);
        let login = Login {
            scope: granted_scope(form.get("scope"), &possible)?,
            // The default is that of the gateway, also if that changes.
            audience: if audience == self.broker.settings.audience { Vec::new() } else { audience },
            // A public client could claim the name of another one.
            client_id: client.registered().map_or_else(|_| String::new(), |client| client.client_id.clone()),
            address: Some(self.context.client()),
            // A client that authenticates may refresh with another key (RFC 9449 section 5) or certificate (RFC 8705
            // section 4).
            bound_to: if rule.refresh_token && client.registered().is_ok() {
                Bound::default()
            } else {
                proved_client.bind
            },
            ..rule.login(&token, self.broker.settings.lifetimes.access, self.context.now)?
        };
        self.use_up(calling.once).await?;
        if rule.single_use {
            self.take_once(request.subject_token, &token).await?;
        }
        self.issue(rule.refresh_token, login, proved_client.bind, &token).await
    }

    /// The rules that this client may use.
    fn rules_for(&self, client: CallingClient<'_>) -> Result<Vec<&'c ExchangeRule>, Reject> {
        let registered = client.registered().ok().map(|client| client.client_id.as_str());
        let allowed: Vec<_> = self.endpoints.exchange.iter().filter(|rule| rule.allows(registered)).collect();
        match (allowed.is_empty(), registered) {
            (false, _) => Ok(allowed),
            (true, Some(_)) => Err(Reject::new(Reason::UnauthorizedClient, "no [[oauth.exchange]] names the client")),
            (true, None) => Err(client.registered().err().unwrap_or_else(|| Reason::UnauthorizedClient.into())),
        }
    }

    /// Verifies the subject token. Returns the first rule that accepts it.
    async fn verify(
        &self,
        request: &ExchangeRequest<'_>,
        rules: &[&'c ExchangeRule],
        client: CallingClient<'_>,
    ) -> Result<(&'c ExchangeRule, VerifiedToken), Reject> {
        let issuer = unverified_issuer(request.subject_token);
        let is_for =
            |rule: &&&ExchangeRule| issuer.as_deref() == Some(&rule.issuer) && rule.token_types.contains(&request.kind);
        let rules: Vec<_> = rules.iter().filter(is_for).collect();
        if rules.is_empty() {
            return Err(unacceptable("no [[oauth.exchange]] for its issuer and type, and this client"));
        }
        let kind = match request.kind {
            SubjectTokenType::AccessToken | SubjectTokenType::Jwt => SubjectType::OfIssuer,
            SubjectTokenType::IdToken => SubjectType::IdToken,
        };
        let context = self.context.auth();
        let verified = verify_subject_token(self.authenticator, request.subject_token, kind, &context).await;
        let token = verified.map_err(of_subject_token)?;
        let client = client.registered().ok().map(|client| client.client_id.as_str());
        let presenter = Presenter { kind: request.kind, client, gateway: &self.broker.settings.issuer };
        let mut rejected = None;
        for rule in rules {
            match rule.check(&token, presenter) {
                Ok(()) => return Ok((rule, token)),
                Err(reject) => rejected = Some(reject),
            }
        }
        Err(rejected.unwrap_or_else(|| Reason::SubjectToken.into()))
    }

    async fn take_once(&self, text: &str, token: &VerifiedToken) -> Result<(), Reject> {
        let jti = token.jti.clone().filter(|jti| !jti.is_empty());
        let mark = Mark {
            kind: MarkKind::SubjectToken,
            issuer: token.issuer.to_string(),
            key: jti.ok_or_else(|| unacceptable("jti is missing"))?,
            value: secret::digest(&[text.as_bytes()]),
            until: token.expires,
        };
        match self.broker.mark(mark, self.context.event()).await? {
            Marked::First => Ok(()),
            Marked::Repeated | Marked::Taken => Err(unacceptable("its jti was exchanged before")),
        }
    }

    async fn issue(
        &mut self,
        refresh: bool,
        login: Login,
        bind: Bound,
        token: &VerifiedToken,
    ) -> Result<Response<Body>, Reject> {
        let caller = Some(login.client_id.clone()).filter(|client| !client.is_empty());
        let event = EventContext { caller, ..self.context.event() };
        let origin = origin_of(token);
        let revoked = || unacceptable("its session, subject or issuer was revoked");
        if refresh {
            let pair = self.broker.issue_from(login, origin, bind, event).await?.ok_or_else(revoked)?;
            self.context.record.token_id = Some(pair.token_id());
            Ok(respond::json(StatusCode::OK, &TokenResponse::from(&pair).with_type(ACCESS_TOKEN_TYPE)))
        } else {
            let grant = self.broker.issue_access(login, Some(origin), event).await?.ok_or_else(revoked)?;
            self.context.record.token_id = Some(grant.token_id);
            Ok(respond::json(StatusCode::OK, &TokenResponse::from(&grant).with_type(ACCESS_TOKEN_TYPE)))
        }
    }
}

/// RFC 8693 section 2.2.2: a subject token that is not valid, for any reason, is `invalid_request`. If the gateway
/// cannot tell, the client may try again.
fn of_subject_token(reject: Reject) -> Reject {
    if reject.reason.is_invalid_token() {
        unacceptable(format!("{}: {}", reject.reason.code(), reject.detail))
    } else {
        reject
    }
}

fn unacceptable(detail: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::new(Reason::SubjectToken, detail)
}
