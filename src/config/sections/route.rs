//! `[[route]]`: which requests go to which upstream, and what they need.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use crate::auth::bearer::TokenLocations;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::sections::cors::{self, Cors};
use crate::config::sections::header_rules::Reserved;
use crate::config::sections::placed::Placed;
use crate::config::sections::respond::Switch;
use crate::config::sections::route_resource::RouteKeys;
use crate::config::sections::token_exchange::TokenExchanges;
use crate::config::sections::{
    header_rules, host, path_forms, postgres, proof, rate, respond, route_clients, route_conflicts, route_path,
    route_resource, route_warnings, rules, sign_in_keys, strip_prefix, token, token_exchange,
};
use crate::config::settings::ForeignIssuer;
use crate::gateway::route::{Access, Capture, Route};
use crate::store::postgres::PostgresSettings;
use crate::telemetry::metrics::RouteRequests;
use crate::upstream::UpstreamSettings;

type Upstreams = [Placed<UpstreamSettings>];

/// What a route needs to know of other sections.
pub(super) struct Context<'c> {
    pub(super) upstreams: &'c Upstreams,
    /// The place of each upstream in `upstreams`, by its name.
    pub(super) upstream_numbers: &'c HashMap<&'c str, usize>,
    /// All accepted issuers, the gateway itself first.
    pub(super) issuers: &'c [String],
    /// The other issuers, as far as they have no errors.
    pub(super) foreign_issuers: &'c [ForeignIssuer],
    /// The audience of the gateway's tokens.
    pub(super) own_audience: &'c [String],
    pub(super) token_exchanges: &'c TokenExchanges,
    /// `[cors]`
    pub(super) cors: &'c Cors,
    /// The names of `[[provider]]`.
    pub(super) providers: &'c [Arc<str>],
    pub(super) store: Option<&'c PostgresSettings>,
    /// Names for `[route.request_headers]` and `[route.response_headers]`.
    pub(super) reserved: &'c Reserved,
    /// `[maintenance]`
    pub(super) maintenance: &'c Switch,
    pub(super) can_verify_clients: bool,
}

pub(super) fn routes(root: &mut Table<'_>, context: &Context<'_>) -> Vec<Route> {
    let Context { upstreams, issuers, .. } = context;
    let routes = root.tables("route", |table| route(table, context));
    if !routes.is_empty() {
        let routes: Vec<_> = routes.into_iter().flatten().collect();
        route_conflicts::report(root, &routes);
        path_forms::report_case(root, &routes);
        route_resource::report_defaults(root, &routes);
        route_resource::warn_of_public(root, &routes);
        route_warnings::report(root, &routes, upstreams);
        route_path::report_reserved(root, &routes, issuers);
        return routes.into_iter().map(|route| route.value).collect();
    }
    if upstreams.len() > 1 {
        let error =
            ConfigError::new("there are several upstreams but no route", "expected [[route]] with path and upstream");
        root.reject("route", error.help("add a [[route]] for each upstream").missing());
    }
    root.defaults_of("route", |table| {
        if upstreams.len() <= 1 {
            route(table, context);
            table.default("path", "/");
            table.default("name", "/");
        }
    });
    vec![Route { maintenance: context.maintenance.of_all(), cors: context.cors.policy(), ..Route::everything() }]
}

