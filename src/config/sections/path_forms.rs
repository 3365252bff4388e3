//! `route.paths` and `route.ignore_case`: which spellings of a path belong to a route.

use std::collections::HashMap;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::placed::Placed;
use crate::config::sections::route_index::Nodes;
use crate::gateway::route::Route;
use crate::protocols::http::readings::PathForms;

const FORMS: [(&str, PathForms); 4] = [
    ("strict", PathForms::STRICT),
    ("encoded_slash", PathForms { encoded_slash: true, ..PathForms::STRICT }),
    ("semicolon", PathForms { semicolon: true, ..PathForms::STRICT }),
    ("double_slash", PathForms { double_slash: true, ..PathForms::STRICT }),
];

/// `paths`: one of the words, or a list of them.
pub(super) fn forms(table: &mut Table<'_>) -> PathForms {
    let forms = table.take("paths", Shape::Any(vec![Shape::choice(&FORMS), Shape::list(Shape::choice(&FORMS[1..]))]));
    table.default("paths", "strict");
    match forms {
        Some(value) if value.is_list() => list(&value),
        Some(value) => value.choice(&FORMS).unwrap_or_default(),
        None => PathForms::STRICT,
    }
}

fn list(value: &Value<'_>) -> PathForms {
    let forms = value.list_of("[\"encoded_slash\", \"semicolon\"]", |text| match text {
        "strict" => Err(ConfigError::new("\"strict\" allows no other form", "expected `paths = \"strict\"` alone")),
        text => choose(text, &FORMS),
    });
    forms.unwrap_or_default().into_iter().fold(PathForms::STRICT, |all, one| PathForms {
        encoded_slash: all.encoded_slash || one.encoded_slash,
        semicolon: all.semicolon || one.semicolon,
        double_slash: all.double_slash || one.double_slash,
    })
}

/// Returns true if both routes have the same path. One route that ignores case is enough.
pub(super) fn are_equal(a: &Route, b: &Route) -> bool {
    if a.ignore_case || b.ignore_case { a.path.eq_ignore_ascii_case(&b.path) } else { a.path == b.path }
}

/// A route below one that ignores case must ignore case too. Otherwise another case of its path would get the rules of
/// the route above, and a backend that ignores case would take it for the same.
pub(super) fn report_case(root: &Table<'_>, routes: &[Placed<Route>]) {
    if !routes.iter().any(|route| route.value.ignore_case) {
        return;
    }
    let paths: Vec<_> = routes.iter().map(|route| route.value.path.to_ascii_lowercase()).collect();
    let nodes = Nodes::of(paths.iter().map(String::as_str));
    // The first of each host and path.
    let mut ignoring = HashMap::new();
    for (place, route) in routes.iter().enumerate().filter(|(_, route)| route.value.ignore_case) {
        ignoring.entry((route.value.host.as_deref(), nodes.node(place))).or_insert(place);
    }
    for (place, route) in routes.iter().enumerate().filter(|(_, route)| !route.value.ignore_case) {
        let hosts = [None, route.value.host.as_deref()];
        let places =
            nodes.upwards(place).skip(1).flat_map(|node| hosts.map(|host| ignoring.get(&(host, node)).copied()));
        let Some(above) = places.flatten().min().and_then(|first| routes.get(first)) else { continue };
        let error = ConfigError::new(
            "this route needs `ignore_case = true`",
            format!("below {}, which ignores case", above.value.path),
        );
        let error = error
            .help("without it, the same path in another case gets the rules of the route above it")
            .related(&above.place, "this route ignores case");
        root.report().add(error.at(&route.place));
    }
}
