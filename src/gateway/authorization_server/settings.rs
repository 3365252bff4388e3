//! The keys of `[oauth]` that concern the authorization endpoint.

use std::time::Duration;

use crate::auth::client_documents::DocumentSettings;
use crate::gateway::rules::ClaimRule;
use crate::tokens::authorization::redirect_uri::{RedirectKind, RedirectUri};
use crate::tokens::authorization::resource::OfferedResource;
use crate::tokens::family::ReuseRule;
use crate::tokens::sign_in::place::SignInPlace;

/// `[oauth]` with `sign_in` or `login_page`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationSettings {
    pub sign_in: SignInPlace,
    /// `oauth.authorization_endpoint`, `oauth.consent_page`, `oauth.grants_page`: paths.
    pub authorization_endpoint: String,
    pub consent_page: String,
    pub grants_page: String,
    /// `oauth.par_endpoint`: a path.
    pub par_endpoint: String,
    /// `oauth.require_par`
    pub requires_par: bool,
    /// `oauth.code_lifetime`
    pub code_lifetime: Duration,
    /// `oauth.grant_lifetime`
    pub grant_lifetime: Duration,
    /// `oauth.sessions_per_client`
    pub sessions_per_client: usize,
    /// `oauth.reuse`, `oauth.reuse_window`
    pub reuse: ReuseRule,
    /// `None`: clients cannot register themselves.
    pub registration: Option<RegistrationSettings>,
    /// `oauth.client_documents`. `None`: no client is described by a document at its URL.
    pub documents: Option<DocumentSettings>,
    /// `[[oauth.scope]]`
    pub scopes: Vec<ScopeSettings>,
    pub resources: Vec<OfferedResource>,
    /// The place of the resource of requests that name none.
    pub default_resource: Option<usize>,
}

/// `oauth.registration`: what redirect URIs clients can register.
#[derive(Clone, Debug, PartialEq)]
pub struct RegistrationSettings {
    /// `oauth.registration_endpoint`: a path.
    pub endpoint: String,
    pub kinds: Vec<RegistrationKind>,
    /// `oauth.registration_lifetime`
    pub lifetime: Duration,
}

/// A kind of redirect URI in `oauth.registration`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegistrationKind {
    Loopback,
    /// Any site.
    Https,
    /// Any scheme with a dot.
    PrivateSchemes,
    /// The site with this origin, such as `https://client.example`.
    Site(String),
    /// This scheme, which needs no dot.
    Scheme(String),
}

/// `[[oauth.scope]]`: a scope that users can grant.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeSettings {
    pub name: String,
    /// What the consent page says.
    pub text: Option<String>,
    /// The user can leave it out.
    pub is_optional: bool,
    /// The users who can grant it. `None`: all.
    pub claim: Option<ClaimRule>,
}

impl RegistrationSettings {
    /// Returns true if a client that registers itself may get codes there.
    pub fn accepts(&self, uri: &RedirectUri) -> bool {
        self.kinds.iter().any(|kind| kind.accepts(uri))
    }
}

impl RegistrationKind {
    fn accepts(&self, uri: &RedirectUri) -> bool {
        match self {
            RegistrationKind::Loopback => uri.kind() == RedirectKind::Loopback,
            RegistrationKind::Https => uri.kind() == RedirectKind::Https,
            // Most schemes without a dot open programs that wait for no code.
            RegistrationKind::PrivateSchemes => uri.kind() == RedirectKind::PrivateScheme { has_dot: true },
            RegistrationKind::Site(origin) => uri.page_origin().as_ref() == Some(origin),
            RegistrationKind::Scheme(scheme) => uri.private_scheme() == Some(scheme),
        }
    }
}

impl AuthorizationSettings {
    pub fn scope(&self, name: &str) -> Option<&ScopeSettings> {
        self.scopes.iter().find(|scope| scope.name == name)
    }
}
