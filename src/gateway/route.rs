//! Which route a request takes: host, then the longest path in whole segments, then method. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use http::Method;

use crate::auth::bearer::Places;
use crate::gateway::endpoints::{Endpoint, Endpoints};
use crate::gateway::rules::Rules;
use crate::limits::rate_limit;
use crate::protocols::http::path::CanonicalPath;
use crate::protocols::http::target::without_port;
use crate::types::reject::{Reason, Reject};

/// `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// For the log and metrics: `route.name`, or its path.
    pub name: Arc<str>,
    /// Lower case, without port. `None` for any.
    pub host: Option<String>,
    /// Empty for any.
    pub methods: Vec<Method>,
    /// Begins with `/`. With a trailing slash it stands for everything below it; without, also for itself: `/a` takes `/a`
    /// and `/a/b`, not `/ab`.
    pub path: String,
    /// Index into the configured upstreams.
    pub upstream: usize,
    pub access: Access,
    /// CORS preflights (OPTIONS with Origin and Access-Control-Request-Method) pass without a token.
    pub preflight: bool,
    pub places: Places,
    /// `route.origins`: pages of these may use a token from a cookie, besides those of the request's own host.
    pub origins: Vec<String>,
    pub token_forwarding: TokenForwarding,
    /// `false`: what would be refused for its token goes on, and is only reported.
    pub enforce: bool,
    /// `[[route.rate]]`
    pub rates: Vec<rate_limit::Settings>,
    /// What its backend's answers mean for tokens.
    pub capture: Option<Capture>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// `login = true`: an answer that names a subject becomes a token pair.
    Login,
    /// `logout = true`: a 2xx ends the caller's family.
    Logout,
}

/// `route.token`: what the upstream sees of the token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenForwarding {
    Pass,
    Drop,
    /// One of our own instead, for this audience (`route.token_audience`).
    Replace(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Access {
    /// Said outright: no token is asked for.
    Public,
    /// A valid token that keeps these rules.
    Token(Rules),
}

impl Route {
    /// What there is without any `[[route]]`: every path needs a token, and goes to the only upstream.
    pub fn everything() -> Self {
        Route {
            name: "/".into(),
            host: None,
            methods: Vec::new(),
            path: "/".to_owned(),
            upstream: 0,
            access: Access::Token(Rules::default()),
            preflight: false,
            places: Places::default(),
            origins: Vec::new(),
            token_forwarding: TokenForwarding::Pass,
            enforce: true,
            rates: Vec::new(),
            capture: None,
        }
    }

    /// Does the method say whether it takes a request, or whether a token is asked for?
    pub fn decides_by_method(&self) -> bool {
        !self.methods.is_empty() || self.preflight
    }

    /// What it asks of a token, in words.
    pub fn rules(&self) -> String {
        match &self.access {
            Access::Public => "none".to_owned(),
            Access::Token(rules) => rules.to_string(),
        }
    }
}

/// What becomes of a request.
pub enum Action<'p> {
    /// `POST /user/refresh`
    Refresh,
    /// `DELETE /token/{tokenId}`
    Revoke {
        token_id: &'p str,
    },
    /// `GET /.well-known/jwks.json`
    Keys,
    /// One of `[oauth]`
    Endpoint(Endpoint),
    /// `GET /.well-known/oauth-authorization-server`
    Metadata,
    Forward(Arc<Route>),
}

/// The gateway's own paths. They come before every route, so that no route can shadow them.
pub const REFRESH_PATH: &str = "/user/refresh";
pub const REVOKE_PREFIX: &str = "/token/";
pub const KEYS_PATH: &str = "/.well-known/jwks.json";
/// RFC 8414 section 3. The path of an issuer that has one follows it: see [`metadata_path`].
const METADATA_PATH: &str = "/.well-known/oauth-authorization-server";

/// Where those who know this issuer look for what it has on offer.
pub fn metadata_path(issuer: &str) -> String {
    let path = issuer.parse::<http::Uri>().map(|uri| uri.path().trim_end_matches('/').to_owned());
    format!("{METADATA_PATH}{}", path.unwrap_or_default())
}

/// All routes. A look-up costs one hash a path segment, however many routes there are.
pub struct RouteTable {
    hosts: HashMap<String, Paths, FixedState>,
    any_host: Paths,
    /// None, or a few.
    endpoints: Vec<(Box<[u8]>, Endpoint)>,
    metadata_path: Box<str>,
}

type Paths = HashMap<Box<[u8]>, Vec<Arc<Route>>, FixedState>;

impl RouteTable {
    pub fn new(routes: &[Route]) -> Self {
        let mut table = RouteTable {
            hosts: HashMap::default(),
            any_host: HashMap::default(),
            endpoints: Vec::new(),
            metadata_path: METADATA_PATH.into(),
        };
        for route in routes {
            let paths = match &route.host {
                Some(host) => table.hosts.entry(host.clone()).or_default(),
                None => &mut table.any_host,
            };
            paths.entry(route.path.as_bytes().into()).or_default().push(Arc::new(route.clone()));
        }
        table
    }

