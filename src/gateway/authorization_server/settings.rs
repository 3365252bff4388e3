//! The keys of `[oauth]` that concern the authorization endpoint.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::client_documents::DocumentSettings;
use crate::gateway::rules::ClaimRule;
use crate::tokens::authorization::redirect_uri::{RedirectKind, RedirectUri};
use crate::tokens::authorization::request::OfferedResource;
use crate::tokens::family::ReuseRule;

/// `[oauth]` with `sign_in`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizationSettings {
    /// `oauth.sign_in`: at least one provider.
    pub providers: Vec<Arc<str>>,
    /// `oauth.authorization_endpoint`, `oauth.consent_page`, `oauth.grants_page`: paths.
    pub authorization_endpoint: String,
    pub consent_page: String,
    pub grants_page: String,
    /// `oauth.code_lifetime`
    pub code_lifetime: Duration,
    /// `oauth.grant_lifetime`
    pub grant_lifetime: Duration,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationKind {
    Loopback,
    Https,
    PrivateSchemes,
}

/// `[[oauth.scope]]`: a scope that users can grant.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeSettings {
    pub name: String,
    /// What the consent page says.
    pub text: Option<String>,
    /// The users who can grant it. `None`: all.
    pub claim: Option<ClaimRule>,
}

impl RegistrationSettings {
    /// Returns true if a client that registers itself may get codes there.
    pub fn accepts(&self, uri: &RedirectUri) -> bool {
        let kind = match uri.kind() {
            RedirectKind::Loopback => RegistrationKind::Loopback,
            RedirectKind::Https => RegistrationKind::Https,
            RedirectKind::PrivateScheme { has_dot: true } => RegistrationKind::PrivateSchemes,
            // Schemes without a dot open programs that wait for no code.
            RedirectKind::PrivateScheme { has_dot: false } => return false,
        };
        self.kinds.contains(&kind)
    }
}

impl AuthorizationSettings {
    pub fn scope(&self, name: &str) -> Option<&ScopeSettings> {
        self.scopes.iter().find(|scope| scope.name == name)
    }
}
