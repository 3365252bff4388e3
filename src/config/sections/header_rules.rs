//! `[route.request_headers]` and `[route.response_headers]`: what a route changes in the headers of its messages.

use http::{HeaderName, HeaderValue, header};

use crate::auth::identity::Identity;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::value::Value;
use crate::config::sections::identity::HEADER;
use crate::protocols::http::forwarded::Forwarding;
use crate::protocols::http::header_rules::HeaderRules;
use crate::protocols::http::headers;
use crate::protocols::http::name_pattern::NamePattern;
use crate::protocols::http::trace_context::{TRACEPARENT, TRACESTATE};
use crate::tokens::login::LoginHeaders;

const FIELD: Shape = Shape::Pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]+:[ -~]*[!-~][ -~]*$");
const EXPECTED_FIELD: &str = "expected a name and a value, for example \"X-Tenant: acme\"";
const EXPECTED_NAME: &str = "expected the name of a header, or a beginning with `-*`, for example \"X-Debug-*\"";

/// Fields of the handshake of a WebSocket, which both sides check.
static WEBSOCKET: [HeaderName; 5] = [
    header::SEC_WEBSOCKET_ACCEPT,
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::SEC_WEBSOCKET_VERSION,
];

/// Fields without which a client reads another body, or a gRPC call another outcome.
static FRAMING: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("grpc-status"),
];

/// The names that a route cannot set, or not change at all.
pub(super) struct Reserved {
    /// Names by which a backend knows a client, and those that the gateway reads from a backend.
    own: Vec<NamePattern>,
    /// The gateway sets them in requests, after those of the route.
    in_requests: Vec<NamePattern>,
}

impl Reserved {
    pub(super) fn new(identity: &Identity, login: &LoginHeaders, forwarding: &Forwarding) -> Self {
        let exact = |name: &HeaderName| NamePattern::exact(name.as_str());
        let own = identity.names().chain(login.names()).map(exact);
        let real_ip = forwarding.sets_real_ip.then_some(&headers::X_REAL_IP);
        let set = [TRACEPARENT, TRACESTATE];
        let set = set.iter().chain(&headers::METHOD_OVERRIDES).chain(real_ip).map(exact);
        let in_requests = set.chain(headers::own_fields().map(NamePattern::exact)).collect();
        Reserved { own: own.collect(), in_requests }
    }
}

/// `[route.request_headers]`
pub(super) fn of_requests(table: &mut Table<'_>, reserved: &Reserved) -> Option<HeaderRules> {
    let by_gateway = || reserved.own.iter().chain(&reserved.in_requests);
    let essential = || headers::essential_fields().chain(WEBSOCKET.iter().map(HeaderName::as_str));
    let may_set = |name: &HeaderName| {
        let text = name.as_str().as_bytes();
        if by_gateway().any(|own| own.matches(text)) {
            return Err("the gateway sets this header itself, or no backend gets it");
        }
        if *name == header::AUTHORIZATION {
            return Err("`token` decides what the backend gets in Authorization");
        }
        if essential().any(|name| NamePattern::exact(name).matches(text)) {
            Err("with another value, the request would have another meaning")
        } else {
            Ok(())
        }
    };
    let may_remove = |pattern: &NamePattern| {
        if essential().any(|name| pattern.matches(name.as_bytes())) {
            return Err("requests need this header");
        }
        if by_gateway().any(|own| own == pattern) && !headers::METHOD_OVERRIDES.iter().any(|name| is(pattern, name)) {
            return Err("the gateway removes what the client sends, and sets this header itself");
        }
        Ok(())
    };
    table.table("request_headers", |table| read(table, may_set, may_remove))
}

/// `[route.response_headers]`
pub(super) fn of_responses(table: &mut Table<'_>, reserved: &Reserved) -> Option<HeaderRules> {
    let essential = || headers::hop_by_hop().chain(&FRAMING).chain(&WEBSOCKET);
    let may_set = |name: &HeaderName| {
        let text = name.as_str();
        if reserved.own.iter().any(|own| own.matches(text.as_bytes())) {
            return Err("the gateway uses this header itself, and no client gets it");
        }
        match text {
            "strict-transport-security" => return Err("see `https.hsts_max_age`: a host has one policy"),
            "set-cookie" => return Err("all clients would get the same cookie"),
            "ratelimit" | "ratelimit-policy" => return Err("the gateway sets this header itself"),
            _ if text.starts_with("access-control-") => return Err("see [cors], which also checks the origin"),
            _ => {}
        }
        if essential().any(|essential| essential == name) {
            Err("with another value, the response would have another meaning")
        } else {
            Ok(())
        }
    };
    let may_remove = |pattern: &NamePattern| {
        if essential().any(|name| pattern.matches(name.as_str().as_bytes())) {
            Err("responses need this header")
        } else {
            Ok(())
        }
    };
    table.table("response_headers", |table| read(table, may_set, may_remove))
}

