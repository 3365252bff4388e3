//! `[https]`: redirects of cleartext requests, and HSTS.

use std::time::Duration;

use http::{HeaderValue, StatusCode, Uri};

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::host;
use crate::config::sections::placed::Placed;
use crate::gateway::https::{Https, Redirect};
use crate::gateway::route::Route;
use crate::protocols::http::forwarded::Forwarding;
use crate::protocols::tls::ServerTlsSettings;
use crate::server::ListenerSettings;

const YEAR: Duration = Duration::from_hours(365 * 24);
const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// `issuer`: `tokens.issuer`. It and the routes name hosts of the gateway.
pub(super) fn read(
    table: &mut Table<'_>,
    listeners: &[Placed<ListenerSettings>],
    forwarding: &Forwarding,
    routes: &[Route],
    issuer: &str,
) -> Https {
    let redirects = table.boolean("redirect", false);
    let port = table.integer("redirect_port", 443, 1..=65535);
    let statuses = [("301", 301), ("302", 302), ("307", 307), ("308", 308)];
    let status = table.choice("redirect_status", 308, &statuses);
    let hosts = table.take("hosts", Shape::list(Shape::Pattern("^[^*/]+$")));
    table.default("hosts", Vec::<String>::new());
    let hosts = hosts.and_then(|value| value.list_of("[\"www.example\"]", host::parse));
    let has_tls = listeners.iter().any(|listener| listener.value.tls != ServerTlsSettings::Off);
    if redirects && !has_tls && forwarding.trusted.is_empty() {
        let error = ConfigError::new(
            "no request would be served: no listener has TLS, and no proxy is trusted to say that it has",
            "expected a [[listener]] with TLS, or proxies in forwarding.trusted",
        );
        table.reject("redirect", error.help("a proxy that terminates TLS has to send X-Forwarded-Proto"));
    }
    let hosts = hosts.unwrap_or_default();
    let mut names = hosts.clone();
    let of_issuer = issuer.parse::<Uri>().ok().and_then(|uri| host::parse(uri.host()?).ok());
    names.extend(routes.iter().filter_map(|route| route.host.clone()).chain(of_issuer));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
    let redirect = Redirect { status, port: u16::try_from(port).unwrap_or(443), hosts: names };
    Https { redirect: redirects.then_some(redirect), hosts, hsts: hsts(table) }
}

/// RFC 6797 section 6.1.
fn hsts(table: &mut Table<'_>) -> Option<HeaderValue> {
    let max_age = table.take("hsts_max_age", Shape::Duration(Duration::ZERO..=LONGEST));
    let max_age = max_age.and_then(|value| value.duration(Duration::ZERO..=LONGEST));
    let with_subdomains = table.boolean("hsts_include_subdomains", false);
    let preload = table.boolean("hsts_preload", false);
    for (key, is_set) in [("hsts_include_subdomains", with_subdomains), ("hsts_preload", preload)] {
        if is_set && !table.has("hsts_max_age") {
            let error = ConfigError::new(format!("`{key}` has no effect here"), "expected `hsts_max_age` with it");
            table.reject(key, error);
        }
    }
    let max_age = max_age?;
    if preload && !(with_subdomains && max_age >= YEAR) {
        let error = ConfigError::new(
            "browsers do not accept this policy in their lists",
            "expected `hsts_include_subdomains = true` and `hsts_max_age` of at least 365d",
        );
        table.reject("hsts_preload", error);
    }
    let subdomains = if with_subdomains { "; includeSubDomains" } else { "" };
    let preload = if preload { "; preload" } else { "" };
    HeaderValue::from_str(&format!("max-age={}{subdomains}{preload}", max_age.as_secs())).ok()
}
