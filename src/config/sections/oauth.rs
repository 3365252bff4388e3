//! `[oauth]`: the standard endpoints. Each is off until it has a path.

use std::sync::Arc;

use http::Uri;

use crate::auth::provider::Provider;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::issuer::Issuers;
use crate::config::sections::oauth_authorization::AuthorizationKeys;
use crate::config::sections::oauth_client_certificate::Certificates;
use crate::config::sections::oauth_exchange::{self, Known};
use crate::config::sections::placed::{Placed, report_duplicates};
use crate::config::sections::{
    files, oauth_authorization, oauth_clients, oauth_warnings, route_path, route_resource, rules,
};
use crate::config::settings::TokenSettings;
use crate::gateway::endpoints::{Endpoints, ResourceServer};
use crate::gateway::protected_resource::ProtectedResource;
use crate::gateway::route::Route;

/// The keys of the endpoints for clients, and their defaults if `sign_in` is set.
const KEYS: [(&str, &str); 3] =
    [("token_endpoint", "/oauth/token"), ("revocation_endpoint", "/oauth/revoke"), ("introspection_endpoint", "")];

/// What the gateway can know of clients.
pub(super) struct Clients {
    /// Which certificates they can show.
    pub(super) possible: Certificates,
    /// [`forwarding::knows_addresses`](super::forwarding::knows_addresses)
    pub(super) knows_addresses: bool,
}

pub(super) fn read(
    table: &mut Table<'_>,
    routes: &[Route],
    issuers: &Issuers,
    providers: &[Placed<Arc<Provider>>],
    tokens: &TokenSettings,
    Clients { possible, knows_addresses }: Clients,
) -> Endpoints {
    let authorization = oauth_authorization::read(table, routes, providers, tokens, knows_addresses);
    let has_authorization = authorization.is_some();
    let paths = KEYS.map(|(key, with_sign_in)| {
        let default = if has_authorization { with_sign_in } else { "" };
        let path = table.take(key, Shape::Pattern("^(/|$)"));
        table.default(key, default);
        let path = path.map_or(Some(route_path::path_or_off(default).unwrap_or_default()), |value| {
            value.parse(route_path::path_or_off)
        });
        path.flatten()
    });
    let scopes = table.take("scopes_supported", Shape::list(rules::SCOPE));
    table.default("scopes_supported", Vec::<String>::new());
    let scopes = scopes.and_then(|value| value.list_of("[\"orders:read\"]", rules::scope));
    let resource = table.take("resource", Shape::Pattern("^(https?://|$)"));
    table.default("resource", "");
    let resource = resource.and_then(|value| value.parse(resource_or_off)).flatten();
    if resource.is_none() && scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) {
        let error = ConfigError::new(
            "`scopes_supported` has no effect without `resource`",
            "expected `resource` in this table",
        );
        table.reject("scopes_supported", error.missing());
    }
    let resource_servers = resource_servers(table);
    let place = authorization.as_ref().map(AuthorizationKeys::place);
    let clients = oauth_clients::clients(table, tokens, possible, &issuers.names, place);
    let denied = oauth_authorization::denied_clients(table, &clients);
    let mtls_url = mtls_url(table, possible);
    let known = Known { issuers: &issuers.accepted, names: &issuers.names, clients: &clients, providers };
    let exchange = oauth_exchange::exchanges(table, &known);
    let [token_endpoint, revocation_endpoint, introspection_endpoint] = paths;
    if introspection_endpoint.is_none() && !resource_servers.is_empty() {
        let error = ConfigError::new(
            "`resource_server` has no effect without `introspection_endpoint`",
            "expected `introspection_endpoint` in this table",
        );
        table.reject("resource_server", error);
    }
    for (key, is_used) in [("client", !clients.is_empty()), ("exchange", !exchange.is_empty())] {
        if token_endpoint.is_none() && is_used {
            let error = ConfigError::new(
                format!("`{key}` has no effect without `token_endpoint`"),
                "expected `token_endpoint` in this table",
            );
            table.reject(key, error);
        }
    }
    let resources = route_resource::resources(resource, &scopes.unwrap_or_default(), routes, &issuers.names);
    if has_authorization && token_endpoint.is_none() {
        let error =
            ConfigError::new("an authorization endpoint has no effect without `token_endpoint`", "expected a path");
        table.reject("token_endpoint", error);
    }
    if !has_authorization && let Some(asking) = clients.iter().find(|client| client.authorization.is_some()) {
        let error = ConfigError::new(
            format!("the client {} has redirect_uris, and there is no authorization endpoint", asking.client_id),
            "expected `sign_in` or `login_page` in this table",
        );
        table.reject("sign_in", error.missing());
    }
    let authorization = authorization.map(|keys| Box::new(keys.with_resources(table, &resources, &tokens.resources)));
    if let Some(settings) = &authorization {
        oauth_warnings::report(table, settings, &clients, tokens);
    }
    let endpoints = Endpoints {
        token_endpoint,
        revocation_endpoint,
        introspection_endpoint,
        mtls_url,
        resources,
        resource_servers,
        clients,
        denied,
        exchange,
        authorization,
    };
    report_same_paths(table, &endpoints, routes);
    endpoints
}

