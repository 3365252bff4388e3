//! `[sign_in]`. `sign_in_keys.rs` reads the keys of `[[provider]]` and `[[route]]`.

use std::sync::Arc;
use std::time::Duration;

use crate::auth::provider::Provider;
use crate::broker::sign_in::SignInProviderSettings;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::units::format_duration;
use crate::config::sections::{route_path, token};
use crate::gateway::endpoints::Endpoints;
use crate::gateway::oauth::metadata;
use crate::gateway::route::Route;
use crate::gateway::route_table::{KEYS_PATH, REFRESH_PATH, REVOKE_PREFIX};
use crate::gateway::sign_in::paths::SignInPaths;
use crate::gateway::sign_in::{ExternalUrl, SignInSettings};
use crate::tokens::family::Lifetimes;

const DEFAULT_PATH: &str = "/oauth2";
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

/// What signs browsers in.
pub(super) struct Browsers<'c> {
    routes: &'c [Route],
    /// A route has `sign_in`.
    by_route: bool,
    /// The origin of the authorization endpoint. `None` without `oauth.sign_in`.
    authorization: Option<String>,
}

impl<'c> Browsers<'c> {
    pub(super) fn new(routes: &'c [Route], oauth: &Endpoints, issuer: &str) -> Self {
        let by_route = routes.iter().any(|route| route.sign_in.is_some());
        let at_providers = oauth.authorization.as_ref().is_some_and(|settings| settings.sign_in.is_at_providers());
        let authorization = if at_providers { Some(metadata::base(issuer)) } else { None };
        Browsers { routes, by_route, authorization }
    }

    fn sign_in(&self) -> bool {
        self.by_route || self.authorization.is_some()
    }
}

/// `sign_in.path`, and the rest of `[sign_in]`: `None` if nothing signs browsers in, so that no path is taken away from
/// backends.
pub(super) fn read(
    table: &mut Table<'_>,
    providers: &[(Arc<Provider>, SignInProviderSettings)],
    browsers: &Browsers<'_>,
    lifetimes: &Lifetimes,
) -> (String, Option<SignInSettings>) {
    let path = table.take("path", Shape::Pattern("^/."));
    table.default("path", DEFAULT_PATH);
    let path = path.map_or(Some(Some(DEFAULT_PATH.to_owned())), |value| value.parse(route_path::path_or_off));
    let urls = table.take("external_urls", Shape::list(token::ORIGIN));
    table.default("external_urls", Vec::<String>::new());
    let example = "[\"https://app.example\"]";
    let urls = urls.and_then(|value| {
        if browsers.by_route {
            // Without a URL, no browser can sign in.
            value.some_of(example, external_url)
        } else {
            value.list_of(example, external_url)
        }
    });
    let mut urls = urls.unwrap_or_default();
    let absolute = lifetime(table, "absolute_lifetime", lifetimes.absolute, "tokens.refresh_absolute");
    let idle = lifetime(table, "idle_lifetime", lifetimes.idle, "tokens.refresh_idle");
    if idle < lifetimes.access && table.has("idle_lifetime") {
        let [idle, access] = [idle, lifetimes.access].map(format_duration);
        let message = format!("idle_lifetime ({idle}) is shorter than tokens.access_lifetime ({access})");
        let error = ConfigError::new(message, format!("expected at least {access}"));
        table.reject("idle_lifetime", error.help("the gateway notes the use of a session at half of that time"));
    }
    if let Some(origin) = &browsers.authorization
        && !urls.iter().any(|url| url.origin == *origin)
    {
        urls.push(ExternalUrl { origin: origin.clone() });
    }
    if urls.is_empty() && browsers.by_route && !table.has("external_urls") {
        let error =
            ConfigError::new("`external_urls` is missing", "expected `external_urls = [\"https://app.example\"]`");
        let error = error.help("write the origin that browsers know; the provider sends them back there");
        table.reject("external_urls", error.missing());
    }
    let path = path.flatten().unwrap_or_else(|| DEFAULT_PATH.to_owned());
    report_same_path(table, &path, browsers);
    if !browsers.sign_in() {
        return (path, None);
    }
    let names = providers.iter().map(|(provider, _)| provider.name.clone()).collect();
    let paths = SignInPaths { path: path.as_str().into(), providers: names };
    let settings = SignInSettings { paths, external_urls: urls, absolute, idle, providers: providers.to_vec() };
    (path, Some(settings))
}

fn lifetime(table: &mut Table<'_>, key: &'static str, longest: Duration, of_tokens: &str) -> Duration {
    let lifetime = table.duration(key, longest, MINUTE..=3650 * DAY);
    if lifetime > longest {
        let [lifetime, longest] = [lifetime, longest].map(format_duration);
        let message = format!("{key} ({lifetime}) is longer than {of_tokens} ({longest})");
        table.reject(key, ConfigError::new(message, format!("expected at most {longest}")));
    }
    lifetime.min(longest)
}

/// The cookies need a secure context: https, or this machine.
fn external_url(text: &str) -> Result<ExternalUrl, ConfigError> {
    let origin = token::origin(text)?;
    let authority = origin.strip_prefix("http://").map(|rest| rest.split(':').next().unwrap_or_default());
    match authority {
        Some(host) if !matches!(host, "localhost" | "127.0.0.1" | "[") => {
            let error = ConfigError::new("browsers keep no login of an http:// site", "expected https://");
            Err(error.help("the cookies of a sign-in need TLS; only http://localhost is exempt"))
        }
        _ => Ok(ExternalUrl { origin }),
    }
}

fn report_same_path(table: &Table<'_>, path: &str, browsers: &Browsers<'_>) {
    let paths = SignInPaths { path: path.into(), providers: Vec::new() };
    let is_below = |other: &str| paths.contain(other.as_bytes());
    let error = |what: String| ConfigError::new(what, "expected a different path");
    let signs_in = browsers.sign_in();
    if let Some(route) = browsers.routes.iter().find(|route| signs_in && is_below(&route.path)) {
        let error = error(format!("a route has the path {}", route.path));
        table.reject("path", error.help("change one of the two; everything below `path` belongs to the gateway"));
    } else if let Some(own) = [REFRESH_PATH, REVOKE_PREFIX, KEYS_PATH].into_iter().find(|own| is_below(own)) {
        table.reject("path", error(format!("{own} is a path of the gateway itself")));
    }
}
