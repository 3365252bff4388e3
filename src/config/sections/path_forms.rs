//! `route.paths` and `route.ignore_case`: which spellings of a path belong to a route.

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::placed::Placed;
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
    match a.ignore_case || b.ignore_case {
        true => a.path.eq_ignore_ascii_case(&b.path),
        false => a.path == b.path,
    }
}

/// A route below one that ignores case must ignore case too. Otherwise another case of its path would get the rules of
/// the route above, and a backend that ignores case would take it for the same.
pub(super) fn report_case(root: &Table<'_>, routes: &[Placed<Route>]) {
    for route in routes.iter().filter(|route| !route.value.ignore_case) {
        let above = routes.iter().find(|above| above.value.ignore_case && is_below(&route.value, &above.value));
        let Some(above) = above else { continue };
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

/// Returns true if the longer path of `route` begins with the path of `above`, in whole segments.
fn is_below(route: &Route, above: &Route) -> bool {
    let (path, prefix) = (route.path.as_bytes(), above.path.as_bytes());
    let same_host = above.host.is_none() || above.host == route.host;
    let has_prefix = path.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    same_host && path.len() > prefix.len() && has_prefix && (prefix.ends_with(b"/") || path[prefix.len()] == b'/')
}
