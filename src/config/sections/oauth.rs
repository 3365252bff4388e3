//! `[oauth]`: the standard endpoints, each off unless it has a path.

use http::Uri;

use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::sections::{route, rules};
use crate::gateway::endpoints::{Endpoints, ProtectedResource};
use crate::gateway::route::Route;
use crate::protocols::http::path;

const KEYS: [&str; 3] = ["token_endpoint", "revocation_endpoint", "introspection_endpoint"];

/// `issuers` are all whose tokens are accepted, the gateway's own first.
pub(super) fn read(table: &mut Table<'_>, routes: &[Route], issuers: &[String]) -> Endpoints {
    let paths = KEYS.map(|key| table.take(key).and_then(|value| value.parse(switchable)).flatten());
    for (place, path) in paths.iter().enumerate() {
        let Some(path) = path else { continue };
        let key = KEYS[place];
        if let Some(first) = paths[..place].iter().position(|first| first.as_ref() == Some(path)) {
            let fault = Fault::new("two endpoints have the same path", "expected another path");
            table.wrong(key, fault.related(&table.place(KEYS[first]), "the first one is here"));
        } else if routes.iter().any(|route| route.path == *path) {
            let fault = Fault::new(format!("a route has the path {path} as well"), "expected another path");
            table.wrong(key, fault.help("the endpoint comes first, and hides it"));
        }
    }
    let scopes = table.take("scopes_supported").and_then(|value| value.list_of("[\"orders:read\"]", rules::scope));
    let resource = table.take("resource").and_then(|value| value.parse(resource_url)).flatten();
    if resource.is_none() && scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) {
        let fault = Fault::new(
            "scopes are told in the resource's metadata, and there is none",
            "expected `resource` beside it",
        );
        table.wrong("scopes_supported", fault.of_absence());
    }
    let [token_endpoint, revocation_endpoint, introspection_endpoint] = paths;
    let servers = authorization_servers(issuers);
    let resource = resource
        .and_then(|(origin, path)| ProtectedResource::new(&origin, &path, &servers, &scopes.unwrap_or_default()));
    Endpoints { token_endpoint, revocation_endpoint, introspection_endpoint, resource }
}

/// The empty string switches an endpoint off.
fn switchable(text: &str) -> Result<Option<String>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = route::path(text)?;
    match path.ends_with('/') || path.starts_with("/.well-known/") {
        true => Err(Fault::new("this is no path of an endpoint", "expected a path such as \"/oauth/token\"")),
        false => Ok(Some(path)),
    }
}

/// Scheme and authority, and the path (RFC 9728 section 1.2). The empty string switches it off.
fn resource_url(text: &str) -> Result<Option<(String, String)>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    let fault = |help: &str| {
        let fault = Fault::new("this is not the URL of a protected resource", "expected https:// and a host");
        Err(fault.help(help))
    };
    let Ok(uri) = text.parse::<Uri>() else {
        return fault("write the address by which clients reach what is behind the gateway");
    };
    let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return fault("write the address by which clients reach what is behind the gateway");
    };
    if text.contains(['?', '#', '@', '"', '\\']) {
        return fault("leave out everything but host, port and path");
    }
    // Clients ask for it below the well-known path, and no other request gets through.
    if let Some(reason) = path::fault(uri.path().as_bytes()) {
        return fault(&format!("its path has {reason}"));
    }
    // `https://a` has no path, and the parser gives it one.
    let path = if text.ends_with('/') || uri.path() != "/" { uri.path() } else { "" };
    Ok(Some((format!("https://{authority}"), path.to_owned())))
}

/// Those that clients can ask, by RFC 8414: they are named by URLs.
fn authorization_servers(issuers: &[String]) -> Vec<String> {
    let own = issuers.first().into_iter();
    own.chain(issuers.iter().skip(1).filter(|issuer| issuer.starts_with("https://"))).cloned().collect()
}
