//! Finds the route of a request: host, then the longest path in whole segments, then method. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use http::Method;

use crate::gateway::endpoints::{Endpoint, Endpoints};
use crate::gateway::path_table::PathTable;
use crate::gateway::route::Route;
use crate::gateway::route_methods::{matches_method, method_not_allowed};
use crate::protocols::http::path::CanonicalPath;
use crate::protocols::http::readings::{PathForms, Readings};
use crate::protocols::http::target::without_port;
use crate::types::reject::{Reason, Reject};

/// What the gateway does with a request of this path and method.
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

/// The gateway's own paths. They are matched before every route, so that no route can shadow them.
pub const REFRESH_PATH: &str = "/user/refresh";
pub const REVOKE_PREFIX: &str = "/token/";
pub const KEYS_PATH: &str = "/.well-known/jwks.json";
/// RFC 8414 section 3. If the issuer has a path, it follows: see [`metadata_path`].
const METADATA_PATH: &str = "/.well-known/oauth-authorization-server";

/// OpenID Connect Discovery 1.0 section 4. If the issuer has a path, it stands before. Many clients look only here.
const OPENID_PATH: &str = "/.well-known/openid-configuration";

/// Where clients look for the metadata of this issuer.
pub fn metadata_path(issuer: &str) -> String {
    format!("{METADATA_PATH}{}", path_of_issuer(issuer))
}

fn path_of_issuer(issuer: &str) -> String {
    let path = issuer.parse::<http::Uri>().map(|uri| uri.path().trim_end_matches('/').to_owned());
    path.unwrap_or_default()
}

/// All routes. A lookup costs one hash for each path segment and does not depend on the number of routes.
pub struct RouteTable {
    hosts: HashMap<String, PathTable, FixedState>,
    any_host: PathTable,
    /// If false, every route has `paths = "strict"`.
    has_loosened: bool,
    /// `[oauth]`: at most four.
    endpoints: Vec<(Box<[u8]>, Endpoint)>,
    metadata_path: Box<str>,
    /// The same document. `None` if a route has this path: a backend may be an OpenID provider.
    openid_path: Option<Box<str>>,
}

impl RouteTable {
    pub fn new(routes: &[Route]) -> Self {
        let mut table = RouteTable {
            hosts: HashMap::default(),
            any_host: PathTable::default(),
            has_loosened: routes.iter().any(|route| route.forms != PathForms::STRICT),
            endpoints: Vec::new(),
            metadata_path: METADATA_PATH.into(),
            openid_path: None,
        };
        for route in routes {
            let paths = match &route.host {
                Some(host) => table.hosts.entry(host.clone()).or_default(),
                None => &mut table.any_host,
            };
            paths.insert(Arc::new(route.clone()));
        }
        table.with_issuer("")
    }

    /// Adds the endpoints of `[oauth]` to the gateway's own paths.
    pub fn with_endpoints(mut self, endpoints: &Endpoints) -> Self {
        self.endpoints = endpoints.enabled().map(|(endpoint, path)| (path.as_bytes().into(), endpoint)).collect();
        self
    }

    /// Puts the metadata where clients of this issuer look for it.
    pub fn with_issuer(mut self, issuer: &str) -> Self {
        self.metadata_path = metadata_path(issuer).into();
        let openid_path = format!("{}{OPENID_PATH}", path_of_issuer(issuer));
        let is_free = |paths: &PathTable| !paths.has(openid_path.as_bytes());
        let is_free = self.hosts.values().chain([&self.any_host]).all(is_free);
        self.openid_path = is_free.then(|| openid_path.into());
        self
    }

    /// Returns true if these two hosts, without ports, have the same routes.
    pub fn have_same_routes(&self, one: &str, other: &str) -> bool {
        let has_own_routes = |host: &str| !self.hosts.is_empty() && self.hosts.contains_key(&host.to_ascii_lowercase());
        one.eq_ignore_ascii_case(other) || !has_own_routes(one) && !has_own_routes(other)
    }

    /// Returns true for `/user/refresh`, `/token/{tokenId}` and the endpoints of `[oauth]`. These never go to a
    /// backend.
    pub fn is_token_call(&self, path: &str) -> bool {
        path == REFRESH_PATH
            || named_token(path.as_bytes()).is_some()
            || self.endpoints.iter().any(|(own, _)| **own == *path.as_bytes())
    }

    /// Returns true for every path that the gateway answers itself.
    pub fn is_own_path(&self, path: &str) -> bool {
        let is_document =
            path == KEYS_PATH || path == &*self.metadata_path || Some(path) == self.openid_path.as_deref();
        self.is_token_call(path) || is_document
    }

