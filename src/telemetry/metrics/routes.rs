//! Counts of requests by route and status class.
//!
//! The counters of a route outlive a reload: the next configuration takes those of the routes that it still has.

use std::fmt;
use std::sync::Arc;

use super::count::Count;
use super::values::LabelledValue;
use super::worker::{STATUS_CLASSES, status_class};

/// The routes with counters of their own. All others are counted together.
const MAX_ROUTES: usize = 200;
/// The name of the routes beyond [`MAX_ROUTES`].
const OTHER: &str = "other";

/// The counters of one worker, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct OfWorker([Count; STATUS_CLASSES.len()]);

/// The counters of one route. They are no setting of it: two routes that differ only here are equal.
#[derive(Clone, Default)]
pub struct RouteRequests(Arc<[OfWorker]>);

impl RouteRequests {
    fn new(workers: usize) -> Self {
        RouteRequests((0..workers).map(|_| OfWorker::default()).collect())
    }

    /// Counts a finished request. `status` is 0 if the client disconnected before the response.
    pub fn count(&self, worker: usize, status: u16) {
        if let Some(OfWorker(counts)) = self.0.get(worker) {
            counts[status_class(status)].inc();
        }
    }

    fn sum(&self, class: usize) -> u64 {
        self.0.iter().map(|worker| worker.0[class].get()).sum()
    }
}

impl PartialEq for RouteRequests {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for RouteRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteRequests")
    }
}

/// The counters of all routes of a configuration.
#[derive(Clone, Default)]
pub struct RequestsByRoute(Vec<(Arc<str>, RouteRequests)>);

impl RequestsByRoute {
    /// `before`: those of the active configuration.
    pub fn new<'n>(names: impl Iterator<Item = &'n Arc<str>>, workers: usize, before: &RequestsByRoute) -> Self {
        let mut routes = RequestsByRoute::default();
        for name in names.filter(|name| !name.is_empty()) {
            if routes.find(name).is_some() {
                continue;
            }
            if routes.0.len() == MAX_ROUTES {
                tracing::warn!("bearward_route_requests_total counts all routes after the first {MAX_ROUTES} as other");
                routes.push(&OTHER.into(), workers, before);
                break;
            }
            routes.push(name, workers, before);
        }
        routes
    }

    fn push(&mut self, name: &Arc<str>, workers: usize, before: &RequestsByRoute) {
        if self.find(name).is_none() {
            let counters = before.find(name).cloned().unwrap_or_else(|| RouteRequests::new(workers));
            self.0.push((name.clone(), counters));
        }
    }

    /// The counters of the route with this name.
    pub fn of(&self, name: &str) -> RouteRequests {
        self.find(name).or_else(|| self.find(OTHER)).cloned().unwrap_or_default()
    }

    fn find(&self, name: &str) -> Option<&RouteRequests> {
        self.0.iter().find(|(known, _)| **known == *name).map(|(_, counters)| counters)
    }

    pub fn labelled(&self) -> Vec<LabelledValue> {
        let of_route = |(name, counters): &(Arc<str>, RouteRequests)| {
            let labels = |class: usize| vec![("route", name.to_string()), ("status", STATUS_CLASSES[class].to_owned())];
            let values = (0..STATUS_CLASSES.len()).map(|class| (labels(class), counters.sum(class) as f64));
            values.collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of_route).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(names: &[&str], before: &RequestsByRoute) -> RequestsByRoute {
        let names: Vec<Arc<str>> = names.iter().map(|name| (*name).into()).collect();
        RequestsByRoute::new(names.iter(), 2, before)
    }

    #[test]
    fn a_route_keeps_its_counts_over_a_reload() {
        let first = routes(&["a", "b", "a"], &RequestsByRoute::default());
        first.of("a").count(0, 200);
        first.of("a").count(1, 204);
        first.of("b").count(1, 0);
        let second = routes(&["b", "c"], &first);
        second.of("b").count(0, 503);
        second.of("c").count(7, 200);
        let mut counted = second.labelled();
        counted.retain(|(_, count)| *count > 0.0);
        let label = |route: &str, status: &str| vec![("route", route.to_owned()), ("status", status.to_owned())];
        assert_eq!(counted, [(label("b", "client_closed"), 1.0), (label("b", "5xx"), 1.0)]);
        assert_eq!(first.of("a").sum(2), 2);
        assert_eq!(second.of("a").sum(2), 0, "a route that is gone has no counters");
    }

    #[test]
    fn the_routes_after_the_first_200_are_counted_together() {
        let names: Vec<Arc<str>> = (0..300).map(|number| format!("route {number}").into()).collect();
        let routes = RequestsByRoute::new(names.iter(), 1, &RequestsByRoute::default());
        names.iter().for_each(|name| routes.of(name).count(0, 200));
        assert_eq!(routes.0.len(), MAX_ROUTES + 1);
        assert_eq!((routes.of("route 199").sum(2), routes.of("route 200").sum(2)), (1, 100));
        let again = RequestsByRoute::new(names.iter(), 1, &routes);
        assert_eq!(again.of(OTHER).sum(2), 100, "also after a reload");
    }

    #[test]
    fn a_route_may_have_the_name_other() {
        let mut names: Vec<Arc<str>> = (0..201).map(|number| format!("route {number}").into()).collect();
        names[3] = OTHER.into();
        let routes = RequestsByRoute::new(names.iter(), 1, &RequestsByRoute::default());
        names.iter().for_each(|name| routes.of(name).count(0, 200));
        assert_eq!((routes.0.len(), routes.of(OTHER).sum(2)), (MAX_ROUTES, 2), "no label occurs twice");
    }
}
