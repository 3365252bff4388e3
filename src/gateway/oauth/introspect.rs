//! Introspection (RFC 7662): returns whether a token is good here right now, and its claims.
//!
//! The caller may ask about every token. So it needs a token with the scope `token:introspect`, or the credentials of
//! an `[[oauth.resource_server]]`. A token that is not good is `{"active":false}` and nothing else, for every reason
//! (section 2.2).

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::basic;
use super::call::Call;
use super::form::Form;
use super::token_response::token_type;
use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer;
use crate::gateway::context::RequestContext;
use crate::gateway::endpoints::ResourceServer;
use crate::limits::limiter::Key;
use crate::limits::throttle::Throttle;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::family::auth_time;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};

/// The scope that allows a caller to introspect every token.
pub const INTROSPECT_SCOPE: &str = "token:introspect";

/// The claims that are returned: those of RFC 7662 section 2.2, `auth_time` (RFC 9470 section 6.2), `sid`, and `cnf`,
/// so that the caller can require the proof (RFC 9449 section 6.2, RFC 8705 section 3.2). Other claims are
/// only for the token's audience.
const CLAIMS: &[&str] =
    &["iss", "sub", "aud", "client_id", "scope", "exp", "nbf", "iat", "auth_time", "jti", "sid", "cnf"];

/// The caller of an introspection.
pub struct Introspector {
    /// The bad signatures of the tokens that it asks about are counted for this key.
    pub key: Key,
    /// `None`: a resource server with a secret.
    pub caller: Option<Caller>,
}

/// Authenticates the caller of an introspection: a resource server asks for all of its clients, with a credential of
/// its own. Its proof is used up. Counts a failure.
pub async fn introspector(
    headers: &HeaderMap,
    resource_servers: &[ResourceServer],
    authenticator: &Authenticator,
    throttle: &Throttle,
    context: &mut RequestContext<'_>,
) -> Result<Introspector, Reject> {
    let mut found = authenticate(headers, resource_servers, authenticator, context).await;
    if found.is_err() && basic::is_used(headers) {
        // A resource server with the right secret is never limited. With a wrong one, its address soon gets 429.
        found = throttle.check_failures(context.client()).and(found);
    }
    // Not what the caller asks about: that comes from its clients.
    throttle.count_outcome(&found, context.client());
    found
}

async fn authenticate(
    headers: &HeaderMap,
    resource_servers: &[ResourceServer],
    authenticator: &Authenticator,
    context: &mut RequestContext<'_>,
) -> Result<Introspector, Reject> {
    if basic::is_used(headers) {
        let server = basic::authenticate(headers, resource_servers)?;
        return Ok(Introspector { key: server.key(), caller: None });
    }
    let bearer = bearer::find_with_scheme(headers, authenticator.token_size)?;
    let caller = authenticator.authenticate(bearer, &context.auth_by(headers)).await?;
    let token = caller.token();
    context.record.caller = Some(token.clone());
    // Only tokens of this gateway have a family. A scope of this name from another issuer may mean something else.
    let session = if token.has_scope(INTROSPECT_SCOPE) { token.family } else { None };
    let key = session.map(Key::from);
    let key = key.ok_or_else(|| Reject::from(Reason::InsufficientScope).needs_scope(INTROSPECT_SCOPE))?;
    authenticator.proof_verifier.use_up(caller.proof(), context.clock.now()).await?;
    Ok(Introspector { key, caller: Some(caller) })
}

impl Call<'_, '_> {
    pub(super) async fn introspect(&mut self, form: &Form) -> Result<Response<Body>, Reject> {
        let servers = &self.endpoints.resource_servers;
        let throttle = &self.broker.throttle;
        let by = introspector(self.headers, servers, self.authenticator, throttle, self.context).await?;
        let token = form.required("token")?;
        let found = match PresentedToken::parse(token) {
            Some(presented) => self.refresh_token(&presented).await?,
            None => self.access_token(by.key, token).await?,
        };
        let mut claims = found.unwrap_or_default();
        claims.insert("active".into(), json!(!claims.is_empty()));
        Ok(respond::json(StatusCode::OK, &claims))
    }

    async fn access_token(&self, caller: Key, token: &str) -> Result<Option<Map<String, Value>>, Reject> {
        match self.authenticate_for_caller(caller, token).await {
            Ok(caller) => {
                let all = &caller.token().claims;
                let returned = CLAIMS.iter().filter_map(|name| Some(((*name).to_owned(), all.get(*name)?.clone())));
                let mut claims: Map<String, Value> = returned.collect();
                claims.insert("token_type".into(), json!(token_type(caller.token().bound_to.is_some())));
                Ok(Some(claims))
            }
            Err(reject) if reject.reason.is_invalid_token() => Ok(None),
            // The keys, or the time to check the token, may be missing. Then it is not known to be bad.
            Err(reject) => Err(reject),
        }
    }

    /// Only the newest refresh token of a live family is active. An older one is spent, although a client that lost a
    /// response may still use it.
    async fn refresh_token(&self, presented: &PresentedToken) -> Result<Option<Map<String, Value>>, Reject> {
        let family = self.broker.family_of(presented).await?;
        let Some(family) =
            family.filter(|family| family.is_live(self.context.now) && family.generation == presented.generation)
        else {
            return Ok(None);
        };
        let expires = family.idle_expiry.min(family.absolute_expiry).as_secs();
        let mut claims = Map::new();
        claims.insert("iss".into(), json!(self.broker.settings.issuer));
        claims.insert("sub".into(), json!(family.subject));
        claims.insert("exp".into(), json!(expires));
        claims.insert("iat".into(), json!(family.last_used_at.as_secs()));
        claims.insert("auth_time".into(), json!(auth_time(&family)));
        claims.insert("sid".into(), json!(family.id));
        claims.insert("token_type".into(), json!("refresh_token"));
        if let Some(cnf) = family.claims.get("cnf") {
            claims.insert("cnf".into(), cnf.clone());
        }
        for (name, value) in [("scope", family.scope), ("client_id", family.client_id)] {
            if !value.is_empty() {
                claims.insert(name.into(), json!(value));
            }
        }
        Ok(Some(claims))
    }
}
