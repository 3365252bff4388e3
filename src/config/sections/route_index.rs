//! The routes of one configuration by their paths, so that a check of a route looks only at the routes above and below
//! it: each of 10,000 routes compared with each other would take minutes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;

use crate::config::sections::placed::Placed;
use crate::gateway::route::Route;

/// The path itself, then each shorter one that begins it in whole segments, with and without its trailing slash.
pub(super) fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let mut next = Some(path);
    std::iter::from_fn(move || {
        let prefix = next?;
        next = match prefix.strip_suffix('/') {
            Some("") => None,
            Some(shorter) => Some(shorter),
            None => prefix.rfind('/').and_then(|slash| prefix.get(..=slash)),
        };
        Some(prefix)
    })
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

/// Places of routes, by a key and a path.
pub(super) struct ByPath<'p, K>(HashMap<(K, Cow<'p, str>), ByDemand>);

/// Places in the order of the file, by what the routes ask for.
type ByDemand = Vec<(usize, Vec<usize>)>;

impl<'p, K: Hash + Eq> ByPath<'p, K> {
    pub(super) fn new() -> Self {
        ByPath(HashMap::new())
    }

    pub(super) fn insert(&mut self, key: K, path: Cow<'p, str>, demands: &Demands, place: usize) {
        let demand = demands.of_route[place];
        let routes = self.0.entry((key, path)).or_default();
        match routes.iter_mut().find(|(known, _)| *known == demand) {
            Some((_, places)) => places.push(place),
            None => routes.push((demand, vec![place])),
        }
    }

    /// The first route at this path that matches. `may_match`: true if a route that asks for the same as this one can.
    pub(super) fn first(
        &self,
        key: K,
        path: Cow<'p, str>,
        may_match: &mut dyn FnMut(usize) -> bool,
        matches: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let routes = self.0.get(&(key, path))?.iter();
        let possible = routes.filter(|(_, places)| places.first().is_some_and(|place| may_match(*place)));
        possible.filter_map(|(_, places)| places.iter().copied().find(|place| matches(*place))).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_whole_segments() {
        let of = |path| prefixes(path).collect::<Vec<_>>();
        assert_eq!(of("/a/bc"), ["/a/bc", "/a/", "/a", "/"]);
        assert_eq!(of("/a/"), ["/a/", "/a", "/"]);
        assert_eq!(of("/"), ["/"]);
    }
}
