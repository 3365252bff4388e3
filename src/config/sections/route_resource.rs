//! `route.resource`: the protected resource that a route is. Tokens for it are good there alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Uri;

use crate::auth::bearer::TokenLocations;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::Value;
use crate::config::sections::placed::Placed;
use crate::gateway::oauth::metadata;
use crate::gateway::protected_resource::{ProtectedResource, ResourceMetadata, Resources};
use crate::gateway::route::{Access, Route};
use crate::protocols::http::path;
use crate::protocols::url::is_loopback;

const EXPECTED: &str = "expected https:// and a host";

/// `route.resource` and `route.default_resource`.
pub(super) struct OfRoute {
    pub(super) resource: Option<Arc<ProtectedResource>>,
    pub(super) is_default: bool,
}

/// What the keys of a resource depend on.
pub(super) struct RouteKeys<'r> {
    pub(super) path: Option<&'r str>,
    pub(super) host: Option<&'r str>,
    pub(super) access: &'r Access,
    pub(super) places: &'r TokenLocations,
    /// `tokens.issuer`
    pub(super) issuer: &'r str,
}

pub(super) fn of_route(table: &mut Table<'_>, keys: &RouteKeys<'_>) -> OfRoute {
    let value = table.take("resource", Shape::Any(vec![Shape::Boolean, Shape::Pattern("^https?://")]));
    table.default("resource", false);
    let is_default = table.boolean("default_resource", false);
    let resource = value.as_ref().and_then(|value| read(value, keys));
    if let Some(resource) = &resource {
        report_conflicts(table, resource, keys);
    } else if is_default {
        let error = ConfigError::new("`default_resource` has no effect without `resource`", "expected `resource`");
        table.reject("default_resource", error.missing());
    }
    OfRoute { resource: resource.map(Arc::new), is_default }
}

fn read(value: &Value<'_>, keys: &RouteKeys<'_>) -> Option<ProtectedResource> {
    if value.is_string() && !value.is_switch() {
        return value.parse(resource);
    }
    if !value.boolean()? {
        return None;
    }
    // Without the slash at its end: clients compare the resource with the URL that their user wrote.
    let url = format!("{}{}", metadata::base(keys.issuer), keys.path?.trim_end_matches('/'));
    let read = resource(&url);
    value.accept(read.map_err(|_| {
        let error = ConfigError::new("tokens.issuer is no https:// URL", "expected the URL of this resource");
        error.help("write the URL at which clients reach this route")
    }))
}

fn report_conflicts(table: &mut Table<'_>, resource: &ProtectedResource, keys: &RouteKeys<'_>) {
    if *keys.access == Access::Public {
        let error = ConfigError::new("`resource` has no effect on a public route", "expected `resource` or `public`");
        table.reject("resource", error.related(&table.place("public"), "the route is public"));
    }
    let sessions = [("sign_in", keys.places.sign_in), ("token_from", keys.places.login_cookie)];
    for (key, _) in sessions.into_iter().filter(|(_, is_used)| *is_used) {
        let error = ConfigError::new(
            format!("`{key}` accepts sessions of browsers, and none of them is for this resource"),
            format!("expected `resource` or `{key}`, not both"),
        );
        table.reject(key, error.related(&table.place("resource"), "only tokens for this resource are good here"));
    }
    if keys.host.is_some_and(|host| !resource.is_at(host)) {
        let error = ConfigError::new("the resource has another host than the route", "expected the host of the route");
        table.reject("resource", error.related(&table.place("host"), "requests to this host match"));
    }
    let Some(path) = keys.path else { return };
    let of_resource = resource.url[resource.origin.len()..].trim_end_matches('/');
    let is_above = path.strip_prefix(of_resource).is_some_and(|below| below.is_empty() || below.starts_with('/'));
    if !is_above {
        let error = ConfigError::new(
            format!("the path of the resource, {of_resource}, is not the path of the route or above it"),
            format!("expected a URL that ends in {}", path.trim_end_matches('/')),
        );
        let error = error.help("clients reject a resource that their URL does not begin with (RFC 9728 section 3.3)");
        table.reject("resource", error);
    }
}

/// The URL of a resource (RFC 9728 section 1.2).
pub(super) fn resource(text: &str) -> Result<ProtectedResource, ConfigError> {
    let error = |help: &str| {
        let error = ConfigError::new("this is not the URL of a protected resource", EXPECTED);
        Err(error.help(help))
    };
    let Ok(uri) = text.parse::<Uri>() else {
        return error("write the URL at which clients reach the services behind the gateway");
    };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return error("write the URL at which clients reach the services behind the gateway");
    };
    if scheme != "https" && !(scheme == "http" && is_loopback(authority.host().trim_matches(['[', ']']))) {
        return error("write https://; http:// is possible for localhost alone");
    }
    if text.contains(['?', '#', '@', '"', '\\']) {
        return error("remove everything except host, port and path");
    }
    // Clients request the metadata at this path below the well-known path, so the gateway must accept the path.
    if let Some(reason) = path::ambiguity(uri.path().as_bytes()) {
        return error(&format!("change the path: it has {reason}"));
    }
    // `https://a` has no path, but the parser returns "/".
    let path = if text.ends_with('/') || uri.path() != "/" { uri.path() } else { "" };
    ProtectedResource::new(&format!("{scheme}://{authority}"), path)
        .ok_or_else(|| ConfigError::new("this URL does not fit into a header", EXPECTED))
}

