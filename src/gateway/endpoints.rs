//! The paths of the gateway that the operator chooses: the endpoints for OAuth clients (`[oauth]`), the metadata of
//! protected resources, and where identity providers report. Each is off unless it is configured. `oauth/` and
//! `provider_events/` carry them out.

use std::collections::BTreeSet;
use std::fmt;
use std::iter;

use http::Method;

use crate::auth::client_documents;
use crate::auth::registered_clients::RegisteredClient;
use crate::gateway::authorization_server::settings::AuthorizationSettings;
use crate::gateway::exchange_rule::ExchangeRule;
use crate::gateway::protected_resource::Resources;
use crate::limits::limiter::Key;
use crate::tokens::authorization::denied_clients::DeniedClients;
use crate::tokens::authorization::redirect_uri::RedirectUri;
use crate::tokens::jwt::algorithm_name;
use crate::types::reject::{Reason, Reject};
use crate::types::secret;

/// RFC 8693 section 2.1.
pub const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// `[oauth]`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// `oauth.token_endpoint`, `oauth.revocation_endpoint`, `oauth.introspection_endpoint`: paths.
    pub token_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
    pub introspection_endpoint: Option<String>,
    /// `oauth.mtls_url`: the beginning of their URLs where clients are asked for certificates.
    pub mtls_url: Option<String>,
    /// `oauth.resource`, `route.resource`
    pub resources: Resources,
    /// `[[oauth.resource_server]]`
    pub resource_servers: Vec<ResourceServer>,
    /// `[[oauth.client]]`
    pub clients: Vec<RegisteredClient>,
    /// `oauth.denied_clients`
    pub denied: DeniedClients,
    /// `[[oauth.exchange]]`, in order: the first one that accepts a token applies.
    pub exchange: Vec<ExchangeRule>,
    /// `oauth.sign_in`, `oauth.login_page`. `None`: no client can ask users.
    pub authorization: Option<Box<AuthorizationSettings>>,
}

/// A path of the gateway that the operator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Client(ClientEndpoint),
    Browser(BrowserEndpoint),
    /// RFC 9126
    Push,
    /// RFC 7591
    Register,
    /// RFC 9728
    ProtectedResource,
    Report(ProviderReport),
}

/// An endpoint for OAuth clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEndpoint {
    /// RFC 6749 section 3.2
    Token,
    /// RFC 7009
    Revoke,
    /// RFC 7662
    Introspect,
}

/// An endpoint that browsers load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserEndpoint {
    /// OAuth 2.1 section 3.1
    Authorize,
    /// The page on which the user agrees.
    Consent,
    /// The page on which the user ends grants.
    Grants,
}

/// An endpoint at which identity providers report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderReport {
    /// Logout tokens of the provider with this position (OpenID Connect Back-Channel Logout 1.0).
    BackchannelLogout(usize),
    /// Pushed events of the `[[event_stream]]` with this position among those with a path (RFC 8935).
    SecurityEvents(usize),
}

impl Endpoints {
    /// The endpoints that are switched on, with their paths.
    pub fn enabled(&self) -> impl Iterator<Item = (Endpoint, &str)> {
        // Each path once.
        let metadata: BTreeSet<_> = self.resources.paths().collect();
        let metadata = metadata.into_iter().map(|path| (Endpoint::ProtectedResource, path));
        let of_clients = self.for_clients().map(|(endpoint, path)| (Endpoint::Client(endpoint), path));
        of_clients.chain(self.of_front().map(|(endpoint, path, _)| (endpoint, path))).chain(metadata)
    }

    /// Those of the authorization server that `oauth.sign_in` or `oauth.login_page` switches on, with the keys of their
    /// paths.
    pub fn of_front(&self) -> impl Iterator<Item = (Endpoint, &str, &'static str)> {
        let settings = self.authorization.as_deref();
        let pages = settings.into_iter().flat_map(|settings| {
            let authorize = Endpoint::Browser(BrowserEndpoint::Authorize);
            let consent = Endpoint::Browser(BrowserEndpoint::Consent);
            let grants = Endpoint::Browser(BrowserEndpoint::Grants);
            [
                (authorize, &*settings.authorization_endpoint, "authorization_endpoint"),
                (consent, &*settings.consent_page, "consent_page"),
                (grants, &*settings.grants_page, "grants_page"),
                (Endpoint::Push, &*settings.par_endpoint, "par_endpoint"),
            ]
        });
        let registration = settings.and_then(|settings| settings.registration.as_ref());
        pages.chain(registration.map(|settings| (Endpoint::Register, &*settings.endpoint, "registration_endpoint")))
    }

