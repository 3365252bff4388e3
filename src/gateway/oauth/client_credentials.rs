//! The grant `client_credentials` (RFC 6749 section 4.4): a registered client gets an access token for itself.
//!
//! Like every token, it belongs to a family, so that it can be revoked. There is no refresh token (section 4.4.3).

use http::{Response, StatusCode};

use super::call::Call;
use super::client::Calling;
use super::form::Form;
use super::token_response::TokenResponse;
use crate::auth::registered_clients::RegisteredClient;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::tokens::authorization::resource;
use crate::tokens::bound::ProvedClient;
use crate::tokens::login::Login;
use crate::types::reject::{Reason, Reject};

impl Call<'_, '_> {
    pub(super) async fn client_credentials(
        &mut self,
        form: &Form,
        calling: Calling<'_>,
        proved_client: ProvedClient,
    ) -> Result<Response<Body>, Reject> {
        let client = calling.client.registered()?;
        if !client.client_credentials {
            return Err(Reject::new(Reason::UnauthorizedClient, "client_credentials is false"));
        }
        self.use_up(calling.once).await?;
        let login = Login {
            audience: target(form, &client.audience)?,
            scope: granted_scope(form.get("scope"), &client.scopes)?,
            bound_to: proved_client.bind,
            ..self.login_of(client)
        };
        let issued = self.broker.issue_access(login, None, self.context.event()).await?;
        let revoked = || Reject::new(Reason::LoginCapture, "all tokens of the client were revoked meanwhile");
        let grant = issued.ok_or_else(revoked)?;
        self.context.record.token_id = Some(grant.token_id);
        Ok(respond::json(StatusCode::OK, &TokenResponse::from(&grant)))
    }

    fn login_of(&self, client: &RegisteredClient) -> Login {
        Login {
            subject: client.subject(),
            client_id: client.client_id.clone(),
            address: Some(self.context.client()),
            absolute: Some(client.lifetime),
            ..Login::default()
        }
    }
}

/// The audience of the token: all that are possible, or the one that the client requests (RFC 8693 section 2.1, RFC
/// 8707).
pub(super) fn target(form: &Form, possible: &[String]) -> Result<Vec<String>, Reject> {
    let requested: Vec<&str> = form.get("audience").into_iter().chain(form.resources()).collect();
    if requested.is_empty() {
        return Ok(possible.to_vec());
    }
    let mut target: Vec<String> = Vec::new();
    for name in requested {
        let known = possible.iter().find(|known| resource::is_named(known, name));
        let unknown = || Reject::new(Reason::InvalidTarget, "an audience that this client cannot get");
        let known = known.ok_or_else(unknown)?;
        if !target.contains(known) {
            target.push(known.clone());
        }
    }
    Ok(target)
}

/// All possible scopes, or those that the client requests. A scope beyond them is an error, so that no client takes a
/// token for more than it is.
pub(super) fn granted_scope(requested: Option<&str>, possible: &[String]) -> Result<String, Reject> {
    let Some(requested) = requested else { return Ok(possible.join(" ")) };
    let mut granted: Vec<&str> = Vec::new();
    for scope in requested.split(' ').filter(|scope| !scope.is_empty()) {
        if !possible.iter().any(|known| known == scope) {
            return Err(Reject::new(Reason::InvalidScope, "a scope that this client cannot get"));
        }
        if !granted.contains(&scope) {
            granted.push(scope);
        }
    }
    Ok(granted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_never_wider_than_what_is_possible() {
        let possible = ["a", "b"].map(str::to_owned);
        let granted = |requested| granted_scope(requested, &possible).map_err(|reject| reject.reason);
        for (requested, expected) in [
            (None, Ok("a b")),
            (Some("b"), Ok("b")),
            (Some(" b  a b "), Ok("b a")),
            (Some(" "), Ok("")),
            (Some("c"), Err(Reason::InvalidScope)),
            (Some("a c"), Err(Reason::InvalidScope)),
            (Some("A"), Err(Reason::InvalidScope)),
            (Some("a\tb"), Err(Reason::InvalidScope)),
        ] {
            assert_eq!(granted(requested), expected.map(str::to_owned), "{requested:?}");
        }
    }
}