    /// Finds host first, then the longest path in whole segments, then the method. `host` may have a port.
    pub fn find<'p>(&self, host: &str, method: &Method, path: &'p CanonicalPath<'_>) -> Result<Action<'p>, Reject> {
        self.find_decoded(host, method, path.as_bytes())
    }

    /// Returns true if a route has `paths`.
    pub fn has_loosened(&self) -> bool {
        self.has_loosened
    }

    /// Finds the route that forwards a path with several readings, `path` as the client sent it: all readings lead to
    /// this route, and it allows their forms. So no other route's rules can be meant, with whatever reading its backend
    /// has. The gateway's own paths have one form only.
    pub fn find_loosened(&self, host: &str, method: &Method, path: &str) -> Option<Arc<Route>> {
        let route_of = |path: &[u8]| match self.find_decoded(host, method, path) {
            Ok(Action::Forward(route)) => Some(route),
            _ => None,
        };
        let readings = Readings::of(path.as_bytes())?;
        let route = route_of(&readings.primary).filter(|route| route.forms.include(readings.forms))?;
        let is_same = |other: &Vec<u8>| route_of(other).is_some_and(|other| Arc::ptr_eq(&other, &route));
        readings.others()?.iter().all(is_same).then_some(route)
    }

    fn find_decoded<'p>(&self, host: &str, method: &Method, path: &'p [u8]) -> Result<Action<'p>, Reject> {
        if let Some(own) = self.own_action(method, path) {
            return own;
        }
        if let Some((_, endpoint)) = self.endpoints.iter().find(|(own, _)| **own == *path) {
            return endpoint_action(method, *endpoint);
        }
        let tables = self.paths_of(host).into_iter().chain([&self.any_host]);
        // The first host and the longest path decide. Others may have looser rules and must not catch what it rejects.
        let Some(candidates) = tables.into_iter().find_map(|paths| paths.longest(path)) else {
            return Err(Reason::NoRoute.into());
        };
        match candidates.iter().find(|route| matches_method(route, method)) {
            Some(route) => Ok(Action::Forward(route.clone())),
            None => Err(method_not_allowed(candidates.iter())),
        }
    }

    fn paths_of(&self, host: &str) -> Option<&PathTable> {
        if self.hosts.is_empty() {
            return None;
        }
        self.hosts.get(&without_port(host).to_ascii_lowercase())
    }

    fn own_action<'p>(&self, method: &Method, path: &'p [u8]) -> Option<Result<Action<'p>, Reject>> {
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
        let openid_path = self.openid_path.as_deref().map(str::as_bytes);
        if path == self.metadata_path.as_bytes() || Some(path) == openid_path {
            return Some(read_only(Action::Metadata));
        }
        if path == REVOKE_PREFIX.as_bytes() && *method == Method::DELETE {
            // A client that lost its token id must not delete something of a backend. An empty id is unknown.
            return Some(Ok(Action::Revoke { token_id: "" }));
        }
        let token_id = named_token(path)?;
        // A token id is ASCII. Anything else becomes an empty id, which is answered like any unknown id.
        let token_id = std::str::from_utf8(token_id).unwrap_or_default();
        Some(only(Method::DELETE, "DELETE", Action::Revoke { token_id }))
    }
}

