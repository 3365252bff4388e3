//! Authentication of the client that calls an endpoint. A client of `[[oauth.client]]` proves it with an assertion
//! (`private_key_jwt`, RFC 7523) or its certificate (RFC 8705), and is not believed without. So does a client with a
//! key in its document. All other clients are public.

use std::iter;
use std::sync::Arc;

use http::header;

use super::call::{Call, check_no_credentials};
use super::form::Form;
use super::metadata;
use crate::auth::client_certificate::ExpectedCertificate;
use crate::auth::client_documents;
use crate::auth::proof_verifier::GrantProof;
use crate::auth::registered_clients::{RegisteredClient, named_client, verify_assertion};
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::authorization::client_document;
use crate::tokens::bound::{Bound, ProvedClient};
use crate::tokens::jwt::client_assertion::{self, ClientAssertion};
use crate::tokens::jwt::verify::TrustedIssuer;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// RFC 7523 section 2.2.
pub(super) const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Parameters by which a client authenticates.
const SECRETS: [&str; 3] = ["client_secret", "client_assertion", "client_assertion_type"];

/// A client that has called, and what it must use up before it gets tokens.
pub(crate) struct Calling<'c> {
    pub(crate) client: CallingClient<'c>,
    pub(super) once: UsedOnce,
}

/// What a call uses up at all gateways. Anyone can make a document and a key, and a stranger's call must write nothing
/// to the store: so it is used up when the call has shown a code or a token that this gateway has issued, and by no
/// other call.
#[derive(Default)]
pub(super) struct UsedOnce {
    /// Of a client with a document.
    assertion: Option<Mark>,
    pub(super) proof: GrantProof,
}

impl UsedOnce {
    pub(super) fn is_empty(&self) -> bool {
        self.assertion.is_none() && !self.proof.is_unshared()
    }
}

/// Who calls.
#[derive(Clone, Copy)]
pub(crate) enum CallingClient<'c> {
    /// It names itself, or not. Nothing proves it.
    Public(Option<&'c str>),
    Registered(&'c RegisteredClient),
    /// It has proved that it has a key of the document at this URL, which is its name.
    Described(&'c str),
}

impl<'c> From<CallingClient<'c>> for Calling<'c> {
    fn from(client: CallingClient<'c>) -> Self {
        Calling { client, once: UsedOnce::default() }
    }
}

impl<'c> CallingClient<'c> {
    pub(crate) fn id(self) -> Option<&'c str> {
        match self {
            CallingClient::Public(claimed) => claimed,
            CallingClient::Registered(client) => Some(&client.client_id),
            CallingClient::Described(url) => Some(url),
        }
    }

    /// How it has authenticated (RFC 8414). `None`: it has not.
    pub(crate) fn method(self) -> Option<&'static str> {
        match self {
            CallingClient::Public(_) => None,
            CallingClient::Registered(client) => client.method(),
            CallingClient::Described(_) => Some("private_key_jwt"),
        }
    }

    pub(super) fn registered(self) -> Result<&'c RegisteredClient, Reject> {
        match self {
            CallingClient::Public(_) | CallingClient::Described(_) => {
                Err(not_authenticated("only registered clients may use this grant"))
            }
            CallingClient::Registered(client) => Ok(client),
        }
    }

    /// What its tokens are bound to, of what it has proved. `by_default`: `tokens.certificate_bound`, for public
    /// clients.
    pub(super) fn with_proof(self, proved: Bound, by_default: bool) -> Result<ProvedClient, Reject> {
        let binds = match self {
            CallingClient::Public(_) | CallingClient::Described(_) => by_default,
            CallingClient::Registered(client) if client.certificate_bound && proved.certificate.is_none() => {
                let reject = Reject::new(Reason::BadParameter, "oauth.client.certificate_bound, and no certificate");
                return Err(reject.described("this client gets tokens only with a client certificate".to_owned()));
            }
            CallingClient::Registered(client) => client.certificate_bound,
        };
        let is_authenticated = self.method().is_some();
        Ok(ProvedClient { proved, is_authenticated, bind: proved.with_certificate_if(binds) })
    }
}

