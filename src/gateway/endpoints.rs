//! The standard endpoints that clients speaking OAuth look for: which of them there are, and where. Each is off unless it is
//! configured. What they do is in `oauth/`.

use bytes::Bytes;
use http::HeaderValue;

/// `[oauth]`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// `oauth.token_endpoint`, `oauth.revocation_endpoint`, `oauth.introspection_endpoint`: paths.
    pub token_endpoint: Option<String>,
    pub revocation_endpoint: Option<String>,
    pub introspection_endpoint: Option<String>,
    pub resource: Option<ProtectedResource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// RFC 6749 section 3.2
    Token,
    /// RFC 7009
    Revoke,
    /// RFC 7662
    Introspect,
    /// RFC 9728
    ProtectedResource,
}

impl Endpoints {
    /// Every endpoint on offer and its path. Whatever tells clients about them asks here.
    pub fn on_offer(&self) -> impl Iterator<Item = (Endpoint, &str)> {
        let paths = [
            (Endpoint::Token, self.token_endpoint.as_deref()),
            (Endpoint::Revoke, self.revocation_endpoint.as_deref()),
            (Endpoint::Introspect, self.introspection_endpoint.as_deref()),
            (Endpoint::ProtectedResource, self.resource.as_ref().map(|resource| &*resource.path)),
        ];
        paths.into_iter().filter_map(|(endpoint, path)| Some((endpoint, path?)))
    }
}

impl Endpoint {
    /// In words, for operators.
    pub const fn purpose(self) -> &'static str {
        match self {
            Endpoint::Token => "a refresh token is exchanged here, by OAuth's rules",
            Endpoint::Revoke => "a token is revoked here, by RFC 7009",
            Endpoint::Introspect => "a token is introspected here, by RFC 7662",
            Endpoint::ProtectedResource => "the protected resource describes itself here, for everybody",
        }
    }
}

/// What RFC 9728 says about the services behind the gateway. Made once, when the configuration is read.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtectedResource {
    /// Where its metadata is: the well-known path, and behind it the resource's own (section 3.1).
    pub path: String,
    /// The metadata, as JSON.
    pub document: Bytes,
    /// What `WWW-Authenticate` begins with, so that a client without a token finds the metadata (section 5.1).
    pub challenge: HeaderValue,
}

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

impl ProtectedResource {
    /// `origin`: scheme and authority of the resource's URL; `path`: the rest of it. `None` if it does not fit into a header.
    pub fn new(origin: &str, path: &str, authorization_servers: &[String], scopes: &[String]) -> Option<Self> {
        let resource = format!("{origin}{path}");
        let path = format!("{WELL_KNOWN}{}", if path == "/" { "" } else { path });
        let mut document = serde_json::json!({
            "resource": resource,
            "authorization_servers": authorization_servers,
            "bearer_methods_supported": ["header"],
        });
        if !scopes.is_empty() {
            document["scopes_supported"] = scopes.into();
        }
        let challenge = format!("Bearer realm=\"bearward\", resource_metadata=\"{origin}{path}\"");
        let challenge = HeaderValue::from_str(&challenge).ok()?;
        Some(ProtectedResource { path, document: document.to_string().into(), challenge })
    }
}
