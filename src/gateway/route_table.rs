//! Finds the route of a request: host, then the longest path in whole segments, then method. Pure.

use std::collections::{HashMap, HashSet};
use std::ptr;

use foldhash::fast::FixedState;
use http::Method;

use crate::gateway::endpoints::{Endpoint, Endpoints};
use crate::gateway::own_call::OwnCall;
use crate::gateway::path_table::PathTable;
use crate::gateway::protected_resource::WELL_KNOWN;
use crate::gateway::route::Route;
use crate::gateway::route_methods::{matches_method, method_not_allowed};
use crate::gateway::sign_in::paths::SignInPaths;
use crate::protocols::http::path::CanonicalPath;
use crate::protocols::http::readings::{PathForms, Readings};
use crate::protocols::http::target::without_port;
use crate::types::per_worker::PerWorker;
use crate::types::reject::{Reason, Reject};

/// What the gateway does with a request of this path and method.
pub enum Action<'a> {
    Own(OwnCall),
    Forward(&'a PerWorker<Route>),
    /// Routes have this path, and none this method. `route`: one of them, if all need a token.
    OtherMethod {
        route: &'a PerWorker<Route>,
        reject: Reject,
    },
}

impl<'a> Action<'a> {
    fn forwarding(self) -> Option<&'a PerWorker<Route>> {
        if let Action::Forward(route) = self { Some(route) } else { None }
    }
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

/// Where other clients look for it: below the path of the issuer, and, as RFC 8414 section 5 has it, above.
pub fn openid_paths(issuer: &str) -> [String; 2] {
    let path = path_of_issuer(issuer);
    [format!("{path}{OPENID_PATH}"), format!("{OPENID_PATH}{path}")]
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
    /// `[oauth]`, and the paths at which identity providers report.
    endpoints: Vec<(Box<[u8]>, Endpoint)>,
    /// Where the metadata of resources are: one path for each resource, so that there can be many.
    resource_paths: HashSet<Box<[u8]>, FixedState>,
    metadata_path: Box<str>,
    /// The same document. Not at the path of a route: a backend may be an OpenID provider.
    openid_paths: Vec<Box<str>>,
    /// `[sign_in]`. `None`: no provider is configured.
    sign_in: Option<SignInPaths>,
}

impl RouteTable {
    pub fn new(routes: &[Route], workers: usize) -> Self {
        let mut table = RouteTable {
            hosts: HashMap::default(),
            any_host: PathTable::default(),
            has_loosened: routes.iter().any(|route| route.forms != PathForms::STRICT),
            endpoints: Vec::new(),
            resource_paths: HashSet::default(),
            metadata_path: METADATA_PATH.into(),
            openid_paths: Vec::new(),
            sign_in: None,
        };
        for route in routes {
            let paths = match &route.host {
                Some(host) => table.hosts.entry(host.clone()).or_default(),
                None => &mut table.any_host,
            };
            paths.insert(PerWorker::new(route.clone(), workers));
        }
        table.with_issuer("")
    }

    /// Adds the endpoints of `[oauth]` to the gateway's own paths.
    pub fn with_endpoints(mut self, endpoints: &Endpoints) -> Self {
        self.add(endpoints.enabled());
        self
    }

    /// Adds the paths of `[sign_in]` to the gateway's own paths.
    pub fn with_sign_in(mut self, paths: Option<SignInPaths>) -> Self {
        self.sign_in = paths;
        self
    }

    /// Adds the paths at which identity providers report.
    pub fn with_receivers(mut self, paths: impl Iterator<Item = (Endpoint, String)>) -> Self {
        self.add(paths);
        self
    }

    fn add<P: AsRef<[u8]>>(&mut self, paths: impl Iterator<Item = (Endpoint, P)>) {
        for (endpoint, path) in paths {
            let path = path.as_ref().into();
            if endpoint == Endpoint::ProtectedResource {
                self.resource_paths.insert(path);
            } else {
                self.endpoints.push((path, endpoint));
            }
        }
    }

    /// Puts the metadata where clients of this issuer look for it.
    pub fn with_issuer(mut self, issuer: &str) -> Self {
        self.metadata_path = metadata_path(issuer).into();
        let tables = || self.hosts.values().chain([&self.any_host]);
        let is_free = |path: &String| tables().all(|paths| !paths.has(path.as_bytes()));
        self.openid_paths = openid_paths(issuer).into_iter().filter(is_free).map(Into::into).collect();
        self
    }

    /// Returns true if these two hosts, without ports, have the same routes.
    pub fn have_same_routes(&self, one: &str, other: &str) -> bool {
        let has_own_routes = |host: &str| !self.hosts.is_empty() && self.hosts.contains_key(&host.to_ascii_lowercase());
        one.eq_ignore_ascii_case(other) || !has_own_routes(one) && !has_own_routes(other)
    }

    /// Returns true for `/user/refresh`, `/token/{tokenId}`, the endpoints of `[oauth]` and the paths of `[sign_in]`.
    /// These never go to a backend.
    pub fn is_token_call(&self, path: &str) -> bool {
        path == REFRESH_PATH
            || named_token(path.as_bytes()).is_some()
            || self.endpoint(path.as_bytes()).is_some()
            || self.sign_in.as_ref().is_some_and(|paths| paths.contain(path.as_bytes()))
    }

    /// Returns true for every path that the gateway answers itself.
    pub fn is_own_path(&self, path: &str) -> bool {
        self.is_token_call(path) || path == KEYS_PATH || self.is_metadata_path(path.as_bytes())
    }

