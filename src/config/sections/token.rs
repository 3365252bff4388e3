//! How a route takes its token, and what its upstream sees of it: `route.token_from`, `route.origins`, `route.token`.

use http::Uri;

use crate::auth::bearer::Places;
use crate::config::document::error::ConfigError;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::sections::{host, issuer};
use crate::gateway::route::Onward;

#[derive(PartialEq)]
enum Place {
    Header,
    Cookie(String),
    Query(String),
    Websocket,
}

pub(super) fn places(table: &mut Table<'_>, public: bool) -> Places {
    let example = "[\"header\", \"cookie:session\"]";
    let Some(value) = table.take("token_from") else { return Places::default() };
    if public {
        let error =
            ConfigError::new("a public route asks for a token", "expected no `token_from`, as no token is looked at");
        value.reject(error.related(&table.place("public"), "public is mode here"));
    }
    let Some(listed) = value.list_of(example, place) else { return Places::default() };
    if value.list(example).is_some_and(|list| list.is_empty()) {
        value.reject(ConfigError::new(
            "no request could have a token",
            format!("expected at least one place, as {example}"),
        ));
    }
    let mut places = Places { header: false, ..Places::default() };
    for place in listed {
        match place {
            Place::Header => places.header = true,
            Place::Cookie(name) => places.cookies.push(name),
            Place::Query(name) => places.queries.push(name),
            Place::Websocket => places.websocket = true,
        }
    }
    places
}

fn place(text: &str) -> Result<Place, ConfigError> {
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let expected = "expected \"header\", \"cookie:NAME\", \"query:NAME\" or \"websocket\"";
    let error = |message: String| Err(ConfigError::new(message, expected));
    match (kind, name) {
        ("header", None) => Ok(Place::Header),
        ("websocket", None) => Ok(Place::Websocket),
        ("cookie" | "query", None) => Err(ConfigError::new(format!("which {kind} is not mode"), expected)
            .help(format!("write \"{kind}:access_token\""))),
        ("cookie", Some(name)) if is_cookie_name(name) => Ok(Place::Cookie(name.to_owned())),
        ("query", Some(name)) if is_parameter_name(name) => Ok(Place::Query(name.to_owned())),
        ("cookie", Some(name)) => error(format!("\"{}\" is not the name of a cookie", name.escape_debug())),
        ("query", Some(name)) => error(format!("\"{}\" is not the name of a parameter", name.escape_debug())),
        ("header" | "websocket", Some(_)) => {
            Err(ConfigError::new(format!("{kind} has no name"), expected).help(format!("write \"{kind}\"")))
        }
        _ => {
            let error = ConfigError::new(format!("\"{}\" is no place of a token", text.escape_debug()), expected);
            Err(match suggest::nearest(kind, ["header", "cookie", "query", "websocket"]) {
                Some(near) => error.help(format!("did you mean \"{}\"?", text.replacen(kind, near, 1))),
                None => error,
            })
        }
    }
}

/// `token` of RFC 9110 section 5.6.2.
fn is_cookie_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// What needs no escape in a query.
fn is_parameter_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Pass,
    Drop,
    Replace,
}

/// `own_audience`: of the tokens that clients of the gateway have.
pub(super) fn forwarding(table: &mut Table<'_>, own_audience: &[String]) -> Onward {
    let mode =
        table.choice("token", Mode::Pass, &[("pass", Mode::Pass), ("drop", Mode::Drop), ("replace", Mode::Replace)]);
    let Some(value) = table.take("token_audience") else {
        if mode == Mode::Replace {
            let error = ConfigError::new("`token_audience` is missing", "expected for whom the upstream's tokens are");
            table.reject("token", error.help("add token_audience = [\"https://orders.internal\"]").missing());
        }
        return if mode == Mode::Drop { Onward::Drop } else { Onward::Pass };
    };
    let audience = issuer::audience(&value).unwrap_or_default();
    if mode != Mode::Replace {
        let error = ConfigError::new("no token is made for this audience", "expected token = \"replace\" beside it");
        value.reject(error.related(&table.place("token"), "the upstream sees the client's token, or none"));
    }
    // Else the upstream, or whoever reads its log, could come back with the token as the client.
    if let Some(own) = audience.iter().find(|aud| own_audience.contains(aud)) {
        let error = ConfigError::new(format!("{own} is an audience of this gateway"), "expected another audience");
        value.reject(error.help("the gateway would accept the upstream's token as the client's"));
    }
    Onward::Replace(audience)
}

/// `None` of them without a cookie to guard: whoever lists origins believes that they are checked.
pub(super) fn origins(table: &mut Table<'_>, places: &Places) -> Vec<String> {
    let Some(value) = table.take("origins") else { return Vec::new() };
    let origins = value.list_of("[\"https://app.example\"]", origin).unwrap_or_default();
    if !origins.is_empty() && !places.has_cookies() {
        value.reject(
            ConfigError::new("origins are not looked at here", "expected a cookie in `token_from`")
                .help("only the token in a cookie comes along without the page knowing it"),
        );
    }
    origins
}

/// As browsers write it: lower case, without a default port, a path or a slash at its end.
fn origin(text: &str) -> Result<String, ConfigError> {
    let error =
        || ConfigError::new("this is not an origin", "expected a scheme and a host, as \"https://app.example\"");
    if matches!(text, "*" | "null") {
        return Err(error().help("any page would do, and the check would be none"));
    }
    let uri: Uri = text.parse().map_err(|_| error())?;
    let (Some(scheme @ ("https" | "http")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(error());
    };
    if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") || authority.as_str().contains('@') {
        return Err(error().help("leave out everything but scheme, host and port"));
    }
    let parsed = host::parse(authority.host())?;
    let name = if parsed.contains(':') { format!("[{parsed}]") } else { parsed };
    let default = if scheme == "https" { 443 } else { 80 };
    match authority.port_u16().filter(|port| *port != default) {
        Some(port) => Ok(format!("{scheme}://{name}:{port}")),
        None => Ok(format!("{scheme}://{name}")),
    }
}
