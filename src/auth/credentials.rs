//! Credentials of the gateway at the API of another server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::Mutex;

use crate::auth::oauth_client::{Endpoint, OAuthClient, OAuthClientError, read_bearer};
use crate::types::clock::{Clock, UnixTime};

/// Maximum size of an access token of the gateway in bytes.
const MAX_TOKEN: usize = 16 * 1024;

/// How long before its end, at most, a token is replaced.
const AHEAD: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq)]
pub enum Credentials {
    /// The whole value of `Authorization`.
    Fixed(HeaderValue),
    Client(Box<ClientToken>),
}

/// An access token that the gateway gets for itself, by the grant `client_credentials` (RFC 6749 section 4.4).
#[derive(Clone, Debug, PartialEq)]
pub struct ClientToken {
    pub endpoint: Endpoint,
    pub client: OAuthClient,
    /// Empty: as the server decides.
    pub scope: String,
    known: Known,
}

/// The last token, and until when it is used. Calls at the same time wait for one of them, which asks the server.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<Option<(HeaderValue, UnixTime)>>>);

/// The token cannot be printed.
impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Known")
    }
}

/// Two with the same settings are the same.
impl PartialEq for Known {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Why the gateway has no token.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    #[error("cannot ask the token endpoint")]
    Call(#[source] OAuthClientError),
    /// The response has none.
    #[error("the token endpoint gives no token: {0}")]
    Response(String),
}

impl Credentials {
    /// The value of `Authorization` for a call now.
    ///
    /// # Errors
    /// If a token is needed, and the server gives none.
    pub async fn authorization(&self, clock: &dyn Clock) -> Result<HeaderValue, NoToken> {
        match self {
            Credentials::Fixed(value) => Ok(value.clone()),
            Credentials::Client(token) => token.authorization(clock).await,
        }
    }

    /// The API has rejected this value. The next call gets another token.
    pub async fn reject(&self, rejected: &HeaderValue) {
        let Credentials::Client(token) = self else { return };
        let mut known = token.known.0.lock().await;
        if known.as_ref().is_some_and(|(value, _)| value == rejected) {
            *known = None;
        }
    }
}

impl ClientToken {
    pub fn new(endpoint: Endpoint, client: OAuthClient, scope: String) -> Self {
        ClientToken { endpoint, client, scope, known: Known::default() }
    }

    async fn authorization(&self, clock: &dyn Clock) -> Result<HeaderValue, NoToken> {
        let mut known = self.known.0.lock().await;
        // Read before the question: the lifetime in the response counts from when it was made.
        let now = clock.now();
        match &*known {
            Some((value, until)) if now < *until => Ok(value.clone()),
            _ => {
                let (value, lifetime) = self.ask(now).await?;
                let until = now + lifetime.saturating_sub(AHEAD.min(lifetime / 5));
                *known = Some((value.clone(), until));
                Ok(value)
            }
        }
    }

    async fn ask(&self, now: UnixTime) -> Result<(HeaderValue, Duration), NoToken> {
        let scope = Some(("scope", self.scope.as_str())).filter(|(_, scope)| !scope.is_empty());
        let fields: Vec<_> = [("grant_type", "client_credentials")].into_iter().chain(scope).collect();
        let response = self.client.post(&self.endpoint, &fields, now).await.map_err(NoToken::Call)?;
        let Some(object) = response.object() else {
            let error = response.error().unwrap_or_else(|| "no JSON object".to_owned());
            return Err(NoToken::Response(format!("{}: {error}", response.status)));
        };
        read_bearer(&object, MAX_TOKEN).map_err(|why| NoToken::Response(why.to_owned()))
    }
}
