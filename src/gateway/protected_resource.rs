//! Protected resources and their metadata (RFC 9728): what clients need to know to get a token for a route.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::json;

use crate::protocols::http::target::without_port;
use crate::tokens::dpop::PROOF_ALGORITHMS;

/// The path of the metadata of a resource without a path (section 3.1).
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// Made once, when the configuration is read.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtectedResource {
    /// The URL as the operator wrote it. Clients compare it byte for byte, and it is the `aud` of tokens for a route.
    pub url: String,
    /// The scheme and authority of the URL.
    pub origin: String,
    /// Path of the metadata: the well-known path, followed by the path of the resource (section 3.1).
    pub metadata_path: String,
    /// Beginning of `WWW-Authenticate`, so that a client without a token finds the metadata (section 5.1).
    pub challenge: HeaderValue,
}

impl ProtectedResource {
    /// `origin` is the scheme and authority of the resource's URL, `path` the rest. Returns `None` if it does not fit
    /// into a header.
    pub fn new(origin: &str, path: &str) -> Option<Self> {
        let metadata_path = format!("{WELL_KNOWN}{}", if path == "/" { "" } else { path });
        let challenge = format!("Bearer realm=\"bearward\", resource_metadata=\"{origin}{metadata_path}\"");
        let challenge = HeaderValue::from_str(&challenge).ok()?;
        Some(ProtectedResource { url: format!("{origin}{path}"), origin: origin.to_owned(), metadata_path, challenge })
    }

    /// Returns true if clients reach the resource at this host, which may have a port.
    pub fn is_at(&self, host: &str) -> bool {
        let authority = self.origin.split_once("://").map_or("", |(_, authority)| authority);
        without_port(authority).eq_ignore_ascii_case(without_port(host))
    }
}

/// A resource, and what is published about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceMetadata {
    pub resource: Arc<ProtectedResource>,
    /// What its routes ask for.
    pub scopes: Vec<String>,
    /// What the challenges of its routes name.
    pub challenged: Vec<String>,
    /// JSON.
    pub document: Bytes,
}

impl ResourceMetadata {
    /// `scopes`: without any, the member is left out.
    pub fn new(resource: Arc<ProtectedResource>, authorization_servers: &[String], scopes: &[String]) -> Self {
        let mut document = json!({
            "resource": resource.url,
            "authorization_servers": authorization_servers,
            "bearer_methods_supported": ["header"],
            // RFC 9728 section 2.
            "dpop_signing_alg_values_supported": PROOF_ALGORITHMS.split(' ').collect::<Vec<_>>(),
        });
        if !scopes.is_empty() {
            document["scopes_supported"] = scopes.into();
        }
        ResourceMetadata {
            resource,
            scopes: scopes.to_vec(),
            challenged: Vec::new(),
            document: document.to_string().into(),
        }
    }

    /// `challenged`: what the challenges of its routes name.
    pub fn with_challenges(self, challenged: BTreeSet<String>) -> Self {
        ResourceMetadata { challenged: challenged.into_iter().collect(), ..self }
    }
}

/// All resources of a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// `oauth.resource`: that of all routes without a resource of their own.
    pub of_gateway: Option<Arc<ProtectedResource>>,
    /// Each URL once, that of `oauth.resource` first.
    pub all: Vec<ResourceMetadata>,
    /// The place in `all` of what is published at the root, if no resource has that path. `None`: it is not known which
    /// of them a client means.
    pub default: Option<usize>,
}

impl Resources {
    /// The paths at which metadata are published.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let root = self.default.map(|_| WELL_KNOWN);
        self.all.iter().map(|metadata| &*metadata.resource.metadata_path).chain(root)
    }

    /// The metadata at this path. Of several resources at different hosts, that of the one at `host`, which may have a
    /// port; otherwise that of the first.
    pub fn published(&self, path: &str, host: Option<&str>) -> Option<&Bytes> {
        let mut at_path = self.all.iter().filter(|metadata| metadata.resource.metadata_path == path).peekable();
        let first = at_path.peek().copied();
        let at_host = at_path.find(|metadata| host.is_some_and(|host| metadata.resource.is_at(host)));
        let at_root = self.default.filter(|_| path == WELL_KNOWN).and_then(|place| self.all.get(place));
        at_host.or(first).or(at_root).map(|metadata| &metadata.document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(urls: &[(&str, &str)], default: Option<usize>) -> Resources {
        let resource = |(origin, path): &(&str, &str)| {
            let resource = ProtectedResource::new(origin, path).expect("it fits into a header");
            ResourceMetadata::new(Arc::new(resource), &[], &[])
        };
        Resources { of_gateway: None, all: urls.iter().map(resource).collect(), default }
    }

    fn found(resources: &Resources, path: &str, host: Option<&str>) -> Option<String> {
        let document: serde_json::Value = serde_json::from_slice(resources.published(path, host)?).expect("JSON");
        Some(document["resource"].as_str().expect("a text").to_owned())
    }

    #[test]
    fn metadata_are_found_by_path_and_then_by_host() {
        let several = resources(
            &[("https://a.example", "/mcp"), ("https://b.example:8443", "/mcp"), ("https://a.example", "/notes")],
            Some(2),
        );
        let mcp = "/.well-known/oauth-protected-resource/mcp";
        for (path, host, expected) in [
            (mcp, Some("a.example"), Some("https://a.example/mcp")),
            (mcp, Some("B.example:9443"), Some("https://b.example:8443/mcp")),
            (mcp, Some("c.example"), Some("https://a.example/mcp")),
            (mcp, None, Some("https://a.example/mcp")),
            (WELL_KNOWN, Some("a.example"), Some("https://a.example/notes")),
            ("/.well-known/oauth-protected-resource/other", Some("a.example"), None),
        ] {
            assert_eq!(found(&several, path, host).as_deref(), expected, "{path} {host:?}");
        }
        assert_eq!(found(&Resources { default: None, ..several }, WELL_KNOWN, None), None);
        let root = resources(&[("https://a.example", "/mcp"), ("https://a.example", "")], Some(0));
        assert_eq!(found(&root, WELL_KNOWN, None).as_deref(), Some("https://a.example"), "its own path comes first");
    }
}
