//! One refresh at a provider with an invented token: a wrong secret would otherwise show only when a user signs in, and
//! when sessions end.

use http::StatusCode;

use super::provider::SignInProvider;
use crate::auth::oauth_client::OAuthResponse;
use crate::types::clock::Clock;
use crate::types::reject::with_causes;
use crate::types::secret;

/// How providers reject a refresh token that does not exist (RFC 6749 section 5.2), and not the client.
const REJECTIONS: [&str; 2] = ["invalid_grant", "invalid_request"];
/// How they say that they know the client, and that it may not refresh.
const NO_REFRESH: [&str; 2] = ["unauthorized_client", "unsupported_grant_type"];

impl SignInProvider {
    /// Asks for a refresh with an invented token. Counts nothing. Fails if the provider would respond to a good token
    /// as it has to this one. Asks nothing while the discovery document is not known: that has a message of its own.
    pub async fn probe(&self, clock: &dyn Clock) -> Result<(), String> {
        let Ok(metadata) = self.metadata() else { return Ok(()) };
        let invented = format!("{:032x}", u128::from_be_bytes(secret::random()));
        let fields = [("grant_type", "refresh_token"), ("refresh_token", invented.as_str())];
        match self.provider.client.post(&metadata.token, &fields, clock.now()).await {
            Ok(response) => check(&response, self.settings.ask_for_refresh_token()),
            Err(error) => Err(with_causes(&error)),
        }
    }
}

/// `needs_refresh`: the gateway asks for refresh tokens.
fn check(response: &OAuthResponse, needs_refresh: bool) -> Result<(), String> {
    let status = response.status;
    let error = response.error().unwrap_or_else(|| "no error code".to_owned());
    if status == StatusCode::UNAUTHORIZED || error == "invalid_client" {
        return Err(format!(
            "the provider rejects this gateway as a client: {status} ({error}); check client_id, client_auth and the \
             secret or key"
        ));
    }
    let is_known = REJECTIONS.contains(&&*error) || !needs_refresh && NO_REFRESH.contains(&&*error);
    if status.is_success() || is_known {
        Ok(())
    } else {
        Err(format!("the token endpoint responds with {status} ({error})"))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_good_provider_rejects_the_token_and_not_the_client() {
        let found = |status: u16, error: &str, needs_refresh: bool| {
            let status = StatusCode::from_u16(status).expect("a status");
            let body = Bytes::from(format!("{{\"error\":\"{error}\"}}"));
            let response = OAuthResponse { status, media_type: "application/json".into(), body };
            check(&response, needs_refresh).is_ok()
        };
        for (status, error, expected) in [
            (400, "invalid_grant", [true, true]),
            (400, "invalid_request", [true, true]),
            (403, "invalid_grant", [true, true]),
            (200, "", [true, true]),
            (401, "invalid_client", [false, false]),
            (400, "invalid_client", [false, false]),
            (401, "invalid_grant", [false, false]),
            (400, "unauthorized_client", [true, false]),
            (400, "unsupported_grant_type", [true, false]),
            (404, "not_found", [false, false]),
            (500, "server_error", [false, false]),
        ] {
            assert_eq!([false, true].map(|needs| found(status, error, needs)), expected, "{status} {error}");
        }
    }
}
