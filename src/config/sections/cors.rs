//! `[cors]` and `[route.cors]`: which pages of other origins may use the gateway.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::{identity, token};
use crate::gateway::cors::{Origins, Policy};

const MAX_AGE: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The keys of one table.
#[derive(Clone)]
pub(super) struct Cors {
    /// As browsers write them, or `*` alone.
    origins: Vec<String>,
    credentials: bool,
    mcp: bool,
    headers: Vec<HeaderName>,
    expose: Vec<HeaderName>,
    max_age: Duration,
}

impl Default for Cors {
    fn default() -> Self {
        Cors {
            origins: Vec::new(),
            credentials: false,
            mcp: false,
            headers: Vec::new(),
            expose: Vec::new(),
            max_age: MAX_AGE,
        }
    }
}

impl Cors {
    /// `None` without origins: the gateway does no CORS.
    pub(super) fn policy(&self) -> Option<Arc<Policy>> {
        if self.origins.is_empty() { None } else { Some(Arc::new(self.of_origins())) }
    }

    /// As [`Cors::policy`], for the gateway's own calls: single-page applications call them, too.
    pub(super) fn own_policy(&self, applications: impl Iterator<Item = String>) -> Option<Arc<Policy>> {
        let applications: Vec<_> = applications.filter_map(|origin| HeaderValue::try_from(origin).ok()).collect();
        if applications.is_empty() {
            return self.policy();
        }
        Some(Arc::new(self.of_origins().with_applications(applications)))
    }

    fn of_origins(&self) -> Policy {
        let origins = match self.origins.first().map(String::as_str) {
            Some("*") => Origins::Any,
            _ => Origins::Listed(self.origins.iter().filter_map(|text| HeaderValue::from_str(text).ok()).collect()),
        };
        let policy = Policy::new(origins, self.credentials, &self.headers, &self.expose, self.max_age);
        if self.mcp { policy.with_mcp(&self.headers, &self.expose) } else { policy }
    }

    /// The origins with pages that may send cookies.
    pub(super) fn with_credentials(&self) -> &[String] {
        if self.credentials { &self.origins } else { &[] }
    }
}

/// `inherited`: the values of keys that the table omits.
pub(super) fn read(table: &mut Table<'_>, inherited: &Cors) -> Cors {
    let origins = table
        .take("origins", Shape::list(Shape::Pattern(r"^(\*|[Hh][Tt][Tt][Pp][Ss]?://[^/@]+/?)$")))
        .and_then(|value| value.list_of("[\"https://app.example\"]", origin));
    let headers = table
        .take("headers", Shape::list(identity::HEADER))
        .and_then(|value| value.list_of("[\"X-Requested-With\"]", field));
    let expose =
        table.take("expose", Shape::list(identity::HEADER)).and_then(|value| value.list_of("[\"Location\"]", field));
    table.default("origins", inherited.origins.as_slice());
    table.default("headers", names(&inherited.headers));
    table.default("expose", names(&inherited.expose));
    let cors = Cors {
        origins: origins.unwrap_or_else(|| inherited.origins.clone()),
        credentials: table.boolean("credentials", inherited.credentials),
        mcp: table.boolean("mcp", inherited.mcp),
        headers: headers.unwrap_or_else(|| inherited.headers.clone()),
        expose: expose.unwrap_or_else(|| inherited.expose.clone()),
        max_age: table.duration("max_age", inherited.max_age, Duration::ZERO..=LONGEST),
    };
    let is_any = cors.origins.iter().any(|origin| origin == "*");
    if is_any && cors.origins.len() > 1 {
        let error = ConfigError::new("\"*\" beside other origins", "expected [\"*\"], or a list without it");
        table.reject("origins", error);
    } else if is_any && cors.credentials {
        let error = ConfigError::new("credentials for every origin", "expected each origin, or `credentials = false`");
        let error = error.help("with both, every website could act as the user and read the result");
        table.reject(if table.has("credentials") { "credentials" } else { "origins" }, error);
    } else if let Some(origin) = cors.origins.iter().find(|origin| cors.credentials && is_forgeable(origin)) {
        let error = ConfigError::new(format!("credentials for {origin}, a page over http"), "expected https://");
        let error = error.help("anyone on the network path can write this page, and would act as the user");
        table.reject(if table.has("origins") { "origins" } else { "credentials" }, error);
    }
    cors
}

fn names(headers: &[HeaderName]) -> Vec<&str> {
    headers.iter().map(HeaderName::as_str).collect()
}

/// Returns true if the page comes over a network without TLS. `localhost` is for development.
fn is_forgeable(origin: &str) -> bool {
    let Some(host) = origin.strip_prefix("http://") else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    !(name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || name == "[::1]")
}

/// `[route.cors]`. `preflight`: the backend does CORS itself.
pub(super) fn of_route(table: &mut Table<'_>, inherited: &Cors, preflight: bool) -> Cors {
    if preflight && table.has("cors") {
        let error = ConfigError::new(
            "`preflight = true` leaves CORS to the backend",
            "expected `preflight` or [route.cors], not both",
        );
        table.reject("preflight", error.related(&table.place("cors"), "the gateway would do it too"));
    }
    table.table("cors", |table| read(table, inherited))
}

fn origin(text: &str) -> Result<String, ConfigError> {
    match text {
        "*" => Ok(text.to_owned()),
        "null" => Err(ConfigError::new("\"null\" is not an origin", "expected for example \"https://app.example\"")
            .help("every website can get the origin `null`; serve the page from a host of its own")),
        _ => token::origin(text),
    }
}

fn field(text: &str) -> Result<HeaderName, ConfigError> {
    let expected = "expected a field name, for example \"X-Requested-With\"";
    if text == "*" {
        let error = ConfigError::new("\"*\" is not a field name", expected);
        return Err(error.help("list each field; browsers take \"*\" literally in requests with credentials"));
    }
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| ConfigError::new(format!("\"{}\" is not a field name", text.escape_debug()), expected))
}

#[cfg(test)]
mod tests {
    use super::is_forgeable;

    #[test]
    fn a_page_over_http_is_forgeable_unless_it_is_local() {
        for origin in
            ["http://localhost:5173", "http://a.localhost", "http://127.0.0.1:80", "http://[::1]", "http://[::1]:1"]
        {
            assert!(!is_forgeable(origin), "{origin}");
        }
        for origin in
            ["http://app.example", "http://app.example:8080", "http://[2001:db8::1]", "http://localhost.example"]
        {
            assert!(is_forgeable(origin), "{origin}");
        }
        assert!(!is_forgeable("https://app.example"));
    }
}
