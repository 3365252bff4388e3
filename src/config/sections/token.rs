//! The places of tokens on a route, and the token that its upstream receives: `route.token_from`, `route.origins`,
//! `route.token`.

use http::Uri;

use crate::auth::bearer::TokenLocations;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::sections::token_exchange::TokenExchanges;
use crate::config::sections::{host, issuer};
use crate::gateway::route::TokenForwarding;

/// The form of an origin in `route.origins`.
pub(super) const ORIGIN: Shape = Shape::Pattern("^[Hh][Tt][Tt][Pp][Ss]?://[^/@]+/?$");

#[derive(Clone, PartialEq, Eq, Hash)]
enum Place {
    Header,
    Cookie(String),
    Query(String),
    Websocket,
    LoginCookie,
}

pub(super) fn places(table: &mut Table<'_>, public: bool) -> TokenLocations {
    let example = "[\"header\", \"cookie:session\"]";
    let place_shape = Shape::Pattern("^(header|websocket|login_cookie|(cookie|query):.+)$");
    let value = table.take("token_from", Shape::some(place_shape));
    table.default("token_from", ["header"].as_slice());
    let api_keys = api_keys(table, public);
    let locations = TokenLocations { api_keys, ..TokenLocations::default() };
    let Some(value) = value else { return locations };
    if public {
        let error = ConfigError::new(
            "`token_from` has no effect on a public route",
            "expected `token_from` or `public`, not both",
        );
        value.reject(error.related(&table.place("public"), "the route is public"));
    }
    let Some(listed) = value.list_of(example, place) else { return locations };
    if value.list(example).is_some_and(|list| list.is_empty()) {
        value.reject(ConfigError::new(
            "the list is empty",
            format!("expected at least one place, for example {example}"),
        ));
    }
    let mut places = TokenLocations { header: false, ..locations };
    for place in listed {
        match place {
            Place::Header => places.header = true,
            Place::Cookie(name) => places.cookies.push(name),
            Place::Query(name) => places.queries.push(name),
            Place::Websocket => places.websocket = true,
            Place::LoginCookie => places.accept_login_cookie(),
        }
    }
    places
}

/// `route.api_keys`
fn api_keys(table: &mut Table<'_>, public: bool) -> bool {
    let api_keys = table.boolean("api_keys", false);
    if api_keys && public {
        let error =
            ConfigError::new("`api_keys` has no effect on a public route", "expected `api_keys` or `public`, not both");
        table.reject("api_keys", error.related(&table.place("public"), "the route is public"));
    }
    api_keys
}

fn place(text: &str) -> Result<Place, ConfigError> {
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let expected = "expected \"header\", \"cookie:NAME\", \"login_cookie\", \"query:NAME\" or \"websocket\"";
    let error = |message: String| Err(ConfigError::new(message, expected));
    match (kind, name) {
        ("header", None) => Ok(Place::Header),
        ("websocket", None) => Ok(Place::Websocket),
        ("login_cookie", None) => Ok(Place::LoginCookie),
        ("cookie" | "query", None) => Err(ConfigError::new(format!("the name of the {kind} is missing"), expected)
            .help(format!("write for example \"{kind}:access_token\""))),
        ("cookie", Some(name)) if is_cookie_name(name) => Ok(Place::Cookie(name.to_owned())),
        ("query", Some(name)) if is_parameter_name(name) => Ok(Place::Query(name.to_owned())),
        ("cookie", Some(name)) => error(format!("\"{}\" is not a cookie name", name.escape_debug())),
        ("query", Some(name)) => error(format!("\"{}\" is not a valid query parameter", name.escape_debug())),
        ("header" | "websocket" | "login_cookie", Some(_)) => {
            Err(ConfigError::new(format!("\"{kind}\" takes no name"), expected).help(format!("write \"{kind}\"")))
        }
        _ => {
            let error = ConfigError::new(format!("a token cannot be in \"{}\"", text.escape_debug()), expected);
            Err(match suggest::nearest(kind, ["header", "cookie", "login_cookie", "query", "websocket"]) {
                Some(near) => error.help(format!("did you mean \"{}\"?", text.replacen(kind, near, 1))),
                None => error,
            })
        }
    }
}

/// `token` in RFC 9110 section 5.6.2.
fn is_cookie_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Returns true if the name needs no escape in a query.
fn is_parameter_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

const MODES: &[(&str, Mode)] =
    &[("pass", Mode::Pass), ("drop", Mode::Drop), ("replace", Mode::Replace), ("exchange", Mode::Exchange)];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Pass,
    Drop,
    Replace,
    Exchange,
}

