//! `route.strip_prefix`: the part of the path that the backend does not get.

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::gateway::route::Route;
use crate::protocols::http::header_rules::HeaderRules;
use crate::protocols::http::headers::X_FORWARDED_PREFIX;
use crate::protocols::http::path_prefix::PathPrefix;
use crate::protocols::http::readings::PathForms;

/// `path`: that of the route.
pub(super) fn read(
    table: &mut Table<'_>,
    path: Option<&str>,
    forms: PathForms,
    headers: Option<&HeaderRules>,
) -> Option<PathPrefix> {
    let value = table.take("strip_prefix", Shape::Pattern("^/.*[^/]$"))?;
    if forms != PathForms::STRICT {
        // `/api//host` would become `//host`, which a backend may read as the name of a host.
        let error =
            ConfigError::new("a prefix cannot be removed from ambiguous paths", "expected `paths = \"strict\"`");
        table.reject("strip_prefix", error.related(&table.place("paths"), "the route forwards ambiguous paths"));
    }
    if headers.is_some_and(|rules| rules.only_by_gateway().any(|name| *name == X_FORWARDED_PREFIX)) {
        let error = ConfigError::new(
            "the gateway sets X-Forwarded-Prefix itself here",
            "expected it in `strip_prefix` or in `request_headers.set`",
        );
        table.reject("strip_prefix", error);
    }
    value.parse(|text| prefix(text, path))
}

fn prefix(text: &str, path: Option<&str>) -> Result<PathPrefix, ConfigError> {
    let expected = "expected the beginning of `path`, for example \"/orders\"";
    if let Some(bare) = text.strip_suffix('/') {
        return Err(ConfigError::new("the prefix ends with a slash", expected).help(match bare {
            "" => "remove `strip_prefix`; there is nothing to remove".to_owned(),
            bare => format!("write \"{bare}\"; the rest of the path keeps its slash"),
        }));
    }
    // So it is as valid as the path itself.
    let is_beginning =
        |path: &str| path.strip_prefix(text).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if path.is_some_and(|path| text.is_empty() || !is_beginning(path)) {
        return Err(ConfigError::new("the path of this route does not begin with the prefix", expected)
            .help("the gateway removes whole segments with which every path of the route begins"));
    }
    PathPrefix::new(text).ok_or_else(|| ConfigError::new("the prefix is not valid in a header", expected))
}

/// The path at which the backend sees the route.
pub(super) fn at_backend(route: &Route) -> &str {
    let prefix = route.strip_prefix.as_deref().map_or("", PathPrefix::as_str);
    match route.path.strip_prefix(prefix) {
        Some("") | None => "/",
        Some(rest) => rest,
    }
}