    /// With these beside the gateway's own paths.
    pub fn with_endpoints(mut self, endpoints: &Endpoints) -> Self {
        self.endpoints = endpoints.on_offer().map(|(endpoint, path)| (path.as_bytes().into(), endpoint)).collect();
        self
    }

    /// Puts the metadata where those who know this issuer look for it.
    pub fn described_by(mut self, issuer: &str) -> Self {
        self.metadata_path = metadata_path(issuer).into();
        self
    }

    /// Do these two hosts, without ports, have the same routes?
    pub fn serves_alike(&self, one: &str, other: &str) -> bool {
        let has_its_own = |host: &str| !self.hosts.is_empty() && self.hosts.contains_key(&host.to_ascii_lowercase());
        one.eq_ignore_ascii_case(other) || !has_its_own(one) && !has_its_own(other)
    }

    /// Is this a path of `/user/refresh`, `/token/{tokenId}` or the endpoints that `[oauth]` has for tokens? No backend
    /// answers those.
    pub fn is_token_call(&self, path: &str) -> bool {
        path == REFRESH_PATH
            || named_token(path.as_bytes()).is_some()
            || self.endpoints.iter().any(|(own, _)| **own == *path.as_bytes())
    }

    /// `host`: as the client sent it, perhaps with a port.
    pub fn find<'p>(&self, host: &str, method: &Method, path: &'p CanonicalPath<'_>) -> Result<Action<'p>, Reject> {
        if let Some(own) = own_action(method, path.as_bytes(), &self.metadata_path) {
            return own;
        }
        if let Some((_, endpoint)) = self.endpoints.iter().find(|(own, _)| **own == *path.as_bytes()) {
            return endpoint_action(method, *endpoint);
        }
        let mut refused: Option<&[Arc<Route>]> = None;
        let here = self.paths_of(host).into_iter().chain([&self.any_host]);
        for paths in here {
            for prefix in prefixes(path.as_bytes()) {
                let Some(routes) = paths.get(prefix) else { continue };
                match routes.iter().find(|route| takes(route, method)) {
                    Some(route) => return Ok(Action::Forward(route.clone())),
                    // The longest prefix decides: a shorter one with looser rules must not catch what it refused.
                    None => refused = refused.or(Some(routes)),
                }
                break;
            }
            if refused.is_some() {
                break;
            }
        }
        match refused {
            Some(routes) => Err(method_not_allowed(routes)),
            None => Err(Reason::NoRoute.into()),
        }
    }
}

impl RouteTable {
    fn paths_of(&self, host: &str) -> Option<&Paths> {
        if self.hosts.is_empty() {
            return None;
        }
        self.hosts.get(&without_port(host).to_ascii_lowercase())
    }
}

fn own_action<'p>(method: &Method, path: &'p [u8], metadata_path: &str) -> Option<Result<Action<'p>, Reject>> {
    let only = |allowed: Method, allow, action| {
        if *method == allowed { Ok(action) } else { Err(Reject::from(Reason::MethodNotAllowed).allow(allow)) }
    };
    let read_only = |action| match *method {
        Method::GET | Method::HEAD => Ok(action),
        _ => Err(Reject::from(Reason::MethodNotAllowed).allow("GET, HEAD")),
    };
    if path == REFRESH_PATH.as_bytes() {
        return Some(only(Method::POST, "POST", Action::Refresh));
    }
    if path == KEYS_PATH.as_bytes() {
        return Some(read_only(Action::Keys));
    }
    if path == metadata_path.as_bytes() {
        return Some(read_only(Action::Metadata));
    }
    let token_id = named_token(path)?;
    // What is not ASCII cannot be a token id; an empty one is answered like any unknown one.
    let token_id = std::str::from_utf8(token_id).unwrap_or_default();
    Some(only(Method::DELETE, "DELETE", Action::Revoke { token_id }))
}

/// The one segment below [`REVOKE_PREFIX`]. What has none, or more, is some backend's path.
fn named_token(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(REVOKE_PREFIX.as_bytes()).filter(|named| !named.is_empty() && !named.contains(&b'/'))
}

fn endpoint_action<'p>(method: &Method, endpoint: Endpoint) -> Result<Action<'p>, Reject> {
    let (allowed, allow): (&[Method], _) = match endpoint {
        Endpoint::ProtectedResource => (&[Method::GET, Method::HEAD], "GET, HEAD"),
        Endpoint::Token | Endpoint::Revoke | Endpoint::Introspect => (&[Method::POST], "POST"),
    };
    match allowed.contains(method) {
        true => Ok(Action::Endpoint(endpoint)),
        false => Err(Reject::from(Reason::MethodNotAllowed).allow(allow)),
    }
}

/// The path itself, then every shorter prefix of whole segments, each with its trailing slash and without.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut end = Some(path.len());
    std::iter::from_fn(move || {
        let prefix = &path[..end?];
        end = match prefix {
            [] | [b'/'] => None,
            [shorter @ .., b'/'] => Some(shorter.len()),
            _ => prefix.iter().rposition(|byte| *byte == b'/').map(|slash| slash + 1),
        };
        Some(prefix)
    })
}