    /// The paths that the operator chooses in `[oauth]`, with their keys.
    pub fn chosen(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let of_clients = self.for_clients().map(|(endpoint, path)| (endpoint.key(), path));
        of_clients.chain(self.of_front().map(|(_, path, key)| (key, path)))
    }

    /// Those for OAuth clients among them. Routing and metadata both use this list.
    pub fn for_clients(&self) -> impl Iterator<Item = (ClientEndpoint, &str)> {
        let paths = [
            (ClientEndpoint::Token, &self.token_endpoint),
            (ClientEndpoint::Revoke, &self.revocation_endpoint),
            (ClientEndpoint::Introspect, &self.introspection_endpoint),
        ];
        paths.into_iter().filter_map(|(endpoint, path)| Some((endpoint, path.as_deref()?)))
    }

    /// Returns true if clients call this path on their way to tokens.
    pub fn is_for_clients(&self, path: &str) -> bool {
        self.chosen_at(path).is_some_and(Endpoint::leads_to_tokens)
    }

    /// Returns true for a page of the authorization server, which no page of another origin may read.
    pub fn is_page(&self, path: &str) -> bool {
        matches!(self.chosen_at(path), Some(Endpoint::Browser(_)))
    }

    /// The endpoint at this path, if the operator chooses its path.
    fn chosen_at(&self, path: &str) -> Option<Endpoint> {
        let of_clients = self.for_clients().map(|(endpoint, path)| (Endpoint::Client(endpoint), path));
        let of_front = self.of_front().map(|(endpoint, path, _)| (endpoint, path));
        of_clients.chain(of_front).find(|(_, known)| *known == path).map(|(endpoint, _)| endpoint)
    }

    /// The values of `grant_type` that the token endpoint accepts.
    pub fn grant_types(&self) -> Vec<&'static str> {
        let client_credentials = self.clients.iter().any(|client| client.client_credentials);
        let exchange = !self.exchange.is_empty();
        let grants = [
            ("authorization_code", self.authorization.is_some()),
            ("refresh_token", true),
            ("client_credentials", client_credentials),
            (TOKEN_EXCHANGE, exchange),
        ];
        grants.into_iter().filter(|(_, is_supported)| *is_supported).map(|(grant, _)| grant).collect()
    }

    /// The names of the algorithms with which clients sign their assertions, each once.
    pub fn assertion_algorithms(&self) -> Vec<&'static str> {
        let policies = self.clients.iter().filter_map(RegisteredClient::assertions);
        let all = policies.flat_map(|(policy, _)| &policy.algorithms);
        let described: &[_] = if self.has_documents() { &client_documents::ALGORITHMS } else { &[] };
        let names: BTreeSet<_> = all.chain(described).map(|algorithm| algorithm_name(*algorithm)).collect();
        names.into_iter().collect()
    }

    /// How clients can authenticate at the token endpoint (RFC 8414). All others are public clients.
    pub fn client_methods(&self) -> Vec<&'static str> {
        let described = if self.has_documents() { Some("private_key_jwt") } else { None };
        let methods: BTreeSet<_> = self.clients.iter().filter_map(RegisteredClient::method).chain(described).collect();
        iter::once("none").chain(methods).collect()
    }

    /// Returns true if a client can authenticate with an assertion.
    pub fn takes_assertions(&self) -> bool {
        !self.clients.is_empty() || self.has_documents()
    }

    fn has_documents(&self) -> bool {
        self.authorization.as_ref().is_some_and(|settings| settings.documents.is_some())
    }

    /// The origins of the single-page applications among the clients.
    pub fn application_origins(&self) -> impl Iterator<Item = String> {
        let public = self.clients.iter().filter(|client| !client.authenticates());
        let asking = public.filter_map(|client| client.authorization.as_ref());
        let origins = asking.flat_map(|asking| &asking.redirect_uris).filter_map(RedirectUri::page_origin);
        origins.collect::<BTreeSet<_>>().into_iter()
    }

    /// The registered client with this name.
    pub fn client(&self, client_id: &str) -> Option<&RegisteredClient> {
        self.clients.iter().find(|client| client.client_id == client_id)
    }
}

