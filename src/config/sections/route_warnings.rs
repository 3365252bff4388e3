//! Warnings about routes of one backend with different rules: a path that seems to be protected and is not.

use http::Method;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::sections::strip_prefix::at_backend;
use crate::gateway::route::{Access, Route};
use crate::upstream;

type Routes = [Placed<Route>];

pub(super) fn report(root: &Table<'_>, routes: &Routes, upstreams: &[Placed<upstream::Settings>]) {
    let share_backend = |one: &Route, other: &Route| {
        if one.respond.is_some() || other.respond.is_some() {
            return false;
        }
        let servers = |route: &Route| upstreams.get(route.upstream).map_or(&[][..], |upstream| &upstream.value.servers);
        let is_same = |one: &upstream::ServerSettings, other: &upstream::ServerSettings| {
            one.host == other.host && one.port == other.port
        };
        one.upstream == other.upstream
            || servers(one).iter().any(|one| servers(other).iter().any(|other| is_same(one, other)))
    };
    for route in routes {
        let others = routes.iter().filter(|other| share_backend(&route.value, &other.value)).collect::<Vec<_>>();
        let warnings = [
            bare_path(route, routes, &others),
            public_above(route, &others),
            other_case(route, &others),
            other_prefix(route, &others),
        ];
        for warning in warnings.into_iter().flatten() {
            root.report().warn(warning.at(&route.place));
        }
    }
}

/// `/admin/` does not match `/admin`, which most backends answer as well.
fn bare_path(route: &Placed<Route>, routes: &Routes, others: &[&Placed<Route>]) -> Option<ConfigError> {
    let bare = route.value.path.strip_suffix('/').filter(|bare| !bare.is_empty())?;
    // As a request finds its route: the routes of its host, then those of every host. The longest path decides, also if
    // its routes go to other backends.
    let matches =
        |host: &Option<String>, other: &Placed<Route>| other.value.host == *host && is_prefix(&other.value.path, bare);
    let longest = |host: &Option<String>| {
        routes.iter().filter(|other| matches(host, other)).map(|other| other.value.path.len()).max()
    };
    let hosts = [route.value.host.clone(), None];
    let (host, longest) = hosts.iter().find_map(|host| Some((host, longest(host)?)))?;
    let weaker = others.iter().copied().filter(|other| matches(host, other)).find(|other| {
        let other = &other.value;
        other.path.len() == longest && share_methods(other, &route.value) && other.asks_for_less_than(&route.value)
    })?;
    let (path, above) = (&route.value.path, &weaker.value.path);
    let warning =
        ConfigError::new(format!("{bare} is not protected by this route"), format!("matches only below {path}"));
    let help = format!("write `path = \"{bare}\"`, which also matches everything below it");
    Some(warning.help(help).related(&weaker.place, format!("{bare} belongs to {above}, which asks for less")))
}

/// Each path of the backend that no other route names needs no token: also one that it gets later. For the host of a
/// public route, a protected route for all hosts has no effect below it.
fn public_above(route: &Placed<Route>, others: &[&Placed<Route>]) -> Option<ConfigError> {
    if route.value.access != Access::Public {
        return None;
    }
    let protected = others.iter().find(|other| {
        let other = &other.value;
        route.value.asks_for_less_than(other)
            && (route.value.host.is_none() || other.host.is_none() || route.value.host == other.host)
            && other.path.len() > route.value.path.len()
            && is_prefix(&route.value.path, &other.path)
            && share_methods(&route.value, other)
    })?;
    let path = &route.value.path;
    let warning = ConfigError::new(
        format!("all of {path} is public, in front of a backend with protected paths"),
        "paths of this backend that no other route names need no token",
    );
    let warning = warning.help("make only the public paths public, or serve them from an upstream of their own");
    Some(warning.related(&protected.place, "this route of the same backend is protected"))
}

/// `/Admin` and `/admin` have different rules. A backend that ignores case has one page for both.
fn other_case(route: &Placed<Route>, others: &[&Placed<Route>]) -> Option<ConfigError> {
    let own = &route.value;
    let other = others.iter().find(|other| {
        let other = &other.value;
        let start = other.path.get(..own.path.len());
        let differs = start.is_some_and(|start| start != own.path && start.eq_ignore_ascii_case(&own.path));
        differs
            && is_prefix(&own.path.to_ascii_lowercase(), &other.path.to_ascii_lowercase())
            && own.host == other.host
            && !(own.ignore_case && other.ignore_case)
            && (own.asks_for_less_than(other) || other.asks_for_less_than(own))
    })?;
    // Of two routes with one length, the first reports.
    if other.value.path.len() == own.path.len() && other.place.span.as_ref()?.start < route.place.span.as_ref()?.start {
        return None;
    }
    let warning = ConfigError::new(
        "another route differs only by case, and has other rules",
        "a backend that ignores case takes both for one path",
    );
    let warning = warning.help("set `ignore_case = true` if the backend ignores case, or rename one of the paths");
    Some(warning.related(&other.place, "the other route"))
}

/// With `strip_prefix`, two paths of the gateway are one path of the backend, and the longest match does not choose
/// between them.
fn other_prefix(route: &Placed<Route>, others: &[&Placed<Route>]) -> Option<ConfigError> {
    let (own, own_path) = (&route.value, at_backend(&route.value));
    let protected = others.iter().find(|other| {
        let (other, path) = (&other.value, at_backend(&other.value));
        own.strip_prefix != other.strip_prefix
            && own.asks_for_less_than(other)
            && (is_prefix(own_path, path) || is_prefix(path, own_path))
            && share_methods(own, other)
    })?;
    let warning = ConfigError::new(
        format!("{} leads to paths of the backend that another route protects", own.path),
        format!("with `strip_prefix`, the backend gets every path below {own_path} from here"),
    );
    let warning = warning.help("give both routes the same rules, or serve one from an upstream of its own");
    Some(warning.related(&protected.place, "this route of the same backend asks for more"))
}

/// Returns true if `path` is `prefix` or below it, in whole segments.
fn is_prefix(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

fn share_methods(one: &Route, other: &Route) -> bool {
    let has = |route: &Route, method: &Method| route.methods.is_empty() || route.methods.contains(method);
    one.methods.is_empty() || other.methods.is_empty() || one.methods.iter().any(|method| has(other, method))
}