fn takes(route: &Route, method: &Method) -> bool {
    route.methods.is_empty() || route.methods.contains(method) || (route.preflight && *method == Method::OPTIONS)
}

fn method_not_allowed(routes: &[Arc<Route>]) -> Reject {
    let names: Vec<&str> = routes.iter().flat_map(|route| &route.methods).map(Method::as_str).collect();
    let mut reject = Reject::from(Reason::MethodNotAllowed);
    reject.allow = http::HeaderValue::from_str(&names.join(", ")).ok();
    reject
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, host: Option<&str>, methods: &[Method]) -> Route {
        Route {
            name: format!("{} {path}", host.unwrap_or("*")).into(),
            host: host.map(str::to_owned),
            methods: methods.to_vec(),
            path: path.into(),
            access: Access::Public,
            ..Route::everything()
        }
    }

    fn found(table: &RouteTable, host: &str, method: Method, path: &str) -> String {
        let path = CanonicalPath::parse(path).expect("has one reading");
        match table.find(host, &method, &path) {
            Ok(Action::Forward(route)) => route.name.to_string(),
            Ok(Action::Refresh) => "refresh".into(),
            Ok(Action::Revoke { token_id }) => format!("revoke {token_id}"),
            Ok(Action::Keys) => "keys".into(),
            Ok(Action::Endpoint(endpoint)) => format!("{endpoint:?}"),
            Ok(Action::Metadata) => "metadata".into(),
            Err(reject) => reject.reason.code().into(),
        }
    }

    #[test]
    fn the_longest_path_in_whole_segments_wins() {
        let table = RouteTable::new(&[
            route("/a", None, &[]),
            route("/a/b/", None, &[]),
            route("/a/b/c", None, &[Method::GET]),
            route("/a", Some("x.example"), &[]),
        ]);
        for (host, path, name) in [
            ("", "/a", "* /a"),
            ("", "/a/", "* /a"),
            ("", "/%61/x", "* /a"),
            ("", "/ab", "no_route"),
            ("", "/", "no_route"),
            ("", "/a/b", "* /a"),
            ("", "/a/b/", "* /a/b/"),
            ("", "/a/b/c/d", "* /a/b/c"),
            ("", "/a/b/cd", "* /a/b/"),
            ("X.example:8443", "/a/b/c", "x.example /a"),
            ("x.example", "/z", "no_route"),
            ("y.example", "/a", "* /a"),
        ] {
            assert_eq!(found(&table, host, Method::GET, path), name, "{host} {path}");
        }
        assert_eq!(found(&table, "", Method::POST, "/a/b/c"), "method_not_allowed", "no shorter route may catch it");
    }

    #[test]
    fn the_gateways_own_paths_come_first() {
        let table = RouteTable::new(&[route("/", None, &[])]);
        for (method, path, name) in [
            (Method::POST, "/user/refresh", "refresh"),
            (Method::GET, "/user/refresh", "method_not_allowed"),
            (Method::POST, "/user/refresh/", "* /"),
            (Method::DELETE, "/token/abc", "revoke abc"),
            (Method::GET, "/token/abc", "method_not_allowed"),
            (Method::DELETE, "/token/", "* /"),
            (Method::DELETE, "/token/a/b", "* /"),
            (Method::GET, "/.well-known/jwks.json", "keys"),
            (Method::POST, "/.well-known/jwks.json", "method_not_allowed"),
            (Method::HEAD, "/.well-known/oauth-authorization-server", "metadata"),
            (Method::POST, "/.well-known/oauth-authorization-server", "method_not_allowed"),
            (Method::GET, "/.well-known/oauth-authorization-server/other", "* /"),
        ] {
            assert_eq!(found(&table, "", method, path), name, "{path}");
        }
    }

    /// Places are kept for these alone: a backend may take its time.
    #[test]
    fn no_call_on_tokens_goes_to_a_backend() {
        let table = RouteTable::new(&[route("/", None, &[])]);
        let calls = ["/user/refresh", "/token/abc", "/token/%61bc"].map(|path| (path, true));
        let others = ["/user/refresh/", "/token", "/token/", "/token/a/", "/token/a/b"].map(|path| (path, false));
        for (path, is_one) in calls.into_iter().chain(others) {
            assert_eq!(table.is_token_call(path), is_one, "{path}");
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert_eq!(found(&table, "", method, path) != "* /", is_one, "{path}");
            }
        }
    }

    #[test]
    fn the_metadata_is_where_the_issuer_says() {
        for (issuer, path) in [
            ("https://gateway.example", "/.well-known/oauth-authorization-server"),
            ("https://gateway.example/", "/.well-known/oauth-authorization-server"),
            ("https://gateway.example:8443/a/b", "/.well-known/oauth-authorization-server/a/b"),
        ] {
            let table = RouteTable::new(&[route("/", None, &[])]).described_by(issuer);
            assert_eq!(found(&table, "", Method::GET, path), "metadata", "{issuer}");
            assert_eq!(found(&table, "", Method::GET, &format!("{path}/c")), "* /", "{issuer}");
        }
    }
}