/// `None` if the path is missing or wrong. All other keys are checked anyway.
fn route(table: &mut Table<'_>, context: &Context<'_>) -> Option<Placed<Route>> {
    let Context {
        upstreams,
        upstream_numbers,
        issuers,
        foreign_issuers,
        own_audience,
        token_exchanges,
        cors: inherited,
        providers,
        store,
        reserved,
        maintenance,
        can_verify_clients,
    } = *context;
    let path =
        table.required("path", Shape::Pattern("^/"), "\"/orders/\"").and_then(|value| value.parse(route_path::path));
    let ignore_case = table.boolean("ignore_case", false);
    let forms = path_forms::forms(table);
    let host = table.take("host", Shape::Pattern("^[^*]+$")).and_then(|value| value.parse(host_of_route));
    let methods = table.take("methods", Shape::list(Shape::Pattern("^[^a-z ]+$")));
    table.default("methods", Vec::<String>::new());
    let methods = methods.and_then(|value| value.list_of("[\"GET\", \"HEAD\"]", method));
    let name = table.take("name", Shape::Pattern("^.{1,64}$")).and_then(|value| value.parse(name));
    let respond = respond::of_route(table);
    let upstream = match respond {
        None => upstream_index(table, upstreams, upstream_numbers),
        // `respond::of_route` has rejected it.
        Some(_) => table.take("upstream", Shape::Text).and(None),
    };
    let maintenance = maintenance.of_route(table);
    let mut access = access(table, issuers);
    let preflight = table.boolean("preflight", false);
    let sign_in = sign_in_keys::of_route(table, providers, access == Access::Public);
    let places = token::places(table, access == Access::Public);
    let places = TokenLocations { sign_in: sign_in.is_some(), ..places };
    let login = login(table);
    let cookie_login = login == Some(Capture::CookieLogin);
    let mut origins = token::origins(table, &places, cookie_login);
    let cors = cors::of_route(table, inherited, preflight);
    if places.has_cookies() || cookie_login {
        // The operator lets these pages send cookies, so their requests are not forged.
        origins.extend(cors.with_credentials().iter().cloned());
    }
    let keys = RouteKeys {
        path: path.as_deref(),
        host: host.as_deref(),
        access: &access,
        places: &places,
        issuer: issuers.first().map_or("", String::as_str),
    };
    let resource = route_resource::of_route(table, &keys);
    let token_forwarding = token::forwarding(table, own_audience, token_exchanges, &places);
    token_exchange::warn_of_opaque_tokens(table, &token_forwarding, &access, token_exchanges, foreign_issuers);
    let proof = proof::of_route(table, access == Access::Public, &places);
    let certificate = route_clients::of_route(table, can_verify_clients);
    let enforce = table.boolean("enforce", true);
    if !enforce && access == Access::Public {
        let error = ConfigError::new(
            "`enforce = false` has no effect on a public route",
            "expected `enforce` or `public`, not both",
        );
        table.reject("enforce", error.related(&table.place("public"), "the route is public"));
    }
    let rates = rate::rates(table);
    let on_stale = postgres::of_route(table, store);
    if !enforce && places.login_cookie {
        let error = ConfigError::new("`login_cookie` needs a valid token", "expected `enforce = true` on this route");
        table.reject("enforce", error.related(&table.place("token_from"), "the cookie is accepted here"));
    }
    if !enforce && sign_in.is_some() {
        let error = ConfigError::new("`sign_in` needs a session", "expected `enforce = true` on this route");
        table.reject("enforce", error.related(&table.place("sign_in"), "browsers sign in here"));
    }
    let capture = capture(table, &mut access, login, enforce, places.api_keys, issuers);
    let request_headers = header_rules::of_requests(table, reserved);
    let response_headers = header_rules::of_responses(table, reserved);
    let strip_prefix = strip_prefix::read(table, path.as_deref(), forms, request_headers.as_ref());
    let path = path?;
    table.default("name", path.as_str());
    let route = Route {
        name: name.unwrap_or_else(|| path.clone()).into(),
        host,
        methods: methods.unwrap_or_default(),
        path,
        ignore_case,
        forms,
        upstream: upstream.unwrap_or(0),
        strip_prefix: strip_prefix.map(Box::new),
        access,
        resource: resource.resource,
        is_default_resource: resource.is_default,
        certificate,
        preflight,
        cors: cors.policy(),
        places,
        origins,
        sign_in,
        proof,
        token_forwarding,
        enforce,
        rates,
        capture,
        on_stale,
        respond,
        maintenance,
        request_headers: request_headers.map(Arc::new),
        response_headers: response_headers.map(Arc::new),
        requests: RouteRequests::default(),
    };
    Some(Placed { value: route, place: table.place("path") })
}

fn upstream_index(table: &mut Table<'_>, upstreams: &Upstreams, numbers: &HashMap<&str, usize>) -> Option<usize> {
    let named = table.take("upstream", Shape::Text);
    if let [only] = upstreams {
        table.default("upstream", only.value.name.as_str());
    }
    let names = || upstreams.iter().map(|upstream| upstream.value.name.as_str());
    let Some(value) = named else {
        if upstreams.len() > 1 {
            let error =
                ConfigError::new("`upstream` is missing", format!("expected one of {}", suggest::list(names())));
            table.reject(
                "upstream",
                error.help("name the upstream of this route; it is optional only if there is one upstream").missing(),
            );
        }
        return None;
    };
    let text = value.string()?;
    let found = numbers.get(text).copied();
    if found.is_none() {
        let expected = format!("expected one of {}", suggest::list(names()));
        let error = ConfigError::new(format!("there is no upstream `{text}`"), expected);
        value.reject(match table.report().nearest(text, names()) {
            Some(near) => error.help(format!("did you mean `{near}`?")).missing(),
            None => error.help(format!("add [[upstream]] with name = \"{text}\"")).missing(),
        });
    }
    found
}