    fn endpoint(&self, path: &[u8]) -> Option<Endpoint> {
        // Every request comes here, and few ask for metadata.
        if path.starts_with(WELL_KNOWN.as_bytes()) && self.resource_paths.contains(path) {
            return Some(Endpoint::ProtectedResource);
        }
        self.endpoints.iter().find(|(own, _)| **own == *path).map(|(_, endpoint)| *endpoint)
    }

    fn is_metadata_path(&self, path: &[u8]) -> bool {
        path == self.metadata_path.as_bytes() || self.openid_paths.iter().any(|own| path == own.as_bytes())
    }

    /// Finds host first, then the longest path in whole segments, then the method. `host` may have a port.
    pub fn find(&self, host: &str, method: &Method, path: &CanonicalPath<'_>) -> Result<Action<'_>, Reject> {
        let path = path.as_bytes();
        match self.own_call(method, path) {
            Some(own) => own.map(Action::Own),
            None => self.routed(host, method, path),
        }
    }

    /// Returns true if a route has `paths`.
    pub fn has_loosened(&self) -> bool {
        self.has_loosened
    }

    /// Finds the route that forwards a path with several readings, `path` as the client sent it: all readings lead to
    /// this route, and it allows their forms. So no other route's rules can be meant, with whatever reading its backend
    /// has. The gateway's own paths have one form only.
    pub fn find_loosened(&self, host: &str, method: &Method, path: &str) -> Option<&PerWorker<Route>> {
        let route_of = |path: &[u8]| self.forwarding(host, method, path);
        let readings = Readings::of(path.as_bytes())?;
        let route = route_of(&readings.primary).filter(|route| route.forms.include(readings.forms))?;
        let is_same = |other: &Vec<u8>| route_of(other).is_some_and(|other| ptr::eq(other, route));
        readings.others()?.iter().all(is_same).then_some(route)
    }

    /// The route that forwards a request for this path, as the client sent it.
    pub fn find_forwarding(&self, host: &str, method: &Method, path: &str) -> Option<&PerWorker<Route>> {
        match CanonicalPath::parse(path) {
            Ok(path) => self.forwarding(host, method, path.as_bytes()),
            Err(_) => self.find_loosened(host, method, path),
        }
    }

    fn forwarding(&self, host: &str, method: &Method, path: &[u8]) -> Option<&PerWorker<Route>> {
        match self.own_call(method, path) {
            None => self.routed(host, method, path).ok().and_then(Action::forwarding),
            Some(_) => None,
        }
    }

    fn routed(&self, host: &str, method: &Method, path: &[u8]) -> Result<Action<'_>, Reject> {
        let of_host =
            if self.hosts.is_empty() { None } else { self.hosts.get(&without_port(host).to_ascii_lowercase()) };
        let tables = of_host.into_iter().chain([&self.any_host]);
        // The first host and the longest path decide. Others may have looser rules and must not catch what it rejects.
        let Some(candidates) = tables.into_iter().find_map(|paths| paths.longest(path)) else {
            return Err(Reason::NoRoute.into());
        };
        if let Some(route) = candidates.iter().find(|route| matches_method(route, method)) {
            return Ok(Action::Forward(route));
        }
        let reject = method_not_allowed(candidates.iter());
        match candidates.iter().next() {
            Some(route) if candidates.iter().all(|route| route.always_needs_token()) => {
                Ok(Action::OtherMethod { route, reject })
            }
            _ => Err(reject),
        }
    }

    fn own_call(&self, method: &Method, path: &[u8]) -> Option<Result<OwnCall, Reject>> {
        let only = |allowed: Method, allow, call| {
            if *method == allowed { Ok(call) } else { Err(Reject::from(Reason::MethodNotAllowed).allows(allow)) }
        };
        let read_only = |call| match *method {
            Method::GET | Method::HEAD => Ok(call),
            _ => Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD")),
        };
        if path == REFRESH_PATH.as_bytes() {
            return Some(only(Method::POST, "POST", OwnCall::Refresh));
        }
        if path == KEYS_PATH.as_bytes() {
            return Some(read_only(OwnCall::Keys));
        }
        if self.is_metadata_path(path) {
            return Some(read_only(OwnCall::Metadata));
        }
        if path == REVOKE_PREFIX.as_bytes() && *method == Method::DELETE {
            // A client that lost its token id must not delete something of a backend. An empty id is unknown.
            return Some(Ok(OwnCall::Revoke { token_id: String::new() }));
        }
        if let Some(token_id) = named_token(path) {
            // A token id is ASCII. Anything else becomes an empty id, which is answered like any unknown id.
            let token_id = std::str::from_utf8(token_id).unwrap_or_default().to_owned();
            return Some(only(Method::DELETE, "DELETE", OwnCall::Revoke { token_id }));
        }
        if let Some(endpoint) = self.endpoint(path) {
            return Some(endpoint.check_method(method).map(|()| OwnCall::Endpoint(endpoint)));
        }
        let paths = self.sign_in.as_ref().filter(|paths| paths.contain(path))?;
        Some(paths.find(method, path).map(OwnCall::SignIn))
    }
}

/// The one segment below [`REVOKE_PREFIX`]. A path with no segment there, or with more, belongs to a backend.
fn named_token(path: &[u8]) -> Option<&[u8]> {
    path.strip_prefix(REVOKE_PREFIX.as_bytes()).filter(|named| !named.is_empty() && !named.contains(&b'/'))
}

#[cfg(test)]
mod tests;