impl ClientEndpoint {
    /// The key of its path in `[oauth]`.
    pub const fn key(self) -> &'static str {
        match self {
            ClientEndpoint::Token => "token_endpoint",
            ClientEndpoint::Revoke => "revocation_endpoint",
            ClientEndpoint::Introspect => "introspection_endpoint",
        }
    }

    /// Returns true if its callers can be guessing: failures count for their addresses. What an introspection asks
    /// about comes from the clients of its caller.
    pub(super) const fn takes_guesses(self) -> bool {
        match self {
            ClientEndpoint::Token | ClientEndpoint::Revoke => true,
            ClientEndpoint::Introspect => false,
        }
    }
}

impl Endpoint {
    /// Returns true if clients call it on their way to tokens.
    const fn leads_to_tokens(self) -> bool {
        match self {
            Endpoint::Client(ClientEndpoint::Token) | Endpoint::Push | Endpoint::Register => true,
            Endpoint::Client(ClientEndpoint::Revoke | ClientEndpoint::Introspect)
            | Endpoint::Browser(_)
            | Endpoint::ProtectedResource
            | Endpoint::Report(_) => false,
        }
    }

    /// Rejects every method but the one of this endpoint.
    pub(super) fn check_method(self, method: &Method) -> Result<(), Reject> {
        let (allowed, allow): (&[Method], _) = match self {
            Endpoint::ProtectedResource => (&[Method::GET, Method::HEAD], "GET, HEAD"),
            Endpoint::Browser(_) => (&[Method::GET, Method::POST], "GET, POST"),
            Endpoint::Client(_) | Endpoint::Push | Endpoint::Register | Endpoint::Report(_) => {
                (&[Method::POST], "POST")
            }
        };
        if allowed.contains(method) { Ok(()) } else { Err(Reject::from(Reason::MethodNotAllowed).allows(allow)) }
    }

    /// What the endpoint does, for `bearward explain`.
    pub const fn purpose(self) -> &'static str {
        match self {
            Endpoint::Client(ClientEndpoint::Token) => "exchanges a refresh token or another grant (RFC 6749)",
            Endpoint::Client(ClientEndpoint::Revoke) => "revokes a token (RFC 7009)",
            Endpoint::Client(ClientEndpoint::Introspect) => "introspects a token (RFC 7662)",
            Endpoint::Push => "takes the authorization request of a client (RFC 9126)",
            Endpoint::Browser(BrowserEndpoint::Authorize) => "asks a user for a client (OAuth 2.1)",
            Endpoint::Browser(BrowserEndpoint::Consent) => "shows who asks for what, and takes the user's decision",
            Endpoint::Browser(BrowserEndpoint::Grants) => "shows which clients may act for the user, and ends that",
            Endpoint::Register => "registers a client (RFC 7591)",
            Endpoint::ProtectedResource => "publishes the metadata of the protected resource (RFC 9728)",
            Endpoint::Report(ProviderReport::BackchannelLogout(_)) => {
                "ends the session that a logout token names (OpenID Connect)"
            }
            Endpoint::Report(ProviderReport::SecurityEvents(_)) => "carries out a security event (RFC 8935)",
        }
    }
}

/// A service that may introspect every token with a secret of its own. Keeps only a hash of the secret.
#[derive(Clone, PartialEq)]
pub struct ResourceServer {
    pub client_id: String,
    hash: [u8; 32],
}

impl ResourceServer {
    pub fn new(client_id: &str, secret: &[u8]) -> Self {
        ResourceServer { client_id: client_id.to_owned(), hash: secret::digest(&[secret]) }
    }

    /// Takes the same time wherever the secret differs.
    pub fn has_credentials(&self, client_id: &str, secret: &str) -> bool {
        let is_equal = secret::equal(&self.hash, &secret::digest(&[secret.as_bytes()]));
        is_equal && self.client_id == client_id
    }

    /// What the bad signatures that it introspects are counted for.
    pub fn key(&self) -> Key {
        let hash = secret::digest(&[b"resource server", self.client_id.as_bytes()]);
        Key::from(hash.first_chunk().map_or(0, |half| u128::from_be_bytes(*half)))
    }
}

impl fmt::Debug for ResourceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceServer({})", self.client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_server_is_shown_without_its_secret() {
        let server = ResourceServer::new("orders", b"secret");
        assert_eq!(format!("{server:?}"), "ResourceServer(orders)");
    }
}