/// Reports routes of which each is to be the default.
pub(super) fn report_defaults(root: &Table<'_>, routes: &[Placed<Route>]) {
    let defaults: Vec<_> = routes.iter().filter(|route| route.value.is_default_resource).collect();
    let [first, others @ ..] = &*defaults else { return };
    let resource = |route: &Placed<Route>| route.value.resource.as_ref().map(|resource| resource.url.clone());
    for other in others.iter().filter(|other| resource(other) != resource(first)) {
        let error = ConfigError::new("two resources are the default", "expected one `default_resource`");
        root.report().add(error.related(&first.place, "this route has it, too").at(&other.place));
    }
}

/// Warns of public routes inside a protected resource: clients send no token where they get no 401.
pub(super) fn warn_of_public(root: &Table<'_>, routes: &[Placed<Route>]) {
    let resources: Vec<&Placed<Route>> = routes.iter().filter(|route| route.value.resource.is_some()).collect();
    for public in routes.iter().filter(|route| route.value.access == Access::Public) {
        let is_around = |resource: &&&Placed<Route>| {
            let above = resource.value.path.trim_end_matches('/');
            let below = public.value.path.strip_prefix(above);
            // At "/", each public page is inside.
            let hosts = [&public.value.host, &resource.value.host];
            let is_same_host = hosts.iter().any(|host| host.is_none()) || hosts[0] == hosts[1];
            is_same_host && !above.is_empty() && below.is_some_and(|below| below.starts_with('/'))
        };
        let Some(resource) = resources.iter().find(is_around) else { continue };
        let warning = ConfigError::new(
            format!("{} is public, inside the resource {}", public.value.path, resource.value.path),
            "requests to this path need no token",
        );
        let warning = warning.help("remove `public`, unless this page is for everyone");
        root.report().warn(warning.related(&resource.place, "the resource is here").at(&public.place));
    }
}

/// The URLs of all resources of routes, each once.
pub(super) fn urls(routes: &[Route]) -> Vec<String> {
    let urls = routes.iter().filter_map(|route| route.resource.as_ref()).map(|resource| resource.url.clone());
    urls.collect::<BTreeSet<_>>().into_iter().collect()
}

/// All resources. `of_gateway`: `oauth.resource`. `scopes`: `oauth.scopes_supported`. `issuers`: all accepted ones, the
/// gateway itself first.
pub(super) fn resources(
    of_gateway: Option<Arc<ProtectedResource>>,
    scopes: &[String],
    routes: &[Route],
    issuers: &[String],
) -> Resources {
    let servers = authorization_servers(issuers);
    let of_gateway_metadata = of_gateway.as_ref().map(|resource| {
        let others: Vec<&Route> = routes.iter().filter(|route| route.resource.is_none()).collect();
        ResourceMetadata::new(resource.clone(), &servers, scopes).with_challenges(challenged(&others))
    });
    let mut by_url: BTreeMap<&str, Vec<&Route>> = BTreeMap::new();
    for route in routes {
        if let Some(resource) = &route.resource {
            by_url.entry(&resource.url).or_default().push(route);
        }
    }
    if let Some(resource) = &of_gateway {
        // That of a route with the same URL says the same of it, but for scopes.
        by_url.remove(resource.url.as_str());
    }
    let of_routes = by_url.values().filter_map(|routes| of_routes(routes, &servers));
    let all: Vec<_> = of_gateway_metadata.into_iter().chain(of_routes).collect();
    let named = routes.iter().find(|route| route.is_default_resource).and_then(|route| route.resource.as_ref());
    let default = match named {
        _ if of_gateway.is_some() || all.len() == 1 => Some(0),
        Some(named) => all.iter().position(|metadata| metadata.resource.url == named.url),
        None => None,
    };
    Resources { of_gateway, all, default }
}

/// The metadata of the resource that these routes are. It lists the issuers and the scopes that they name.
fn of_routes(routes: &[&Route], servers: &[String]) -> Option<ResourceMetadata> {
    let resource = routes.first()?.resource.clone()?;
    let mut scopes = BTreeSet::new();
    let mut named = BTreeSet::new();
    let mut takes_all = false;
    for route in routes {
        let Access::Token(rules) = &route.access else { continue };
        scopes.extend(rules.scopes.iter().chain(&rules.any_scope).cloned());
        named.extend(&rules.issuers);
        takes_all |= rules.issuers.is_empty();
    }
    let servers: Vec<_> = servers.iter().filter(|issuer| takes_all || named.contains(issuer)).cloned().collect();
    let scopes: Vec<_> = scopes.into_iter().collect();
    Some(ResourceMetadata::new(resource, &servers, &scopes).with_challenges(challenged(routes)))
}

/// The scopes that the challenges of these routes name.
fn challenged(routes: &[&Route]) -> BTreeSet<String> {
    let rules = routes.iter().filter_map(|route| match &route.access {
        Access::Token(rules) => Some(rules),
        _ => None,
    });
    rules.flat_map(|rules| rules.needed_scopes().cloned()).collect()
}

/// The gateway, and all issuers with a URL: clients can fetch their metadata (RFC 8414).
fn authorization_servers(issuers: &[String]) -> Vec<String> {
    let own = issuers.first().into_iter();
    own.chain(issuers.iter().skip(1).filter(|issuer| issuer.starts_with("https://"))).cloned().collect()
}
