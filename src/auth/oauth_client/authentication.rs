//! Authentication of the gateway as a client of another server (RFC 6749 section 2.3, RFC 7523, RFC 8705).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use serde_json::{Map, Value, json};

use super::error::OAuthClientError;
use crate::protocols::http::parameters::encode;
use crate::protocols::tls::CertificateFiles;
use crate::tokens::jwt::sign::SigningKey;
use crate::types::clock::UnixTime;
use crate::types::secret::{self, Secret};

/// RFC 7523 section 2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How long an assertion is valid. It is used at once.
const ASSERTION_LIFETIME: Duration = Duration::from_mins(1);

/// The names are those of `token_endpoint_auth_methods_supported` (RFC 8414).
#[derive(Clone, Debug)]
pub enum ClientAuthentication {
    /// `none`: a public client.
    Public,
    /// `client_secret_basic`
    SecretBasic(Arc<Secret>),
    /// `client_secret_post`
    SecretPost(Arc<Secret>),
    /// `private_key_jwt`
    Assertion(AssertionKey),
    /// `tls_client_auth` and `self_signed_tls_client_auth`: the handshake proves it.
    Certificate(CertificateFiles),
}

/// A key that signs assertions.
#[derive(Clone)]
pub struct AssertionKey {
    pub key: Arc<SigningKey>,
    /// The name of the key at the server.
    pub kid: String,
}

/// The private key cannot be printed.
impl fmt::Debug for AssertionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AssertionKey({})", self.kid)
    }
}

/// Secrets are compared in constant time, keys by their thumbprints.
impl PartialEq for ClientAuthentication {
    fn eq(&self, other: &Self) -> bool {
        use ClientAuthentication::{Assertion, Certificate, Public, SecretBasic, SecretPost};
        match (self, other) {
            (Public, Public) => true,
            (SecretBasic(one), SecretBasic(other)) | (SecretPost(one), SecretPost(other)) => {
                one.matches(other.expose())
            }
            (Assertion(one), Assertion(other)) => one.key.kid == other.key.kid && one.kid == other.kid,
            (Certificate(one), Certificate(other)) => one == other,
            _ => false,
        }
    }
}

/// What a request carries besides its own fields.
pub(super) struct Proof {
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) authorization: Option<HeaderValue>,
}

impl ClientAuthentication {
    /// A new proof for each request: an assertion can be used once.
    pub(super) fn prove(&self, client_id: &str, issuer: &str, now: UnixTime) -> Result<Proof, OAuthClientError> {
        let with = |fields| Ok(Proof { fields, authorization: None });
        let id = || ("client_id", client_id.to_owned());
        match self {
            ClientAuthentication::Public | ClientAuthentication::Certificate(_) => with(vec![id()]),
            ClientAuthentication::SecretBasic(secret) => {
                Ok(Proof { fields: Vec::new(), authorization: Some(basic(client_id, secret)?) })
            }
            ClientAuthentication::SecretPost(secret) => with(vec![id(), ("client_secret", text(secret)?.to_owned())]),
            ClientAuthentication::Assertion(key) => with(vec![
                id(),
                ("client_assertion_type", ASSERTION_TYPE.to_owned()),
                ("client_assertion", key.assertion(client_id, issuer, now)?),
            ]),
        }
    }
}

impl AssertionKey {
    /// The audience is the issuer identifier and nothing else: with the URL of an endpoint, a hostile server could make
    /// the gateway sign an assertion for another one (CVE-2025-27370).
    fn assertion(&self, client_id: &str, issuer: &str, now: UnixTime) -> Result<String, OAuthClientError> {
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": issuer,
            "iat": now.as_secs(),
            "exp": (now + ASSERTION_LIFETIME).as_secs(),
            "jti": URL_SAFE_NO_PAD.encode(secret::random::<16>()),
        });
        let claims: Map<String, Value> = claims.as_object().cloned().unwrap_or_default();
        self.key.sign_as("JWT", &self.kid, &claims).map_err(OAuthClientError::Assertion)
    }
}

/// RFC 6749 section 2.3.1: id and secret are form-encoded first, so that a colon in the id does not end it.
fn basic(client_id: &str, secret: &Secret) -> Result<HeaderValue, OAuthClientError> {
    let pair = format!("{}:{}", encode(client_id), encode(text(secret)?));
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
    let mut value = value.map_err(|_| OAuthClientError::UnusableSecret)?;
    value.set_sensitive(true);
    Ok(value)
}

fn text(secret: &Secret) -> Result<&str, OAuthClientError> {
    str::from_utf8(secret.expose()).map_err(|_| OAuthClientError::UnusableSecret)
}