fn is(pattern: &NamePattern, name: &HeaderName) -> bool {
    *pattern == NamePattern::exact(name.as_str())
}

/// Both rules return why a name is rejected.
fn read(
    table: &mut Table<'_>,
    may_set: impl Fn(&HeaderName) -> Result<(), &'static str>,
    may_remove: impl Fn(&NamePattern) -> Result<(), &'static str>,
) -> Option<HeaderRules> {
    let set = table.take("set", Shape::list(FIELD)).map(|list| fields(&list, &may_set)).unwrap_or_default();
    let remove = table.take("remove", Shape::list(HEADER));
    let remove = remove.and_then(|value| value.list_of("[\"X-Debug\"]", |text| pattern(text, &may_remove)));
    for key in ["set", "remove"] {
        table.default(key, Vec::<String>::new());
    }
    let rules = remove.unwrap_or_default();
    if let Some((name, _)) = set.iter().find(|(name, _)| rules.iter().any(|one| is(one, name))) {
        let error = ConfigError::new(format!("{name} is also in `set`"), "expected it in one of the two lists");
        table.reject("remove", error.help("`set` replaces what was there"));
    }
    HeaderRules::new(rules, set)
}

fn fields(
    list: &Value<'_>,
    may_set: &impl Fn(&HeaderName) -> Result<(), &'static str>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields: Vec<(HeaderName, HeaderValue)> = Vec::new();
    for item in list.list("[\"X-Tenant: acme\"]").unwrap_or_default() {
        let Some((name, value)) = item.parse(|text| field(text, may_set)) else { continue };
        if fields.iter().any(|(other, _)| NamePattern::exact(other.as_str()).matches(name.as_str().as_bytes())) {
            let error = ConfigError::new(format!("{name} is in the list twice"), "expected each name once");
            item.reject(error.help("case is ignored, and `_` and `-` are equal, as in many backends"));
        }
        fields.push((name, value));
    }
    fields
}

fn field(
    text: &str,
    may_set: &impl Fn(&HeaderName) -> Result<(), &'static str>,
) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let Some((name, value)) = text.split_once(':') else {
        return Err(ConfigError::new("this header has no value", EXPECTED_FIELD).help("write a colon after the name"));
    };
    let name: HeaderName = name
        .parse()
        .map_err(|_| ConfigError::new(format!("\"{}\" is not a header name", name.escape_debug()), EXPECTED_FIELD))?;
    let value = value.trim_matches(' ');
    if value.is_empty() {
        let error = ConfigError::new(format!("the value of {name} is empty"), EXPECTED_FIELD);
        return Err(error.help("to remove a header, name it in `remove`"));
    }
    // A line feed would begin another header, and an empty line the body.
    let stray = value.chars().find(|character| !matches!(character, ' '..='~'));
    if let Some(stray) = stray {
        let error =
            ConfigError::new(format!("the value of {name} contains `{}`", stray.escape_debug()), EXPECTED_FIELD);
        return Err(error.help("use printable ASCII characters and spaces"));
    }
    may_set(&name).map_err(|why| ConfigError::new(format!("{name} cannot be set here"), EXPECTED_FIELD).help(why))?;
    let value = HeaderValue::from_str(value)
        .map_err(|_| ConfigError::new(format!("the value of {name} is not valid"), EXPECTED_FIELD))?;
    Ok((name, value))
}

fn pattern(
    text: &str,
    may_remove: &impl Fn(&NamePattern) -> Result<(), &'static str>,
) -> Result<NamePattern, ConfigError> {
    let error = || ConfigError::new(format!("\"{}\" is not a header name", text.escape_debug()), EXPECTED_NAME);
    let pattern = NamePattern::parse(text).ok_or_else(error)?;
    let rejected = |why| ConfigError::new(format!("{text} cannot be removed here"), EXPECTED_NAME).help(why);
    may_remove(&pattern).map_err(rejected)?;
    Ok(pattern)
}
