//! Authentication of the client that calls an endpoint. A client of `[[oauth.client]]` proves it with an assertion
//! (`private_key_jwt`, RFC 7523) or its certificate (RFC 8705), and is not believed without. All other clients are
//! public.

use http::header;

use super::call::{Call, check_no_credentials};
use super::form::Form;
use crate::auth::client_certificate::ExpectedCertificate;
use crate::auth::registered_clients::{RegisteredClient, named_client};
use crate::store::{Mark, MarkKind, Marked};
use crate::tokens::bound::{Bound, ProvedClient};
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// RFC 7523 section 2.2.
pub(super) const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Parameters by which a client authenticates.
const SECRETS: [&str; 3] = ["client_secret", "client_assertion", "client_assertion_type"];

/// Who calls.
#[derive(Clone, Copy)]
pub(super) enum CallingClient<'c> {
    /// It names itself, or not. Nothing proves it.
    Public(Option<&'c str>),
    Registered(&'c RegisteredClient),
}

impl<'c> CallingClient<'c> {
    pub(super) fn id(self) -> Option<&'c str> {
        match self {
            CallingClient::Public(claimed) => claimed,
            CallingClient::Registered(client) => Some(&client.client_id),
        }
    }

    pub(super) fn registered(self) -> Result<&'c RegisteredClient, Reject> {
        match self {
            CallingClient::Public(_) => Err(not_authenticated("only registered clients may use this grant")),
            CallingClient::Registered(client) => Ok(client),
        }
    }

    /// What its tokens are bound to, of what it has proved. `by_default`: `tokens.certificate_bound`, for public
    /// clients.
    pub(super) fn with_proof(self, proved: Bound, by_default: bool) -> Result<ProvedClient, Reject> {
        let binds = match self {
            CallingClient::Public(_) => by_default,
            CallingClient::Registered(client) if client.certificate_bound && proved.certificate.is_none() => {
                let reject = Reject::new(Reason::BadParameter, "oauth.client.certificate_bound, and no certificate");
                return Err(reject.described("this client gets tokens only with a client certificate".to_owned()));
            }
            CallingClient::Registered(client) => client.certificate_bound,
        };
        let is_authenticated = matches!(self, CallingClient::Registered(_));
        Ok(ProvedClient { proved, is_authenticated, bind: proved.with_certificate_if(binds) })
    }
}

impl<'c> Call<'c, '_> {
    /// The client of this call. Its assertion is used up.
    pub(super) async fn client<'f>(&self, form: &'f Form) -> Result<CallingClient<'f>, Reject>
    where
        'c: 'f,
    {
        let claimed = form.get("client_id");
        // RFC 8705 section 2: such a client names itself. No other one is looked for by its certificate.
        let with_certificate = claimed.and_then(|claimed| self.endpoints.client(claimed));
        if let Some((client, expected)) = with_certificate.and_then(|client| Some((client, client.certificate()?))) {
            self.check_certificate(expected, form)?;
            return Ok(CallingClient::Registered(client));
        }
        let assertion = form.get("client_assertion").zip(form.get("client_assertion_type"));
        match assertion {
            Some((assertion, ASSERTION_TYPE)) if !self.endpoints.clients.is_empty() => {
                if form.get("client_secret").is_some() {
                    return Err(bad("an assertion and a secret"));
                }
                self.assertion_client(assertion, claimed).await.map(CallingClient::Registered)
            }
            _ => {
                self.check_client(form)?;
                match claimed.and_then(|claimed| self.endpoints.client(claimed)) {
                    Some(client) if client.authenticates() => {
                        Err(not_authenticated("the client_id of a registered client without an assertion"))
                    }
                    _ => Ok(CallingClient::Public(claimed)),
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

    async fn assertion_client(&self, assertion: &str, claimed: Option<&str>) -> Result<&'c RegisteredClient, Reject> {
        // RFC 6749 section 2.3: one method of authentication.
        if self.headers.contains_key(header::AUTHORIZATION) {
            return Err(bad("an assertion and an Authorization header"));
        }
        if assertion.len() > self.authenticator.token_size {
            return Err(bad("longer than limits.token_size"));
        }
        let named = named_client(assertion).ok_or_else(|| bad("malformed, or without iss"))?;
        let client = self.endpoints.client(&named).filter(|client| client.assertions().is_some());
        let client = client.ok_or_else(|| bad("iss is no registered client with assertions"))?;
        if claimed.is_some_and(|claimed| claimed != client.client_id) {
            return Err(bad("client_id and the iss of the assertion differ"));
        }
        let verified = self.client_keys.verify(&client.client_id, assertion, &self.context.auth()).await;
        let verified = verified.map_err(|reject| {
            if reject.reason.is_invalid_token() {
                bad(format!("{}: {}", reject.reason.code(), reject.detail))
            } else {
                reject
            }
        })?;
        let mark = Mark {
            kind: MarkKind::ClientAssertion,
            issuer: client.client_id.clone(),
            key: verified.jti,
            value: secret::digest(&[assertion.as_bytes()]),
            until: verified.expires,
        };
        match self.broker.mark(mark, self.context.event()).await? {
            Marked::First => Ok(client),
            // Not even the same assertion again: a client signs one for each call.
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

fn not_authenticated(detail: &'static str) -> Reject {
    Reject::new(Reason::ClientNotAuthenticated, detail)
}
