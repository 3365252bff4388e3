//! Introspection (RFC 7662): is this token good here, right now, and whose is it?
//!
//! It tells about anybody's tokens, so it asks for a token of its own, with the scope `token:introspect`. A token that is not
//! good is `{"active":false}` and nothing else, whatever is wrong with it (section 2.2).

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::form::Form;
use crate::auth::bearer;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::types::reject::{Reason, Reject};

/// Lets its holder ask about anybody's tokens.
pub const INTROSPECT_SCOPE: &str = "token:introspect";

/// Claims that are told (RFC 7662 section 2.2), and `sid`. What else a token says is between its issuer and its audience.
const TOLD: &[&str] = &["iss", "sub", "aud", "client_id", "scope", "exp", "nbf", "iat", "jti", "sid"];

impl Call<'_, '_> {
    pub(super) async fn introspect(&mut self, form: &Form) -> Result<Response<Body>, Reject> {
        let bearer = bearer::find(self.headers, self.authenticator.token_size)?;
        let caller = self.authenticator.authenticate(bearer, &self.context.auth()).await?;
        self.context.record.caller = Some(caller.token().clone());
        // Another issuer may give out a scope of this name, and mean something else.
        if !caller.token().own || !caller.token().has_scope(INTROSPECT_SCOPE) {
            return Err(Reject::from(Reason::InsufficientScope).needs_scope(INTROSPECT_SCOPE));
        }
        let token = form.required("token")?;
        let found = match PresentedToken::parse(token) {
            Some(presented) => self.refresh_token(&presented).await?,
            None => self.access_token(token).await?,
        };
        let mut told = found.unwrap_or_default();
        told.insert("active".into(), json!(!told.is_empty()));
        Ok(respond::json(StatusCode::OK, &told))
    }

    async fn access_token(&self, token: &str) -> Result<Option<Map<String, Value>>, Reject> {
        match self.authenticate(token).await {
            Ok(caller) => {
                let claims = &caller.token().claims;
                let told = TOLD.iter().filter_map(|name| Some(((*name).to_owned(), claims.get(*name)?.clone())));
                let mut told: Map<String, Value> = told.collect();
                told.insert("token_type".into(), json!("Bearer"));
                Ok(Some(told))
            }
            Err(reject) if reject.reason.is_about_the_token() => Ok(None),
            // Nobody is told that a token is dead because its keys, or the time to check it, were not there.
            Err(reject) => Err(reject),
        }
    }

    /// Good is the newest of a live login. An older one is spent, though a client that lost an answer may yet show it.
    async fn refresh_token(&self, presented: &PresentedToken) -> Result<Option<Map<String, Value>>, Reject> {
        let family = self.broker.family_of(presented).await?;
        let Some(family) =
            family.filter(|family| family.is_live(self.context.now) && family.generation == presented.generation)
        else {
            return Ok(None);
        };
        let expires = family.idle_expiry.min(family.absolute_expiry).as_secs();
        let mut told = Map::new();
        told.insert("iss".into(), json!(self.broker.settings.issuer));
        told.insert("sub".into(), json!(family.subject));
        told.insert("exp".into(), json!(expires));
        told.insert("iat".into(), json!(family.rotated_at.as_secs()));
        told.insert("sid".into(), json!(family.id));
        told.insert("token_type".into(), json!("refresh_token"));
        for (name, value) in [("scope", family.scope), ("client_id", family.client_id)] {
            if !value.is_empty() {
                told.insert(name.into(), json!(value));
            }
        }
        Ok(Some(told))
    }
}
