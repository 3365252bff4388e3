//! The routes of one configuration by their paths, so that a check of a route looks only at the routes above and below
//! it: each of 10,000 routes compared with each other would take minutes.

use std::collections::HashMap;
use std::hash::Hash;

use crate::config::sections::placed::Placed;
use crate::gateway::route::Route;

/// The node of `/`.
const ROOT: usize = 0;

/// Paths as nodes of a tree. Above a path is each shorter one that begins it in whole segments, with and without its
/// trailing slash. A path is named by its place among all.
pub(super) struct Nodes {
    of_path: Vec<usize>,
    /// By node. The root is above itself.
    above: Vec<usize>,
    is_path: Vec<bool>,
}

impl Nodes {
    pub(super) fn of<'p>(paths: impl Iterator<Item = &'p str>) -> Self {
        let mut above = vec![ROOT];
        let mut below = HashMap::new();
        let mut find = |path: &'p str| {
            pieces(path).fold(ROOT, |node, piece| {
                *below.entry((node, piece)).or_insert_with(|| {
                    above.push(node);
                    above.len() - 1
                })
            })
        };
        let of_path: Vec<_> = paths.map(&mut find).collect();
        let mut is_path = vec![false; above.len()];
        of_path.iter().for_each(|node| is_path[*node] = true);
        Nodes { of_path, above, is_path }
    }

    /// How many nodes there are: the paths, and what is above them.
    pub(super) fn count(&self) -> usize {
        self.above.len()
    }

    pub(super) fn node(&self, place: usize) -> usize {
        self.of_path[place]
    }

    /// The node of this path, then those of the paths above it, the longest first.
    pub(super) fn upwards(&self, place: usize) -> impl Iterator<Item = usize> {
        let above = |node: &usize| (*node != ROOT).then(|| self.above[*node]);
        std::iter::successors(Some(self.of_path[place]), above).filter(|node| self.is_path[*node])
    }
}

/// The segments and slashes after the first slash.
fn pieces(path: &str) -> impl Iterator<Item = &str> {
    let segments = path.strip_prefix('/').unwrap_or(path).split_inclusive('/');
    let with_slash = segments.flat_map(|segment| segment.strip_suffix('/').map_or([segment, ""], |name| [name, "/"]));
    with_slash.filter(|piece| !piece.is_empty())
}

/// What each route asks for, as a number: routes with the same number accept the same requests, apart from their paths.
pub(super) struct Demands {
    of_route: Vec<usize>,
    /// Whether a route with the first number may accept what one with the second rejects.
    known: HashMap<(usize, usize), bool>,
}

impl Demands {
    pub(super) fn of(routes: &[Placed<Route>]) -> Self {
        let mut numbers = HashMap::new();
        let number = |placed: &Placed<Route>| {
            let Route { access, certificate, enforce, .. } = &placed.value;
            let next = numbers.len();
            *numbers.entry(format!("{access:?} {certificate:?} {enforce}")).or_insert(next)
        };
        Demands { of_route: routes.iter().map(number).collect(), known: HashMap::new() }
    }

    /// As [`Route::asks_for_less_than`], which compares rules, for the routes with these places.
    pub(super) fn asks_for_less(&mut self, routes: &[Placed<Route>], own: usize, other: usize) -> bool {
        let pair = (self.of_route[own], self.of_route[other]);
        *self.known.entry(pair).or_insert_with(|| routes[own].value.asks_for_less_than(&routes[other].value))
    }
}

/// Places of routes, by a key and a node.
pub(super) struct ByNode<K> {
    /// What the routes ask for, in the order of the first route that does.
    demands: HashMap<(K, usize), Vec<usize>>,
    /// The routes of each demand, in the order of the file.
    places: HashMap<(K, usize, usize), Vec<usize>>,
}

impl<K: Copy + Hash + Eq> ByNode<K> {
    pub(super) fn new() -> Self {
        ByNode { demands: HashMap::new(), places: HashMap::new() }
    }

    pub(super) fn insert(&mut self, key: K, node: usize, demands: &Demands, place: usize) {
        let demand = demands.of_route[place];
        let places = self.places.entry((key, node, demand)).or_default();
        if places.is_empty() {
            self.demands.entry((key, node)).or_default().push(demand);
        }
        places.push(place);
    }

    /// The first route at this node that matches. `may_match`: true if a route that asks for the same as this one can.
    pub(super) fn first(
        &self,
        key: K,
        node: usize,
        may_match: &mut dyn FnMut(usize) -> bool,
        matches: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut found = None;
        for demand in self.demands.get(&(key, node)).into_iter().flatten() {
            let places = &self.places[&(key, node, *demand)];
            if found.is_some_and(|found| found < places[0]) {
                break;
            }
            if may_match(places[0]) {
                found = places.iter().copied().find(|place| matches(*place)).into_iter().chain(found).min();
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_a_path_are_those_that_begin_it_in_whole_segments() {
        let paths = ["/a/bc/", "/", "/a/b", "/a/bc", "/a", "/a/bc/d/e", "/a/", "/x"];
        let nodes = Nodes::of(paths.into_iter());
        let of = |path: &str| {
            let place = paths.iter().position(|other| *other == path).expect("a path");
            let path_at = |node: usize| paths[nodes.of_path.iter().position(|other| *other == node).expect("a path")];
            nodes.upwards(place).map(path_at).collect::<Vec<_>>()
        };
        assert_eq!(of("/a/bc/d/e"), ["/a/bc/d/e", "/a/bc/", "/a/bc", "/a/", "/a", "/"]);
        assert_eq!(of("/a/b"), ["/a/b", "/a/", "/a", "/"]);
        assert_eq!(of("/x"), ["/x", "/"]);
        assert_eq!(of("/"), ["/"]);
        assert_eq!(nodes.count(), 10);
    }
}