/// The one segment below [`REVOKE_PREFIX`]. A path with no segment there, or with more, belongs to a backend.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::route::Access;

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
        let path = CanonicalPath::parse(path).expect("a canonical path");
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
    fn hosts_without_routes_of_their_own_have_the_same_routes() {
        let table = RouteTable::new(&[route("/", None, &[]), route("/", Some("x.example"), &[])]);
        for (one, other, expected) in [
            ("a.example", "b.example", true),
            ("x.example", "X.example", true),
            ("a.example", "x.example", false),
            ("x.example", "a.example", false),
            ("a.example", "X.EXAMPLE", false),
        ] {
            assert_eq!(table.have_same_routes(one, other), expected, "{one} {other}");
        }
        assert!(RouteTable::new(&[route("/", None, &[])]).have_same_routes("a.example", "b.example"));
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
        assert_eq!(found(&table, "", Method::POST, "/a/b/c"), "method_not_allowed", "no shorter route may match");
    }

    #[test]
    fn own_paths_come_before_routes() {
        let table = RouteTable::new(&[route("/", None, &[])]);
        for (method, path, name) in [
            (Method::POST, "/user/refresh", "refresh"),
            (Method::GET, "/user/refresh", "method_not_allowed"),
            (Method::POST, "/user/refresh/", "* /"),
            (Method::DELETE, "/token/abc", "revoke abc"),
            (Method::GET, "/token/abc", "method_not_allowed"),
            (Method::DELETE, "/token/", "revoke "),
            (Method::POST, "/token/", "* /"),
            (Method::DELETE, "/token/a/b", "* /"),
            (Method::GET, "/.well-known/jwks.json", "keys"),
            (Method::POST, "/.well-known/jwks.json", "method_not_allowed"),
            (Method::HEAD, "/.well-known/oauth-authorization-server", "metadata"),
            (Method::POST, "/.well-known/oauth-authorization-server", "method_not_allowed"),
            (Method::GET, "/.well-known/oauth-authorization-server/other", "* /"),
            (Method::GET, "/.well-known/openid-configuration", "metadata"),
            (Method::PUT, "/.well-known/openid-configuration", "method_not_allowed"),
            (Method::GET, "/.well-known/openid-configuration/other", "* /"),
        ] {
            assert_eq!(found(&table, "", method, path), name, "{path}");
        }
    }

    #[test]
    fn a_backend_may_be_an_openid_provider() {
        for host in [None, Some("login.example")] {
            let table =
                RouteTable::new(&[route("/", None, &[]), route("/.well-known/openid-configuration", host, &[])]);
            let name = format!("{} /.well-known/openid-configuration", host.unwrap_or("*"));
            assert_eq!(found(&table, "login.example", Method::GET, "/.well-known/openid-configuration"), name);
            assert!(!table.is_own_path("/.well-known/openid-configuration"));
        }
        let table = RouteTable::new(&[route("/", None, &[])]).with_issuer("https://gateway.example/a/");
        assert!(table.is_own_path("/a/.well-known/openid-configuration"));
        assert_eq!(found(&table, "", Method::GET, "/a/.well-known/openid-configuration"), "metadata");
        assert_eq!(found(&table, "", Method::GET, "/.well-known/openid-configuration"), "* /");
    }

    /// The reserve for token calls must not be used up by slow backends.
    #[test]
    fn token_calls_never_go_to_a_backend() {
        let table = RouteTable::new(&[route("/", None, &[])]);
        let calls = ["/user/refresh", "/token/abc", "/token/%61bc"].map(|path| (path, true));
        let others = ["/user/refresh/", "/token", "/token/a/", "/token/a/b"].map(|path| (path, false));
        for (path, is_token_call) in calls.into_iter().chain(others) {
            assert_eq!(table.is_token_call(path), is_token_call, "{path}");
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert_eq!(found(&table, "", method, path) != "* /", is_token_call, "{path}");
            }
        }
    }

    #[test]
    fn trace_needs_a_route_that_names_it() {
        let track = || Method::from_bytes(b"TRACK").expect("a method");
        let table = RouteTable::new(&[route("/", None, &[]), route("/named", None, &[Method::TRACE, track()])]);
        let lower = Method::from_bytes(b"trace").expect("a method");
        for (method, path, name) in [
            (Method::TRACE, "/", "method_not_allowed"),
            (track(), "/a", "method_not_allowed"),
            (lower.clone(), "/", "method_not_allowed"),
            (Method::TRACE, "/named", "* /named"),
            (track(), "/named/a", "* /named"),
            (lower, "/named", "method_not_allowed"),
            (Method::OPTIONS, "/", "* /"),
            (Method::from_bytes(b"PROPFIND").expect("a method"), "/", "* /"),
        ] {
            assert_eq!(found(&table, "", method.clone(), path), name, "{method} {path}");
        }
    }

    #[test]
    fn allow_lists_each_method_once() {
        let preflight = Route { preflight: true, ..route("/p", None, &[Method::GET]) };
        let both = [Method::OPTIONS, Method::POST];
        let with_options = Route { preflight: true, ..route("/o", None, &both) };
        let routes = [preflight, with_options, route("/q", None, &[Method::GET]), route("/q", None, &[Method::PUT])];
        let table = RouteTable::new(&[&routes[..], &[route("/", None, &[])]].concat());
        for (path, allow) in [
            ("/p", "GET, OPTIONS"),
            ("/o", "OPTIONS, POST"),
            ("/q", "GET, PUT"),
            ("/", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        ] {
            let path = CanonicalPath::parse(path).expect("a canonical path");
            let Err(reject) = table.find("", &Method::TRACE, &path) else { panic!("a route allows TRACE") };
            assert_eq!(reject.allow.expect("Allow"), allow);
        }
    }

    #[test]
    fn metadata_follows_the_path_of_the_issuer() {
        for (issuer, path) in [
            ("https://gateway.example", "/.well-known/oauth-authorization-server"),
            ("https://gateway.example/", "/.well-known/oauth-authorization-server"),
            ("https://gateway.example:8443/a/b", "/.well-known/oauth-authorization-server/a/b"),
        ] {
            let table = RouteTable::new(&[route("/", None, &[])]).with_issuer(issuer);
            assert_eq!(found(&table, "", Method::GET, path), "metadata", "{issuer}");
            assert_eq!(found(&table, "", Method::GET, &format!("{path}/c")), "* /", "{issuer}");
        }
    }
}
