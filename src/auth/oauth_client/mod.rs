//! The gateway as a client of the OAuth endpoints of another server: token, introspection and revocation endpoints.
//!
//! Each call has a connection of its own, so that a late response cannot be taken for that of another call. Time and
//! size of the response are limited, and redirects are not followed.

mod access_token;
mod authentication;
mod breaker;
mod error;
mod response;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::time::Instant;

use crate::protocols::http::client::{self, ClientError, Limits, USER_AGENT};
use crate::protocols::http::parameters;
use crate::protocols::reach::Reach;
use crate::protocols::url::SecureUrl;
use crate::types::clock::UnixTime;

pub use access_token::read_bearer;
pub use authentication::{AssertionKey, ClientAuthentication};
pub use breaker::CircuitBreaker;
pub use error::OAuthClientError;
pub use response::OAuthResponse;

/// Maximum size of a response in bytes.
const SIZE_LIMIT: usize = 1024 * 1024;
/// How long the certificates on the disk are not read again.
const TLS_AGE: Duration = Duration::from_mins(5);

/// Where an endpoint of another server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub url: SecureUrl,
    /// The least reach that its address must have. [`Reach::Loopback`] for a URL that the operator chose.
    pub reach: Reach,
}

impl Endpoint {
    /// An endpoint that the operator chose.
    pub fn configured(url: SecureUrl) -> Self {
        Endpoint { url, reach: Reach::Loopback }
    }
}

/// One registration of the gateway at another server.
#[derive(Clone, Debug)]
pub struct OAuthClient {
    pub client_id: String,
    pub authentication: ClientAuthentication,
    /// The server's issuer identifier: the audience of assertions (RFC 7523bis).
    pub issuer: String,
    /// CA certificates (PEM) for `https://`. `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Maximum time of a call, from the first packet to the last byte.
    pub time_limit: Duration,
    tls: TlsCache,
}

/// The TLS configuration of the last calls. Reading the system's certificates takes milliseconds.
#[derive(Clone, Debug, Default)]
struct TlsCache(Arc<Mutex<Option<ReadTls>>>);

/// When it was read, and the configuration.
type ReadTls = (Instant, Arc<ClientConfig>);

/// What was read from the disk meanwhile does not matter.
impl PartialEq for OAuthClient {
    fn eq(&self, other: &Self) -> bool {
        let settings = |client: &Self| (client.client_id.clone(), client.issuer.clone(), client.ca_file.clone());
        settings(self) == settings(other)
            && self.authentication == other.authentication
            && self.time_limit == other.time_limit
    }
}

impl OAuthClient {
    pub fn new(
        client_id: String,
        authentication: ClientAuthentication,
        issuer: String,
        ca_file: Option<PathBuf>,
        time_limit: Duration,
    ) -> Self {
        OAuthClient { client_id, authentication, issuer, ca_file, time_limit, tls: TlsCache::default() }
    }

    /// Posts `fields` and the proof of who the client is. Any status is a response.
    ///
    /// # Errors
    /// If the request cannot be made, or no complete response arrives in time.
    pub async fn post(
        &self,
        to: &Endpoint,
        fields: &[(&str, &str)],
        now: UnixTime,
    ) -> Result<OAuthResponse, OAuthClientError> {
        self.post_accepting("application/json", to, fields, now).await
    }

    /// As [`OAuthClient::post`], for a response of this media type.
    ///
    /// # Errors
    /// As [`OAuthClient::post`].
    pub async fn post_accepting(
        &self,
        media_type: &'static str,
        to: &Endpoint,
        fields: &[(&str, &str)],
        now: UnixTime,
    ) -> Result<OAuthResponse, OAuthClientError> {
        let proof = self.authentication.prove(&self.client_id, &self.issuer, now)?;
        let own = proof.fields.iter().map(|(name, value)| (*name, value.as_str()));
        let form = parameters::write(fields.iter().copied().chain(own));
        let request = Request::post(&to.url.target)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, media_type);
        self.send(to, request, proof.authorization, form.into()).await
    }

    /// Gets a document with a Bearer token, for example the claims of a user.
    ///
    /// # Errors
    /// As [`OAuthClient::post`].
    pub async fn get(&self, from: &Endpoint, bearer: &str) -> Result<OAuthResponse, OAuthClientError> {
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {bearer}")).map_err(|_| OAuthClientError::UnusableToken)?;
        authorization.set_sensitive(true);
        let request = Request::get(&from.url.target).header(header::ACCEPT, "application/json");
        self.send(from, request, Some(authorization), Bytes::new()).await
    }

    async fn send(
        &self,
        to: &Endpoint,
        mut request: Builder,
        authorization: Option<HeaderValue>,
        body: Bytes,
    ) -> Result<OAuthResponse, OAuthClientError> {
        request = request
            .header(header::HOST, &to.url.authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let failed = |source| OAuthClientError::NoResponse { url: to.url.clone(), source };
        let request = request.body(Full::from(body)).map_err(ClientError::Request).map_err(failed)?;
        let tls = if to.url.tls { Some(self.tls_config().map_err(failed)?) } else { None };
        let limits =
            Limits { time: self.time_limit, body_size: SIZE_LIMIT, reach: to.reach, reads_body: response::is_read };
        let response = client::send_with(&to.url, tls, request, &limits).await.map_err(failed)?;
        OAuthResponse::of(response).map_err(|problem| problem.of(&to.url))
    }

    /// Renewed certificates are used after some minutes.
    fn tls_config(&self) -> Result<Arc<ClientConfig>, ClientError> {
        let mut cached = self.tls.0.lock();
        match &*cached {
            Some((read, config)) if read.elapsed() < TLS_AGE => Ok(config.clone()),
            _ => {
                let certificate = match &self.authentication {
                    ClientAuthentication::Certificate(files) => Some(files),
                    _ => None,
                };
                let config = client::tls_config(certificate, self.ca_file.as_deref())?;
                *cached = Some((Instant::now(), config.clone()));
                Ok(config)
            }
        }
    }
}

#[cfg(test)]
mod tests;
