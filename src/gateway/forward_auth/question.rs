//! The request that a proxy asks about, as it describes it. Pure.
//!
//! Nothing is guessed: a field that is missing, repeated or not valid rejects the call. Otherwise a client could send
//! the field itself where a proxy forgets to set it, or the gateway would decide about another request than the proxy
//! forwards.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};

use super::settings::Dialect;
use crate::protocols::http::target;
use crate::protocols::websocket;

/// The request that a proxy asks about. Its other fields are those of the call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) method: Method,
    pub(super) target: Uri,
    pub(super) host: HeaderValue,
}

impl Question {
    /// `path`: `forward_auth.path`, with which the path of the call begins. Fails with what is wrong.
    pub(super) fn read<B>(dialect: Dialect, path: &str, call: &Request<B>) -> Result<Self, String> {
        let names = match dialect {
            Dialect::Prefix => return Self::from_prefix(path, call),
            Dialect::XForwarded => ["x-forwarded-method", "x-forwarded-host", "x-forwarded-uri"],
            Dialect::XOriginal => ["x-original-method", "x-original-host", "x-original-uri"],
            Dialect::ExtAuthzGrpc => return Err("a call over gRPC has a message".to_owned()),
        };
        let [method, host, uri] = names.map(|name| only(call.headers(), name));
        Question::of(names, [method?.as_bytes(), host?.as_bytes(), uri?.as_bytes()])
    }

    /// The method, the host, and the path with the query. `names`: what the proxy calls them.
    pub(super) fn of(names: [&str; 3], [method, host, uri]: [&[u8]; 3]) -> Result<Self, String> {
        let value = if target::is_host(host) { HeaderValue::from_bytes(host).ok() } else { None };
        let host = value.ok_or_else(|| format!("{} is not a host", names[1]))?;
        let method = Method::from_bytes(method).map_err(|_| format!("{} is not a method", names[0]))?;
        let target = origin_form(uri).ok_or_else(|| format!("{} is not a path and a query", names[2]))?;
        Question { method, target, host }.checked()
    }

    fn from_prefix<B>(path: &str, call: &Request<B>) -> Result<Self, String> {
        let host =
            target::host(call, usize::MAX).map_err(|reject| format!("{}: {}", reject.reason.code(), reject.detail))?;
        let target = call.uri().path_and_query().and_then(|target| target.as_str().strip_prefix(path));
        let target = target.and_then(|target| origin_form(target.as_bytes()));
        let target = target.ok_or_else(|| format!("no path and query follow {path}"))?;
        Question { method: call.method().clone(), target, host }.checked()
    }

    fn checked(self) -> Result<Self, String> {
        match self.method {
            Method::CONNECT => Err("the gateway cannot decide about CONNECT".to_owned()),
            _ => Ok(self),
        }
    }

    /// Turns the call into the request that it is about. Its fields for the connection to the proxy say nothing about
    /// that request. A handshake of a WebSocket is known by the fields that only such a one has: proxies keep
    /// `Upgrade` from the call, and the handshake needs checks that an ordinary GET does not.
    pub(super) fn replace<B>(self, call: &mut Request<B>) {
        let headers = call.headers_mut();
        headers.remove(header::CONNECTION);
        headers.remove(header::UPGRADE);
        headers.insert(header::HOST, self.host);
        if headers.contains_key(header::SEC_WEBSOCKET_KEY) || headers.contains_key(header::SEC_WEBSOCKET_VERSION) {
            websocket::set_upgrade_headers(headers);
        }
        *call.method_mut() = self.method;
        *call.uri_mut() = self.target;
        *call.version_mut() = http::Version::HTTP_11;
    }
}

/// The only value of a field.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h HeaderValue, String> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().ok_or_else(|| format!("{name} is missing"))?;
    match values.next() {
        None => Ok(first),
        Some(_) => Err(format!("{name} is repeated")),
    }
}