fn access(table: &mut Table<'_>, issuers: &[String]) -> Access {
    let rules = rules::rules(table, issuers);
    let public = table.boolean("public", false);
    if !public {
        return Access::Token(rules);
    }
    let rules_set = [
        ("issuers", !rules.issuers.is_empty()),
        ("scopes", !rules.scopes.is_empty()),
        ("any_scope", !rules.any_scope.is_empty()),
        ("claim", !rules.claims.is_empty()),
    ];
    for (key, _) in rules_set.into_iter().filter(|(_, is_set)| *is_set) {
        let error = ConfigError::new(
            format!("`{key}` has no effect on a public route"),
            format!("expected `{key}` or `public`, not both"),
        );
        let error = error.related(&table.place("public"), "the route is public");
        table.reject(
            key,
            error.help(format!("remove `{key}` to accept requests without a token, or `public` to check it")),
        );
    }
    Access::Public
}

/// `route.login`: false, true or "cookie".
fn login(table: &mut Table<'_>) -> Option<Capture> {
    let words = [("cookie", Capture::CookieLogin)];
    let value = table.take("login", Shape::Any(vec![Shape::Boolean, Shape::choice(&words)]));
    table.default("login", false);
    let value = value?;
    if value.is_string() && !value.is_switch() {
        return value.choice(&words);
    }
    value.boolean().unwrap_or(false).then_some(Capture::Login)
}

/// `issuers`: all accepted issuers, the gateway itself first. A logout needs a token of the gateway: only these have a
/// family.
fn capture(
    table: &mut Table<'_>,
    access: &mut Access,
    captured_login: Option<Capture>,
    enforce: bool,
    accepts_api_keys: bool,
    issuers: &[String],
) -> Option<Capture> {
    let login = captured_login.is_some();
    let logout = table.boolean("logout", false);
    let own = issuers.first().cloned().unwrap_or_default();
    match access {
        _ if login && logout => {
            let error = ConfigError::new("a route cannot be both login and logout", "expected `login` or `logout`");
            table.reject("logout", error.related(&table.place("login"), "the route is for logins"));
        }
        Access::Token(_) if login => {
            let error = ConfigError::new("a login has no token yet", "expected `public = true` on this route");
            table.reject("login", error);
        }
        Access::Public if logout => {
            let error = ConfigError::new("a logout needs a token", "expected `logout` or `public`, not both");
            table.reject("logout", error.related(&table.place("public"), "the route is public"));
        }
        Access::Token(_) if logout && !enforce => {
            let error = ConfigError::new("a logout needs a valid token", "expected `enforce = true` on this route");
            table.reject("enforce", error.related(&table.place("logout"), "the route is for logouts"));
        }
        Access::Token(rules) if logout && rules.issuers.iter().any(|issuer| *issuer != own) => {
            let error = ConfigError::new(
                "a logout ends only sessions of this gateway",
                format!("expected [\"{own}\"] or no `issuers`"),
            );
            table.reject("issuers", error.related(&table.place("logout"), "the route is for logouts"));
        }
        Access::Token(_) if logout && accepts_api_keys => {
            let error = ConfigError::new("a logout ends a session, and an API key has none", "expected no `api_keys`");
            table.reject("api_keys", error.related(&table.place("logout"), "the route is for logouts"));
        }
        Access::Token(rules) if logout => rules.issuers = vec![own],
        _ => {}
    }
    match (login, logout) {
        (true, _) => captured_login,
        (_, true) => Some(Capture::Logout),
        _ => None,
    }
}

fn host_of_route(text: &str) -> Result<String, ConfigError> {
    if text.contains('*') {
        return Err(ConfigError::new("the host has a wildcard", "expected one host name")
            .help("write a route for each host, or remove `host` to match all hosts"));
    }
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) && !text.ends_with(']');
    if has_port {
        return Err(ConfigError::new("the host has a port", "expected only the host name")
            .help("remove the port; requests to all ports match"));
    }
    host::parse(text)
}

fn method(text: &str) -> Result<Method, ConfigError> {
    let error =
        ConfigError::new(format!("\"{text}\" is not a valid method"), "expected HTTP methods, for example \"GET\"");
    let upper = text.to_ascii_uppercase();
    if text != upper {
        return Err(error.help(format!("write it in upper case: \"{upper}\"")));
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT) => Err(error.help("the gateway opens no tunnels; for WebSockets, write \"GET\"")),
        Ok(method) => Ok(method),
        Err(_) => Err(error),
    }
}

fn name(text: &str) -> Result<String, ConfigError> {
    if !text.is_empty() && text.len() <= 64 && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(ConfigError::new("this name is not valid in logs and metrics", "expected 1 to 64 characters"))
    }
}
