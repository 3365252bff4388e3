//! The clients that authenticate at the endpoints of `[oauth]`, and their keys.
//!
//! The keys are in no keyring, so that no key of a client can sign an access token.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::auth::client_certificate::ExpectedCertificate;
use crate::auth::context::AuthContext;
use crate::auth::keyring::{KeySource, KeyUser, Source};
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::jwt::Issuer;
use crate::tokens::jwt::client_assertion::{self, ClientAssertion};
use crate::tokens::jwt::verify::{self, TrustedIssuer};
use crate::tokens::login::CLIENT_SUBJECT_PREFIX;
use crate::tokens::sign_in::place::SignInPlace;
use crate::types::reject::{Reason, Reject};

/// `[[oauth.client]]`
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredClient {
    pub client_id: String,
    pub authentication: ClientProof,
    /// If true, its access tokens are bound to the certificate that it shows, and it gets none without one.
    pub certificate_bound: bool,
    /// If true, it gets tokens for itself by the grant `client_credentials`.
    pub client_credentials: bool,
    /// The scopes that its own tokens can have.
    pub scopes: Vec<String>,
    /// The `aud` of its own tokens.
    pub audience: Vec<String>,
    /// How long its own tokens are valid.
    pub lifetime: Duration,
    /// If true, it gets only access tokens that are bound to a key (RFC 9449 section 5.2).
    pub dpop_bound: bool,
    /// `oauth.client.redirect_uris`. `None`: it does not ask users.
    pub authorization: Option<ClientAuthorization>,
}

/// How a client may ask users.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientAuthorization {
    /// At least one.
    pub redirect_uris: Vec<RedirectUri>,
    /// `oauth.client.consent = "never"`: users are not asked.
    pub skips_consent: bool,
    /// `oauth.client.sign_in`: where its users sign in. `None`: as those of all clients.
    pub sign_in: Option<SignInPlace>,
    /// `oauth.client.require_par`: it sends its requests itself, before the browser does.
    pub must_push: bool,
}

/// `oauth.client.client_auth`: how a client proves who it is.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientProof {
    /// `private_key_jwt`
    Assertion {
        /// The conditions for its assertions.
        policy: Issuer,
        keys: KeySource,
    },
    /// By its TLS handshake (RFC 8705).
    Certificate(ExpectedCertificate),
    /// `none`: it is a public client, and proves nothing.
    Nothing,
}

impl RegisteredClient {
    /// What verifies its assertions. `None` if it authenticates with a certificate.
    pub fn assertions(&self) -> Option<(&Issuer, &KeySource)> {
        match &self.authentication {
            ClientProof::Assertion { policy, keys } => Some((policy, keys)),
            ClientProof::Certificate(_) | ClientProof::Nothing => None,
        }
    }

    /// Returns true if it authenticates, so that its name alone is not enough.
    pub fn authenticates(&self) -> bool {
        self.authentication != ClientProof::Nothing
    }

    /// How it authenticates (RFC 8414). `None`: it does not.
    pub fn method(&self) -> Option<&'static str> {
        match &self.authentication {
            ClientProof::Assertion { .. } => Some("private_key_jwt"),
            ClientProof::Certificate(expected) => Some(expected.method()),
            ClientProof::Nothing => None,
        }
    }

    /// The certificate that it authenticates with.
    pub fn certificate(&self) -> Option<&ExpectedCertificate> {
        match &self.authentication {
            ClientProof::Assertion { .. } | ClientProof::Nothing => None,
            ClientProof::Certificate(expected) => Some(expected),
        }
    }

    /// The `sub` of its own tokens.
    pub fn subject(&self) -> String {
        format!("{CLIENT_SUBJECT_PREFIX}{}", self.client_id)
    }
}

/// Verifies the assertions of clients.
#[derive(Default)]
pub struct ClientKeys {
    sources: ArcSwap<Vec<Arc<Source>>>,
}

impl KeyUser for ClientKeys {
    fn sources(&self) -> Vec<Arc<Source>> {
        self.sources.load().to_vec()
    }

    fn replace_sources(&self, sources: Vec<Arc<Source>>) {
        self.sources.store(Arc::new(sources));
    }

    /// Each use reads the keys of its source.
    fn publish(&self) {}
}

impl ClientKeys {
    fn source_of(&self, client_id: &str) -> Result<Arc<Source>, Reject> {
        let sources = self.sources.load();
        let source = sources.iter().find(|source| *source.policy.issuer == *client_id).cloned();
        source.ok_or_else(|| Reject::new(Reason::KeysUnavailable, "the keys of this client are not loaded"))
    }

    /// Verifies an assertion of this client, and asks for its keys once if the key is unknown. Its `jti` may be taken
    /// already.
    pub async fn verify(
        &self,
        client_id: &str,
        assertion: &str,
        context: &AuthContext<'_>,
    ) -> Result<ClientAssertion, Reject> {
        let source = self.source_of(client_id)?;
        match verify_assertion(assertion, &source.trusted(), context).await {
            Err(unknown) if unknown.reason == Reason::UnknownKey => {}
            verified => return verified,
        }
        source.refetch_unknown(context.clock.uptime()).await?;
        let verified = verify_assertion(assertion, &source.trusted(), context).await;
        verified.map_err(|still| source.still_rejected(still))
    }
}

/// Verifies an assertion with the keys of its client. A bad signature counts, and waits for its turn.
pub async fn verify_assertion(
    assertion: &str,
    client: &TrustedIssuer,
    context: &AuthContext<'_>,
) -> Result<ClientAssertion, Reject> {
    context.payer.check(context.clock.uptime())?;
    let permit = context.signature_queue.next().await;
    let verified = client_assertion::verify(assertion, client, context.now, context.steps);
    if verified.as_ref().is_err_and(|reject| reject.reason == Reason::BadSignature) {
        context.payer.count(context.clock.uptime());
    }
    permit.end().await;
    verified
}

/// The client that an assertion names. Nothing is verified.
pub fn named_client(assertion: &str) -> Option<String> {
    verify::unverified_issuer(assertion)
}