fn report_same_paths(table: &Table<'_>, endpoints: &Endpoints, routes: &[Route]) {
    for (key, path) in endpoints.chosen() {
        if routes.iter().any(|route| route.path == *path) {
            let error = ConfigError::new(format!("a route has the same path, {path}"), "expected a different path");
            table.reject(key, error.help("change one of the two; the endpoint would hide the route"));
        }
    }
}

/// Where clients are asked for certificates: `mtls_endpoint_aliases` (RFC 8705 section 5).
fn mtls_url(table: &mut Table<'_>, possible: Certificates) -> Option<String> {
    let url = table.take("mtls_url", Shape::Pattern("^(https://|$)"));
    table.default("mtls_url", "");
    let url = url.and_then(|value| value.parse(origin_or_off)).flatten();
    if url.is_some() && !possible.can_have {
        let error = ConfigError::new(
            "no request would have a certificate",
            "expected a [[listener]] with client_certificate, or forwarding.client_certificate",
        );
        table.reject("mtls_url", error);
    }
    url
}

/// The empty string turns it off.
fn origin_or_off(text: &str) -> Result<Option<String>, ConfigError> {
    let origin = text.trim_end_matches('/');
    let is_origin = text.parse::<Uri>().is_ok_and(|uri| {
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty()) && matches!(path, "" | "/")
    });
    match (text.is_empty(), is_origin && !text.contains(['@', '#', '"', '\\'])) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(origin.to_owned())),
        (false, false) => {
            let expected = "expected https:// and a host, for example \"https://mtls.gateway.example:8444\"";
            Err(ConfigError::new("this is not the address of a listener", expected))
        }
    }
}

/// `[[oauth.resource_server]]`
fn resource_servers(table: &mut Table<'_>) -> Vec<ResourceServer> {
    let servers: Vec<_> = table.tables("resource_server", resource_server).into_iter().flatten().collect();
    let message = "two resource servers have the same client_id";
    report_duplicates(table.report(), &servers, message, "expected a different name", |server| &server.client_id);
    servers.into_iter().map(|server| server.value).collect()
}

/// `None` if one of its keys is missing or wrong.
fn resource_server(table: &mut Table<'_>) -> Option<Placed<ResourceServer>> {
    let client_id = table
        .required("client_id", Shape::Pattern("^[ -9;-~]+$"), "\"orders\"")
        .and_then(|value| value.parse(oauth_clients::client_id));
    let secret = table.required("secret_file", Shape::Path, "\"orders.secret\"").and_then(|value| value.path());
    let secret = secret.map(|path| files::random_secret(&path));
    if let Some(Err(error)) = &secret {
        table.reject("secret_file", error.clone());
    }
    let client_id = client_id?;
    let secret = secret?.ok()?;
    Some(Placed { value: ResourceServer::new(&client_id, secret.trim_ascii()), place: table.place("client_id") })
}

/// The empty string turns the metadata off.
fn resource_or_off(text: &str) -> Result<Option<Arc<ProtectedResource>>, ConfigError> {
    if text.is_empty() { Ok(None) } else { route_resource::resource(text).map(|resource| Some(Arc::new(resource))) }
}
