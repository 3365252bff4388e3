//! Warnings about routes of one backend with different rules: a path that seems to be protected and is not.

use std::collections::HashMap;

use http::Method;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::config::sections::route_index::{ByNode, Demands, Nodes};
use crate::config::sections::strip_prefix::at_backend;
use crate::gateway::route::{Access, Route};
use crate::upstream::UpstreamSettings;

type Routes = [Placed<Route>];

pub(super) fn report(root: &Table<'_>, routes: &Routes, upstreams: &[Placed<UpstreamSettings>]) {
    let mut checks = Checks::of(routes, upstreams);
    for (place, route) in routes.iter().enumerate() {
        let warnings =
            [checks.bare_path(place), checks.public_above(place), checks.other_case(place), checks.other_prefix(place)];
        for warning in warnings.into_iter().flatten() {
            root.report().warn(warning.at(&route.place));
        }
    }
}

/// The hosts of routes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Hosts<'r> {
    All,
    /// Routes with this `host`. `None`: routes without.
    Of(Option<&'r str>),
}

/// The routes, and where each of them is found. A route is named by its place in the file.
struct Checks<'r> {
    routes: &'r Routes,
    demands: Demands,
    /// The servers behind each route, as numbers. Routes that share one may lead to the same page. A fixed response
    /// has none.
    servers: Vec<Vec<usize>>,
    nodes: Nodes,
    at: HashMap<(Option<&'r str>, usize), Vec<usize>>,
    /// By a server, hosts, and each path above that of the route that has a public route.
    below: ByNode<(usize, Hosts<'r>)>,
    /// `None`: no paths differ only by case.
    in_any_case: Option<InAnyCase<'r>>,
    /// `None`: all routes have the same `strip_prefix`, which most have not.
    at_backend: Option<AtBackend>,
}

/// Routes by a server, the host, and the path or one above it in lower case.
struct InAnyCase<'r> {
    nodes: Nodes,
    at_or_below: ByNode<(usize, Option<&'r str>)>,
}

/// Routes by a server and the path that it gets.
struct AtBackend {
    nodes: Nodes,
    at: ByNode<usize>,
    below: ByNode<usize>,
}

impl<'r> Checks<'r> {
    fn of(routes: &'r Routes, upstreams: &[Placed<UpstreamSettings>]) -> Self {
        let demands = Demands::of(routes);
        let servers = servers(routes, upstreams);
        let nodes = Nodes::of(routes.iter().map(|route| route.value.path.as_str()));
        let mut at: HashMap<_, Vec<usize>> = HashMap::new();
        let mut has_public = vec![false; nodes.count()];
        for (place, Placed { value: route, .. }) in routes.iter().enumerate() {
            at.entry((route.host.as_deref(), nodes.node(place))).or_default().push(place);
            has_public[nodes.node(place)] |= route.access == Access::Public;
        }
        let mut below = ByNode::new();
        for (place, Placed { value: route, .. }) in routes.iter().enumerate() {
            for node in nodes.upwards(place).skip(1).filter(|node| has_public[*node]) {
                for server in &servers[place] {
                    for hosts in [Hosts::All, Hosts::Of(route.host.as_deref())] {
                        below.insert((*server, hosts), node, &demands, place);
                    }
                }
            }
        }
        let in_any_case = InAnyCase::of(routes, nodes.count(), &demands, &servers);
        let at_backend = has_prefixes(routes).then(|| AtBackend::of(routes, &demands, &servers));
        Checks { routes, demands, servers, nodes, at, below, in_any_case, at_backend }
    }

    /// `/admin/` does not match `/admin`, which most backends answer as well.
    fn bare_path(&mut self, place: usize) -> Option<ConfigError> {
        let routes = self.routes;
        let route = &routes[place].value;
        let bare = route.path.strip_suffix('/').filter(|bare| !bare.is_empty())?;
        // As a request finds its route: the routes of its host, then those of every host. The longest path decides,
        // also if its routes go to other backends.
        let hosts = [route.host.as_deref(), None];
        let above =
            |host: &Option<&'r str>| self.nodes.upwards(place).skip(1).find_map(|node| self.at.get(&(*host, node)));
        let longest = hosts.iter().find_map(above)?;
        let weaker = longest.iter().copied().find(|other| {
            self.servers[place].iter().any(|server| self.servers[*other].contains(server))
                && share_methods(&routes[*other].value, route)
                && routes[*other].value.asks_for_less_than(route)
        })?;
        let Placed { value: weaker, place: weaker_place } = &routes[weaker];
        let path = &route.path;
        let above = &weaker.path;
        let warning =
            ConfigError::new(format!("{bare} is not protected by this route"), format!("matches only below {path}"));
        let help = format!("write `path = \"{bare}\"`, which also matches everything below it");
        Some(warning.help(help).related(weaker_place, format!("{bare} belongs to {above}, which asks for less")))
    }

    /// Each path of the backend that no other route names needs no token: also one that it gets later. For the host of
    /// a public route, a protected route for all hosts has no effect below it.
    fn public_above(&mut self, place: usize) -> Option<ConfigError> {
        let Checks { routes, demands, servers, nodes, below, .. } = self;
        let route = &routes[place].value;
        if route.access != Access::Public {
            return None;
        }
        let hosts = match route.host.as_deref() {
            None => vec![Hosts::All],
            host => vec![Hosts::Of(host), Hosts::Of(None)],
        };
        let keys = servers[place].iter().flat_map(|server| hosts.iter().map(|hosts| (*server, *hosts)));
        let found = keys.filter_map(|key| {
            let may_match = &mut |other| demands.asks_for_less(routes, place, other);
            below.first(key, nodes.node(place), may_match, &|other| share_methods(route, &routes[other].value))
        });
        let protected = found.min()?;
        let path = &route.path;
        let warning = ConfigError::new(
            format!("all of {path} is public, in front of a backend with protected paths"),
            "paths of this backend that no other route names need no token",
        );
        let warning = warning.help("make only the public paths public, or serve them from an upstream of their own");
        Some(warning.related(&routes[protected].place, "this route of the same backend is protected"))
    }

    /// `/Admin` and `/admin` have different rules. A backend that ignores case has one page for both.
    fn other_case(&mut self, place: usize) -> Option<ConfigError> {
        let Checks { routes, demands, servers, in_any_case, .. } = self;
        let InAnyCase { nodes, at_or_below } = in_any_case.as_ref()?;
        let Placed { value: own, place: own_place } = &routes[place];
        let differs = |other: usize| {
            let other = &routes[other].value;
            other.path.get(..own.path.len()).is_some_and(|start| start != own.path)
                && !(own.ignore_case && other.ignore_case)
        };
        let found = servers[place].iter().filter_map(|server| {
            let may_match =
                &mut |other| demands.asks_for_less(routes, place, other) || demands.asks_for_less(routes, other, place);
            at_or_below.first((*server, own.host.as_deref()), nodes.node(place), may_match, &differs)
        });
        let other = &routes[found.min()?];
        // Of two routes with one length, the first reports.
        let is_later = other.place.span.as_ref()?.start < own_place.span.as_ref()?.start;
        if other.value.path.len() == own.path.len() && is_later {
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
    fn other_prefix(&mut self, place: usize) -> Option<ConfigError> {
        let Checks { routes, demands, servers, at_backend: index, .. } = self;
        let AtBackend { nodes, at, below } = index.as_ref()?;
        let own = &routes[place].value;
        let own_path = at_backend(own);
        let matches = |other: usize| {
            let other = &routes[other].value;
            own.strip_prefix != other.strip_prefix && share_methods(own, other)
        };
        let mut may_match = |other| demands.asks_for_less(routes, place, other);
        let mut found = None;
        for server in &servers[place] {
            let here_and_above =
                nodes.upwards(place).filter_map(|node| at.first(*server, node, &mut may_match, &matches));
            found = here_and_above.chain(found).min();
            let below = below.first(*server, nodes.node(place), &mut may_match, &matches);
            found = below.into_iter().chain(found).min();
        }
        let warning = ConfigError::new(
            format!("{} leads to paths of the backend that another route protects", own.path),
            format!("with `strip_prefix`, the backend gets every path below {own_path} from here"),
        );
        let warning = warning.help("give both routes the same rules, or serve one from an upstream of its own");
        Some(warning.related(&routes[found?].place, "this route of the same backend asks for more"))
    }
}

impl<'r> InAnyCase<'r> {
    /// `count`: how many nodes the paths have as they are. If they have fewer in lower case, two differ only by case.
    fn of(routes: &'r Routes, count: usize, demands: &Demands, servers: &[Vec<usize>]) -> Option<Self> {
        let paths: Vec<_> = routes.iter().map(|route| route.value.path.to_ascii_lowercase()).collect();
        let nodes = Nodes::of(paths.iter().map(String::as_str));
        if nodes.count() == count {
            return None;
        }
        let mut at_or_below = ByNode::new();
        for (place, route) in routes.iter().enumerate() {
            for node in nodes.upwards(place) {
                for server in &servers[place] {
                    at_or_below.insert((*server, route.value.host.as_deref()), node, demands, place);
                }
            }
        }
        Some(InAnyCase { nodes, at_or_below })
    }
}

impl AtBackend {
    fn of(routes: &Routes, demands: &Demands, servers: &[Vec<usize>]) -> Self {
        let nodes = Nodes::of(routes.iter().map(|route| at_backend(&route.value)));
        let mut index = AtBackend { nodes, at: ByNode::new(), below: ByNode::new() };
        for (place, servers) in servers.iter().enumerate() {
            for server in servers {
                index.at.insert(*server, index.nodes.node(place), demands, place);
                for above in index.nodes.upwards(place).skip(1) {
                    index.below.insert(*server, above, demands, place);
                }
            }
        }
        index
    }
}

/// The servers behind each route.
fn servers(routes: &Routes, upstreams: &[Placed<UpstreamSettings>]) -> Vec<Vec<usize>> {
    let mut numbers = HashMap::new();
    let mut of_upstream = Vec::new();
    for Placed { value, .. } in upstreams {
        let mut servers = Vec::new();
        for server in &value.servers {
            let next = numbers.len();
            servers.push(*numbers.entry((server.host.as_str(), server.port)).or_insert(next));
        }
        of_upstream.push(servers);
    }
    let servers = |route: &Placed<Route>| match route.value.respond {
        Some(_) => Vec::new(),
        None => of_upstream.get(route.value.upstream).cloned().unwrap_or_default(),
    };
    routes.iter().map(servers).collect()
}

/// Returns true if two routes have `strip_prefix`, or one has and another has not.
fn has_prefixes(routes: &Routes) -> bool {
    let mut prefixes = routes.iter().map(|route| &route.value.strip_prefix);
    let first = prefixes.next();
    prefixes.any(|prefix| Some(prefix) != first)
}

fn share_methods(one: &Route, other: &Route) -> bool {
    let has = |route: &Route, method: &Method| route.methods.is_empty() || route.methods.contains(method);
    one.methods.is_empty() || other.methods.is_empty() || one.methods.iter().any(|method| has(other, method))
}
