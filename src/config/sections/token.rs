//! How a route takes its token, and what its upstream sees of it: `route.token_from`, `route.origins`, `route.token`.

use http::Uri;

use crate::auth::bearer::TokenLocations;
use crate::config::document::error::Fault;
use crate::config::document::suggest;
use crate::config::document::table::Table;
use crate::config::sections::{host, issuer};
use crate::gateway::route::TokenForwarding;

#[derive(PartialEq)]
enum Place {
    Header,
    Cookie(String),
    Query(String),
    Websocket,
}

pub(super) fn places(table: &mut Table<'_>, public: bool) -> TokenLocations {
    let example = "[\"header\", \"cookie:session\"]";
    let Some(value) = table.take("token_from") else { return TokenLocations::default() };
    if public {
        let fault = Fault::new("a public route asks for a token", "expected no `token_from`, as no token is looked at");
        value.wrong(fault.related(&table.place("public"), "public is said here"));
    }
    let Some(listed) = value.list_of(example, place) else { return TokenLocations::default() };
    if value.list(example).is_some_and(|list| list.is_empty()) {
        value.wrong(Fault::new("no request could have a token", format!("expected at least one place, as {example}")));
    }
    let mut places = TokenLocations { header: false, ..TokenLocations::default() };
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

fn place(text: &str) -> Result<Place, Fault> {
    let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let expected = "expected \"header\", \"cookie:NAME\", \"query:NAME\" or \"websocket\"";
    let fault = |message: String| Err(Fault::new(message, expected));
    match (kind, name) {
        ("header", None) => Ok(Place::Header),
        ("websocket", None) => Ok(Place::Websocket),
        ("cookie" | "query", None) => {
            Err(Fault::new(format!("which {kind} is not said"), expected)
                .help(format!("write \"{kind}:access_token\"")))
        }
        ("cookie", Some(name)) if is_cookie_name(name) => Ok(Place::Cookie(name.to_owned())),
        ("query", Some(name)) if is_parameter_name(name) => Ok(Place::Query(name.to_owned())),
        ("cookie", Some(name)) => fault(format!("\"{}\" is not the name of a cookie", name.escape_debug())),
        ("query", Some(name)) => fault(format!("\"{}\" is not the name of a parameter", name.escape_debug())),
        ("header" | "websocket", Some(_)) => {
            Err(Fault::new(format!("{kind} has no name"), expected).help(format!("write \"{kind}\"")))
        }
        _ => {
            let fault = Fault::new(format!("\"{}\" is no place of a token", text.escape_debug()), expected);
            Err(match suggest::nearest(kind, ["header", "cookie", "query", "websocket"]) {
                Some(near) => fault.help(format!("did you mean \"{}\"?", text.replacen(kind, near, 1))),
                None => fault,
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
enum Said {
    Pass,
    Drop,
    Replace,
}

/// `own_audience`: of the tokens that clients of the gateway have.
pub(super) fn token_forwarding(table: &mut Table<'_>, own_audience: &[String]) -> TokenForwarding {
    let said =
        table.choice("token", Said::Pass, &[("pass", Said::Pass), ("drop", Said::Drop), ("replace", Said::Replace)]);
    let Some(value) = table.take("token_audience") else {
        if said == Said::Replace {
            let fault = Fault::new("`token_audience` is missing", "expected for whom the upstream's tokens are");
            table.wrong("token", fault.help("add token_audience = [\"https://orders.internal\"]").of_absence());
        }
        return if said == Said::Drop { TokenForwarding::Drop } else { TokenForwarding::Pass };
    };
    let audience = issuer::audience(&value).unwrap_or_default();
    if said != Said::Replace {
        let fault = Fault::new("no token is made for this audience", "expected token = \"replace\" beside it");
        value.wrong(fault.related(&table.place("token"), "the upstream sees the client's token, or none"));
    }
    // Else the upstream, or whoever reads its log, could come back with the token as the client.
    if let Some(own) = audience.iter().find(|aud| own_audience.contains(aud)) {
        let fault = Fault::new(format!("{own} is an audience of this gateway"), "expected another audience");
        value.wrong(fault.help("the gateway would accept the upstream's token as the client's"));
    }
    TokenForwarding::Replace(audience)
}

/// `None` of them without a cookie to guard: whoever lists origins believes that they are checked.
pub(super) fn origins(table: &mut Table<'_>, places: &TokenLocations) -> Vec<String> {
    let Some(value) = table.take("origins") else { return Vec::new() };
    let origins = value.list_of("[\"https://app.example\"]", origin).unwrap_or_default();
    if !origins.is_empty() && !places.has_cookies() {
        value.wrong(
            Fault::new("origins are not looked at here", "expected a cookie in `token_from`")
                .help("only the token in a cookie comes along without the page knowing it"),
        );
    }
    origins
}

/// As browsers write it: lower case, without a default port, a path or a slash at its end.
fn origin(text: &str) -> Result<String, Fault> {
    let fault = || Fault::new("this is not an origin", "expected a scheme and a host, as \"https://app.example\"");
    if matches!(text, "*" | "null") {
        return Err(fault().help("any page would do, and the check would be none"));
    }
    let uri: Uri = text.parse().map_err(|_| fault())?;
    let (Some(scheme @ ("https" | "http")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(fault());
    };
    if uri.path_and_query().is_some_and(|rest| rest.as_str() != "/") || authority.as_str().contains('@') {
        return Err(fault().help("leave out everything but scheme, host and port"));
    }
    let parsed = host::parse(authority.host())?;
    let name = if parsed.contains(':') { format!("[{parsed}]") } else { parsed };
    let default = if scheme == "https" { 443 } else { 80 };
    match authority.port_u16().filter(|port| *port != default) {
        Some(port) => Ok(format!("{scheme}://{name}:{port}")),
        None => Ok(format!("{scheme}://{name}")),
    }
}
