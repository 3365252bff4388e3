//! Routes that match the same requests.

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::path_forms;
use crate::config::sections::placed::Placed;
use crate::gateway::route::Route;

pub(super) fn report(root: &Table<'_>, routes: &[Placed<Route>]) {
    for (index, route) in routes.iter().enumerate() {
        let Some(first) = routes[..index].iter().find(|first| overlap(&first.value, &route.value)) else { continue };
        let methods = match (&first.value.methods, &route.value.methods) {
            (some, _) | (_, some) if !some.is_empty() => "give them different `methods` or a different `host`",
            _ => "remove one, or give them different `methods` or a different `host`",
        };
        let error =
            ConfigError::new("two routes match the same requests", "expected a different path, host or methods")
                .help(methods)
                .related(&first.place, "the first route is here");
        root.report().add(error.at(&route.place));
    }
}

fn overlap(a: &Route, b: &Route) -> bool {
    let any = a.methods.is_empty() || b.methods.is_empty();
    path_forms::are_equal(a, b)
        && a.host == b.host
        && (any || a.methods.iter().any(|method| b.methods.contains(method)))
}