/// The target as a client writes it. `None` for every other form, and for a fragment: the parser would cut it off, and
/// the proxy may not.
fn origin_form(text: &[u8]) -> Option<Uri> {
    let is_whole = |target: &PathAndQuery| target.as_str().as_bytes() == text;
    let target = PathAndQuery::try_from(text).ok().filter(is_whole)?;
    text.starts_with(b"/").then(|| Uri::from(target))
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;

    fn call(target: &str, fields: &[(&str, &str)]) -> Request<()> {
        let call = fields.iter().fold(Request::get(target), |call, (name, value)| call.header(*name, *value));
        call.body(()).expect("a request")
    }

    const FIELDS: [(&str, &str); 3] = [
        ("x-forwarded-method", "DELETE"),
        ("x-forwarded-host", "api.example:8443"),
        ("x-forwarded-uri", "/orders/%31?a=b"),
    ];

    fn expected() -> Question {
        let host = HeaderValue::from_static("api.example:8443");
        Question { method: Method::DELETE, target: Uri::from_static("/orders/%31?a=b"), host }
    }

    #[test]
    fn each_dialect_has_its_own_fields() {
        let original = FIELDS.map(|(name, value)| (name.replace("forwarded", "original"), value));
        let original: Vec<_> = original.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        for (fields, dialect, other) in [
            (&FIELDS[..], Dialect::XForwarded, Dialect::XOriginal),
            (&original, Dialect::XOriginal, Dialect::XForwarded),
        ] {
            // The query of the call is that of no request: Caddy appends the client's.
            let call = call("/auth?x=1", fields);
            assert_eq!(Question::read(dialect, "/auth", &call), Ok(expected()), "{dialect:?}");
            assert!(Question::read(other, "/auth", &call).is_err(), "{other:?}");
        }
    }

    #[test]
    fn behind_a_prefix_is_the_request_itself() {
        let read = |target: &str| {
            let mut call = call(target, &[("host", "api.example:8443"), ("x-forwarded-uri", "/forged")]);
            *call.method_mut() = Method::DELETE;
            Question::read(Dialect::Prefix, "/auth", &call)
        };
        assert_eq!(read("/auth/orders/%31?a=b"), Ok(expected()));
        assert_eq!(read("/auth//orders").map(|question| question.target.to_string()), Ok("//orders".into()));
        for target in ["/auth", "/auth?x=/orders", "/authorized/orders", "/auth*"] {
            assert!(read(target).is_err(), "{target}");
        }
    }

    #[test]
    fn a_field_that_is_not_clear_rejects_the_call() {
        for (at, name) in FIELDS.iter().map(|(name, _)| name).enumerate() {
            let without: Vec<_> = FIELDS.iter().filter(|(other, _)| other != name).copied().collect();
            let read = |fields: &[(&str, &str)]| Question::read(Dialect::XForwarded, "/auth", &call("/auth", fields));
            assert_eq!(read(&without), Err(format!("{name} is missing")));
            let twice = [&FIELDS[..], &FIELDS[at..=at]].concat();
            assert_eq!(read(&twice), Err(format!("{name} is repeated")));
        }
        for (name, value) in [
            ("x-forwarded-method", ""),
            ("x-forwarded-method", "GET, POST"),
            ("x-forwarded-method", "CONNECT"),
            ("x-forwarded-host", ""),
            ("x-forwarded-host", "a.example, b.example"),
            ("x-forwarded-host", "a.example/x"),
            ("x-forwarded-host", "a.example?"),
            ("x-forwarded-host", "me@a.example"),
            ("x-forwarded-uri", ""),
            ("x-forwarded-uri", "orders"),
            ("x-forwarded-uri", "?a=b"),
            ("x-forwarded-uri", "*"),
            ("x-forwarded-uri", "https://api.example/orders"),
            ("x-forwarded-uri", "/public#/../orders"),
            ("x-forwarded-uri", "/public /orders"),
            ("x-forwarded-uri", "/public\t"),
        ] {
            let fields = FIELDS.map(|(other, usual)| (other, if other == name { value } else { usual }));
            let read = Question::read(Dialect::XForwarded, "/auth", &call("/auth", &fields));
            assert!(read.is_err(), "{name}: {value} {read:?}");
        }
    }

    #[test]
    fn only_the_fields_of_a_handshake_make_a_websocket() {
        for (fields, is_websocket) in [
            (&[("upgrade", "websocket"), ("connection", "Upgrade")][..], false),
            (&[("upgrade", "h2c"), ("connection", "close"), ("sec-websocket-key", "x")], true),
            (&[("sec-websocket-version", "13")], true),
        ] {
            let mut call = call("/auth", fields);
            *call.version_mut() = Version::HTTP_2;
            Question { method: Method::GET, ..expected() }.replace(&mut call);
            assert_eq!(websocket::is_upgrade_request(&call), is_websocket, "{fields:?}");
            assert_eq!((call.uri(), call.headers()["host"].as_bytes()), (&expected().target, &b"api.example:8443"[..]));
        }
    }
}