/// `own_audience`: the audience of the gateway's tokens.
pub(super) fn forwarding(
    table: &mut Table<'_>,
    own_audience: &[String],
    exchanges: &TokenExchanges,
    places: &TokenLocations,
) -> TokenForwarding {
    let mode = table.choice("token", Mode::Pass, MODES);
    let exchange = exchange(table, mode, exchanges, places);
    let Some(value) = table.take("token_audience", issuer::texts()) else {
        if mode == Mode::Replace {
            let error = ConfigError::new("`token_audience` is missing", "expected `token_audience` on this route");
            table.reject(
                "token",
                error
                    .help("add the `aud` of the upstream, for example token_audience = [\"https://orders.internal\"]")
                    .missing(),
            );
        }
        return match mode {
            // With an error, nothing is forwarded that the operator did not want.
            Mode::Exchange => exchange.map_or(TokenForwarding::Drop, TokenForwarding::Exchange),
            Mode::Drop => TokenForwarding::Drop,
            Mode::Pass | Mode::Replace => TokenForwarding::Pass,
        };
    };
    let audience = issuer::audience(&value).unwrap_or_default();
    if mode != Mode::Replace {
        let error = ConfigError::new(
            "`token_audience` needs `token = \"replace\"`",
            "expected token = \"replace\" on this route",
        );
        value.reject(error.related(&table.place("token"), "the upstream receives the token of the client, or none"));
    }
    // Otherwise the upstream, or a reader of its logs, could use the token to call the gateway as the client.
    if let Some(own) = audience.iter().find(|aud| own_audience.contains(aud)) {
        let error = ConfigError::new(format!("{own} is an audience of this gateway"), "expected a different audience");
        value.reject(error.help(
            "choose an audience of the upstream; with this one, the upstream could call the gateway as the client",
        ));
    }
    TokenForwarding::Replace(audience)
}

/// `route.token_exchange`: the place of the exchange in the configuration.
fn exchange(table: &mut Table<'_>, mode: Mode, exchanges: &TokenExchanges, places: &TokenLocations) -> Option<usize> {
    let Some(value) = table.take("token_exchange", Shape::Text) else {
        if mode == Mode::Exchange {
            let error = ConfigError::new("`token_exchange` is missing", "expected `token_exchange` on this route");
            table.reject("token", error.help("add the name of a [[token_exchange]]").missing());
        }
        return None;
    };
    if mode != Mode::Exchange {
        let error = ConfigError::new(
            "`token_exchange` needs `token = \"exchange\"`",
            "expected token = \"exchange\" on this route",
        );
        value.reject(error.related(&table.place("token"), "the upstream receives another token, or none"));
    }
    let name = value.parse(|text| {
        if exchanges.names.iter().any(|name| name == text) {
            Ok(text)
        } else {
            Err(ConfigError::new(format!("there is no token exchange \"{text}\""), "expected the name of one")
                .help("add a [[token_exchange]] with this name")
                .missing())
        }
    })?;
    let number = exchanges.settings.iter().position(|settings| settings.name == name)?;
    let settings = &exchanges.settings[number];
    let unsigned = [(places.api_keys, "an API key"), (places.sign_in, "the cookie of a sign-in")];
    if let Some((_, what)) = unsigned.iter().find(|(is_accepted, _)| *is_accepted)
        && settings.subject_audience.is_empty()
    {
        let expected = "expected `subject_audience` in the exchange";
        let error = ConfigError::new(format!("{what} cannot be exchanged"), expected);
        value.reject(error.help("with `subject_audience`, the other server gets a token of the gateway"));
    }
    Some(number)
}

/// Origins without a cookie are an error: the operator would expect them to be checked.
pub(super) fn origins(table: &mut Table<'_>, places: &TokenLocations, cookie_login: bool) -> Vec<String> {
    let value = table.take("origins", Shape::list(ORIGIN));
    table.default("origins", Vec::<String>::new());
    let Some(value) = value else { return Vec::new() };
    let origins = value.list_of("[\"https://app.example\"]", origin).unwrap_or_default();
    if !origins.is_empty() && !places.has_cookies() && !cookie_login {
        value.reject(
            ConfigError::new("`origins` has no effect without a cookie", "expected a cookie in `token_from`")
                .help("remove `origins`, or add \"cookie:NAME\" to `token_from`"),
        );
    }
    origins
}

/// The origin as browsers write it: in lower case, without default port, path and trailing slash.
pub(super) fn origin(text: &str) -> Result<String, ConfigError> {
    let error = || {
        ConfigError::new("this is not an origin", "expected a scheme and a host, for example \"https://app.example\"")
    };
    if matches!(text, "*" | "null") {
        return Err(error().help("list each origin; otherwise any website could use the cookie"));
    }
    let uri: Uri = text.parse().map_err(|_| error())?;
    let (Some(scheme @ ("https" | "http")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(error());
    };
    if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") || authority.as_str().contains('@') {
        return Err(error().help("remove everything except scheme, host and port"));
    }
    let parsed = host::parse(authority.host())?;
    let name = if parsed.contains(':') { format!("[{parsed}]") } else { parsed };
    let default = if scheme == "https" { 443 } else { 80 };
    match authority.port_u16().filter(|port| *port != default) {
        Some(port) => Ok(format!("{scheme}://{name}:{port}")),
        None => Ok(format!("{scheme}://{name}")),
    }
}
