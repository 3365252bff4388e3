//! Routes that match the same requests.

use std::collections::HashMap;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::path_forms;
use crate::config::sections::placed::Placed;
use crate::gateway::route::Route;

pub(super) fn report(root: &Table<'_>, routes: &[Placed<Route>]) {
    // Only routes of one host and path, in whatever case, can match the same requests.
    let mut by_path: HashMap<_, Vec<&Placed<Route>>> = HashMap::new();
    for route in routes {
        let key = (route.value.host.as_deref(), route.value.path.to_ascii_lowercase());
        let earlier = by_path.entry(key).or_default();
        if let Some(first) = earlier.iter().find(|first| overlap(&first.value, &route.value)) {
            root.report().add(conflict(first, route));
        }
        earlier.push(route);
    }
}

fn conflict(first: &Placed<Route>, route: &Placed<Route>) -> ConfigError {
    let methods = match (&first.value.methods, &route.value.methods) {
        (some, _) | (_, some) if !some.is_empty() => "give them different `methods` or a different `host`",
        _ => "remove one, or give them different `methods` or a different `host`",
    };
    let error = ConfigError::new("two routes match the same requests", "expected a different path, host or methods");
    error.help(methods).related(&first.place, "the first route is here").at(&route.place)
}

fn overlap(a: &Route, b: &Route) -> bool {
    let any = a.methods.is_empty() || b.methods.is_empty();
    path_forms::are_equal(a, b) && (any || a.methods.iter().any(|method| b.methods.contains(method)))
}