impl<'c> Call<'c, '_> {
    /// The client of this call.
    pub(crate) async fn client<'f>(&self, form: &'f Form) -> Result<Calling<'f>, Reject>
    where
        'c: 'f,
    {
        let claimed = form.get("client_id");
        // RFC 8705 section 2: such a client names itself. No other one is looked for by its certificate.
        let with_certificate = claimed.and_then(|claimed| self.endpoints.client(claimed));
        if let Some((client, expected)) = with_certificate.and_then(|client| Some((client, client.certificate()?))) {
            self.check_certificate(expected, form)?;
            return Ok(CallingClient::Registered(client).into());
        }
        let assertion = form.get("client_assertion").zip(form.get("client_assertion_type"));
        match assertion {
            Some((assertion, ASSERTION_TYPE)) if self.endpoints.takes_assertions() => {
                if form.get("client_secret").is_some() {
                    return Err(bad("an assertion and a secret"));
                }
                self.assertion_client(assertion, claimed).await
            }
            _ => {
                self.check_client(form)?;
                match claimed.and_then(|claimed| self.endpoints.client(claimed)) {
                    Some(client) if client.authenticates() => {
                        Err(not_authenticated("the client_id of a registered client without an assertion"))
                    }
                    _ => Ok(CallingClient::Public(claimed).into()),
                }
            }
        }
    }

    /// The client shows its certificate in the handshake of the connection that the call comes on.
    fn check_certificate(&self, expected: &ExpectedCertificate, form: &Form) -> Result<(), Reject> {
        // RFC 6749 sections 2.3 and 5.2: one method of authentication.
        let others = SECRETS.iter().any(|name| form.get(name).is_some());
        if others || self.headers.contains_key(header::AUTHORIZATION) {
            return Err(Reject::new(Reason::BadParameter, "the client authenticates in a second way"));
        }
        let other = |detail| Reject::new(Reason::ClientCertificate, detail);
        expected.check(self.context.certificate()).map_err(other)
    }

    async fn assertion_client<'f>(&self, assertion: &str, claimed: Option<&'f str>) -> Result<Calling<'f>, Reject>
    where
        'c: 'f,
    {
        // RFC 6749 section 2.3: one method of authentication.
        if self.headers.contains_key(header::AUTHORIZATION) {
            return Err(bad("an assertion and an Authorization header"));
        }
        if assertion.len() > self.authenticator.token_size {
            return Err(bad("longer than limits.token_size"));
        }
        let named = named_client(assertion).ok_or_else(|| bad("malformed, or without iss"))?;
        if claimed.is_some_and(|claimed| claimed != named) {
            return Err(bad("client_id and the iss of the assertion differ"));
        }
        let registered = self.endpoints.client(&named);
        let (client, verified) = match (registered, claimed) {
            (Some(client), _) if client.assertions().is_some() => {
                let verified = self.client_keys.verify(&client.client_id, assertion, &self.context.auth()).await;
                (CallingClient::Registered(client), verified)
            }
            (None, Some(url)) if url.starts_with(client_document::SCHEME) => {
                // Boxed because it is rare.
                (CallingClient::Described(url), Box::pin(self.verify_described(url, assertion)).await)
            }
            _ => return Err(bad("iss is no registered client with assertions, and no client_id with a document")),
        };
        let verified = verified.map_err(|reject| {
            if reject.reason.is_invalid_token() {
                bad(format!("{}: {}", reject.reason.code(), reject.detail))
            } else {
                reject
            }
        })?;
        let mark = Mark {
            kind: MarkKind::ClientAssertion,
            issuer: named,
            key: verified.jti,
            value: secret::digest(&[assertion.as_bytes()]),
            until: verified.expires,
        };
        if matches!(client, CallingClient::Registered(_)) {
            self.use_up_assertion(mark).await?;
            return Ok(client.into());
        }
        Ok(Calling { client, once: UsedOnce { assertion: Some(mark), ..UsedOnce::default() } })
    }

    /// Verifies an assertion with the keys of the client's document, and fetches these again if its key is unknown.
    async fn verify_described(&self, url: &str, assertion: &str) -> Result<ClientAssertion, Reject> {
        let settings = self.endpoints.authorization.as_ref().and_then(|settings| settings.documents.as_ref());
        let settings = settings.ok_or_else(|| bad("oauth.client_documents is off"))?;
        let now = self.context.clock.uptime();
        let document =
            self.documents.find_current(url, settings, self.context.client(), now).await.map_err(unknown_client)?;
        let keys = document.keys.as_ref().ok_or_else(|| bad("the document of the client names no key"))?;
        let algorithms = client_documents::ALGORITHMS.to_vec();
        let policy = Arc::new(client_assertion::policy(url, algorithms, self.names_for_described()));
        let mut is_unknown = false;
        loop {
            let keys = self.documents.keys(keys, settings, self.context.client(), now, is_unknown).await?;
            let client = TrustedIssuer { policy: policy.clone(), keys };
            match verify_assertion(assertion, &client, &self.context.auth()).await {
                Err(unknown) if unknown.reason == Reason::UnknownKey && !is_unknown => is_unknown = true,
                verified => return verified,
            }
        }
    }

    /// The audiences of assertions of clients with documents: the issuer, or the token endpoint, as ChatGPT names it
    /// (RFC 7523 section 3). A server can make a client name the endpoint of another one, so that the operator's own
    /// clients must name the issuer. Here, such an assertion is worth nothing without a code or a refresh token.
    fn names_for_described(&self) -> Vec<String> {
        let issuer = &self.broker.settings.issuer;
        let endpoint = self.endpoints.token_endpoint.iter().map(|path| format!("{}{path}", metadata::base(issuer)));
        iter::once(issuer.clone()).chain(endpoint).collect()
    }

    /// A client signs an assertion and a proof for each call.
    pub(super) async fn use_up(&self, once: UsedOnce) -> Result<(), Reject> {
        self.authenticator.proof_verifier.use_up_everywhere(once.proof, self.context.clock.now()).await?;
        match once.assertion {
            Some(mark) => self.use_up_assertion(mark).await,
            None => Ok(()),
        }
    }

    async fn use_up_assertion(&self, mark: Mark) -> Result<(), Reject> {
        match self.broker.mark(mark, self.context.event()).await? {
            Marked::First => Ok(()),
            Marked::Repeated | Marked::Taken => Err(bad("its jti was used before")),
        }
    }

    /// Rejects the credentials of a client that has none here. Such a client expects them to be checked.
    fn check_client(&self, form: &Form) -> Result<(), Reject> {
        if SECRETS.iter().any(|name| form.get(name).is_some()) {
            return Err(Reject::new(Reason::ClientAuthentication, "a secret in the form"));
        }
        check_no_credentials(self.headers)
    }
}

fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::new(Reason::ClientAssertion, detail)
}

/// RFC 6749 section 5.2: `invalid_client`.
fn unknown_client(reject: Reject) -> Reject {
    if reject.reason == Reason::UnknownClient { bad(reject.detail) } else { reject }
}

fn not_authenticated(detail: &'static str) -> Reject {
    Reject::new(Reason::ClientNotAuthenticated, detail)
}
