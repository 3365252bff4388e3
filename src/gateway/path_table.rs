//! The routes of one host by their paths. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::gateway::route::Route;
use crate::types::per_worker::PerWorker;

type ByPath = HashMap<Box<[u8]>, Vec<PerWorker<Route>>, FixedState>;

#[derive(Default)]
pub(super) struct PathTable {
    exact: ByPath,
    /// Routes with `ignore_case`, by their paths in lower case.
    ignoring_case: ByPath,
    /// Length of the longest path of a route.
    max_len: usize,
}

/// The routes of one path.
pub(super) struct Candidates<'t> {
    exact: &'t [PerWorker<Route>],
    ignoring_case: &'t [PerWorker<Route>],
}

impl PathTable {
    pub(super) fn insert(&mut self, route: PerWorker<Route>) {
        let path = route.path.as_bytes();
        self.max_len = self.max_len.max(path.len());
        let routes = if route.ignore_case {
            self.ignoring_case.entry(path.to_ascii_lowercase().into())
        } else {
            self.exact.entry(path.into())
        };
        routes.or_default().push(route);
    }

    /// Returns true if there is a route of exactly this path.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.exact.contains_key(path) || self.ignoring_case.contains_key(&*path.to_ascii_lowercase())
    }

    /// The routes of the longest path that begins `path`, in whole segments.
    pub(super) fn longest(&self, path: &[u8]) -> Option<Candidates<'_>> {
        let lower_case = self.lower_case(path);
        prefixes(path, self.max_len).find_map(|prefix| {
            let exact = routes_at(&self.exact, prefix);
            let ignoring_case = routes_at(&self.ignoring_case, lower_case.get(..prefix.len())?);
            (!exact.is_empty() || !ignoring_case.is_empty()).then_some(Candidates { exact, ignoring_case })
        })
    }
}

impl PathTable {
    /// The path in lower case, if a route is found by it.
    fn lower_case<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        if self.ignoring_case.is_empty() || !path.iter().any(u8::is_ascii_uppercase) {
            Cow::Borrowed(path)
        } else {
            Cow::Owned(path.to_ascii_lowercase())
        }
    }
}

impl<'t> Candidates<'t> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'t PerWorker<Route>> + use<'t> {
        self.exact.iter().chain(self.ignoring_case)
    }
}

fn routes_at<'t>(routes: &'t ByPath, path: &[u8]) -> &'t [PerWorker<Route>] {
    if routes.is_empty() {
        return &[];
    }
    routes.get(path).map_or(&[], Vec::as_slice)
}

/// The path itself, then each shorter prefix of whole segments, with and without its trailing slash. Only those of at
/// most `max_len` bytes: each costs a hash of its length, so a request of 8 KiB would cost milliseconds.
fn prefixes(path: &[u8], max_len: usize) -> impl Iterator<Item = &[u8]> {
    let mut end = Some(path.len());
    let all = std::iter::from_fn(move || {
        let prefix = &path[..end?];
        end = match prefix {
            [] | [b'/'] => None,
            [shorter @ .., b'/'] => Some(shorter.len()),
            _ => prefix.iter().rposition(|byte| *byte == b'/').map(|slash| slash + 1),
        };
        Some(prefix)
    });
    all.skip_while(move |prefix| prefix.len() > max_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lens(path: &[u8], max_len: usize) -> Vec<usize> {
        prefixes(path, max_len).map(<[u8]>::len).collect()
    }

    #[test]
    fn prefixes_are_whole_segments_from_long_to_short() {
        assert_eq!(lens(b"/a/bc/d", 100), [7, 6, 5, 3, 2, 1]);
        assert_eq!(lens(b"/a/", 3), [3, 2, 1]);
        assert_eq!(lens(b"/", 1), [1]);
    }

    #[test]
    fn a_long_path_costs_no_more_than_the_longest_route() {
        let path = b"/a".repeat(4000);
        assert_eq!(lens(&path, 5), [5, 4, 3, 2, 1]);
        assert_eq!(lens(b"/abcdef", 3), [1]);
        let mut table = PathTable::default();
        for (path, ignore_case) in [("/a/a/", false), ("/A/a/a", true), ("/", false)] {
            table.insert(PerWorker::new(Route { path: path.into(), ignore_case, ..Route::everything() }, 1));
        }
        assert_eq!(table.max_len, 6);
        let found = |path: &[u8]| table.longest(path).and_then(|routes| Some(routes.iter().next()?.path.clone()));
        for (path, route) in [
            (&path[..], "/A/a/a"),
            (&path[..6], "/A/a/a"),
            (b"/a/a/b", "/a/a/"),
            (b"/a/a", "/"),
            (b"/b/a/a/a/a/a", "/"),
        ] {
            assert_eq!(found(path).as_deref(), Some(route));
        }
    }
}
