//! `route.path`: the paths that a route can have.

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::placed::Placed;
use crate::gateway::route::Route;
use crate::gateway::route_table::{KEYS_PATH, REFRESH_PATH, REVOKE_PREFIX, metadata_path};

const EXPECTED_PATH: &str = "expected a path, for example \"/orders/\"";

/// Paths of the gateway itself, on all hosts.
const RESERVED_PATHS: [&str; 3] = [REFRESH_PATH, REVOKE_PREFIX, KEYS_PATH];

/// Paths are matched and forwarded byte for byte, so the path of a route must be possible in a canonical request.
pub(super) fn path(text: &str) -> Result<String, ConfigError> {
    let reject = |message: &str, help: &str| Err(ConfigError::new(message, EXPECTED_PATH).help(help));
    if !text.starts_with('/') {
        return reject("the path does not start with `/`", &format!("write \"/{}\"", text.trim_start_matches("./")));
    }
    if text.contains("//") {
        return reject("the path has an empty segment", "replace `//` by `/`");
    }
    if text.split('/').any(|segment| matches!(segment, "." | "..")) {
        return reject("the path has a dot segment", "remove `.` and `..`; requests with them are rejected");
    }
    if text.contains('%') {
        return reject("the path is percent-encoded", "write the characters themselves");
    }
    if text.contains('*') {
        return reject("the path has a wildcard", "remove the `*`; a route matches everything below its path");
    }
    let stray = text.chars().find(|character| !is_path_character(*character));
    if let Some(character) = stray {
        let message = format!("the path contains `{}`", character.escape_debug());
        return reject(&message, "use only letters, digits and -._~!$&'()+,=:@/");
    }
    let bare = |path: &'static str| path.trim_end_matches('/');
    let own = RESERVED_PATHS.into_iter().map(bare).find(|own| text.trim_end_matches('/') == *own);
    let below_token = text.starts_with(REVOKE_PREFIX).then_some(bare(REVOKE_PREFIX));
    if let Some(own) = own.or(below_token) {
        return Err(reserved_path(own));
    }
    Ok(text.to_owned())
}

fn reserved_path(path: &str) -> ConfigError {
    ConfigError::new(format!("{path} is a path of the gateway itself"), EXPECTED_PATH)
        .help("choose another path; requests for this path never reach an upstream")
}

/// Returns true for `pchar` of RFC 3986 and the slash, except `%`, `;` and `*`.
fn is_path_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~!$&'()+,=:@/".contains(character)
}

/// The path of the authorization server metadata contains the path of `tokens.issuer`, so it is checked here.
pub(super) fn report_reserved(root: &Table<'_>, routes: &[Placed<Route>], issuers: &[String]) {
    let Some(metadata) = issuers.first().map(|own| metadata_path(own)) else { return };
    for route in routes.iter().filter(|route| route.value.path.trim_end_matches('/') == metadata) {
        root.report().add(reserved_path(&metadata).at(&route.place));
    }
}

/// The empty string turns an endpoint off.
pub(super) fn path_or_off(text: &str) -> Result<Option<String>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    let path = path(text)?;
    if path.ends_with('/') || path.starts_with("/.well-known/") {
        Err(ConfigError::new("this path is not possible for an endpoint", "expected a path such as \"/oauth/token\""))
    } else {
        Ok(Some(path))
    }
}
