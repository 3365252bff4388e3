//! Requests of pages from other origins: CORS (Fetch standard, section 3.3). Pure.
//!
//! A browser shows a response to such a page only if `Access-Control-Allow-Origin` names the page's origin. Before a
//! request with `Authorization`, JSON or a method such as DELETE, it sends a preflight, without credentials, and sends
//! the request only if the response allows it. The gateway responds to preflights itself, so that none needs a token.
//!
//! A response of the gateway itself has the fields too, or a page could not read why it was rejected. The fields of a
//! backend are replaced: with two values of `Access-Control-Allow-Origin`, browsers show nothing.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use crate::protocols::http::body::Body;
use crate::protocols::http::field_list;
use crate::types::reject::{Reason, Reject};

static ANY: HeaderValue = HeaderValue::from_static("*");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const ORIGIN: HeaderValue = HeaderValue::from_static("Origin");
const OF_PREFLIGHT: HeaderValue = HeaderValue::from_static("Origin, Access-Control-Request-Method");

/// Request fields that every client of the gateway sends. Browsers ask for them by a preflight.
const ALLOWED: [&str; 3] = ["Authorization", "Content-Type", "DPoP"];
/// Response fields that say why a request was rejected and when to try again. Pages cannot read them otherwise.
const EXPOSED: [&str; 6] =
    ["WWW-Authenticate", "Retry-After", "RateLimit-Policy", "RateLimit", "X-Request-Id", "DPoP-Nonce"];

/// `[cors]` or `[route.cors]`: which pages may send requests and read their responses. The values of the fields are
/// made once, when the configuration is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    origins: Origins,
    credentials: bool,
    allow_headers: HeaderValue,
    expose: HeaderValue,
    max_age: HeaderValue,
}

/// `cors.origins`
#[derive(Clone, Debug, PartialEq)]
pub enum Origins {
    /// `*`. Not with credentials.
    Any,
    /// As browsers write them, compared byte for byte. Never `null`, the origin of sandboxed pages and files.
    Listed(Vec<HeaderValue>),
}

/// Marks a response of the gateway that no page of another origin may read, whatever `[cors]` says.
#[derive(Clone, Copy)]
pub struct NotShared;

/// The policies that a gateway needs at hand.
#[derive(Clone, Debug, Default)]
pub struct Cors {
    /// `[cors]`: for the gateway's own calls, and for rejections before a route was found.
    pub own: Option<Arc<Policy>>,
    /// If false, no request needs to be looked at.
    pub is_used: bool,
}

impl Cors {
    /// `of_routes`: the policy of each route.
    pub fn new<'p>(own: Option<Arc<Policy>>, mut of_routes: impl Iterator<Item = &'p Option<Arc<Policy>>>) -> Self {
        let is_used = own.is_some() || of_routes.any(Option::is_some);
        Cors { own, is_used }
    }

    /// The origin of the page that sent the request, if a policy may depend on it.
    pub fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.is_used { only_origin(headers).cloned() } else { None }
    }
}

impl Policy {
    /// `headers`: request fields that pages may send besides [`ALLOWED`]. `expose`: response fields that they may read
    /// besides [`EXPOSED`].
    pub fn new(
        origins: Origins,
        credentials: bool,
        headers: &[HeaderName],
        expose: &[HeaderName],
        max_age: Duration,
    ) -> Self {
        Policy {
            origins,
            credentials,
            allow_headers: list(&ALLOWED, headers),
            expose: list(&EXPOSED, expose),
            max_age: HeaderValue::from(max_age.as_secs()),
        }
    }

    /// The value of `Access-Control-Allow-Origin` for a page of this origin. `None`: it gets no access.
    fn allowed(&self, origin: Option<&HeaderValue>) -> Option<&HeaderValue> {
        match &self.origins {
            Origins::Any => Some(&ANY),
            Origins::Listed(listed) => listed.iter().find(|listed| Some(*listed) == origin),
        }
    }

    /// Sets the fields of a response, and removes those that the backend has set.
    ///
    /// `Vary` is set without an Origin too: a cache would otherwise show a page the response to another page's request,
    /// or one without these fields.
    pub fn apply(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if matches!(self.origins, Origins::Listed(_)) {
            // What the response varies by already stays.
            let is_enough = |item: &[u8]| item == b"*" || item.eq_ignore_ascii_case(b"origin");
            if !field_list::items(headers, &header::VARY).any(is_enough) {
                headers.append(header::VARY, ORIGIN);
            }
        }
        let Some(allowed) = self.allowed(origin) else {
            headers.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
            return;
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, self.expose.clone());
        if self.credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        } else {
            headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        }
    }

    /// The response to a preflight for a request with this method. `Access-Control-Allow-Private-Network` is never
    /// sent: a public page has no business with a gateway in a private network.
    pub fn preflight(&self, headers: &HeaderMap, method: &Method) -> Result<Box<Response<Body>>, Reject> {
        let Some(allowed) = self.allowed(only_origin(headers)) else {
            return Err(Reject::new(Reason::CorsOrigin, "the Origin of a preflight is not in cors.origins"));
        };
        let mut response = granted(allowed.clone(), method.as_str(), self.allow_headers.clone(), self.max_age.clone());
        let fields = response.headers_mut();
        fields.insert(header::VARY, OF_PREFLIGHT);
        if self.credentials {
            fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        Ok(response)
    }
}

/// The response to a preflight for a public document: pages of every origin may read it.
pub fn public_preflight() -> Box<Response<Body>> {
    granted(ANY.clone(), "GET, HEAD", ANY.clone(), HeaderValue::from_static("600"))
}

fn granted(origin: HeaderValue, methods: &str, headers: HeaderValue, max_age: HeaderValue) -> Box<Response<Body>> {
    let mut response = Box::new(Response::new(Body::empty()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    fields.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    fields.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
    fields.insert(header::ACCESS_CONTROL_MAX_AGE, max_age);
    // A method is a token, so it is always a valid value.
    if let Ok(methods) = HeaderValue::from_str(methods) {
        fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    response
}

/// Returns true for a CORS preflight. Browsers always send it without credentials (Fetch standard).
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The method of the request that a preflight asks for.
pub fn requested_method(headers: &HeaderMap) -> Option<Method> {
    let mut values = headers.get_all(header::ACCESS_CONTROL_REQUEST_METHOD).iter();
    let method = Method::from_bytes(values.next()?.as_bytes()).ok()?;
    values.next().is_none().then_some(method)
}

/// The Origin, if there is exactly one: of several, none can be trusted.
fn only_origin(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut values = headers.get_all(header::ORIGIN).iter();
    let origin = values.next()?;
    values.next().is_none().then_some(origin)
}

fn list(fixed: &[&str], more: &[HeaderName]) -> HeaderValue {
    let is_new = |name: &&str| !fixed.iter().any(|fixed| fixed.eq_ignore_ascii_case(name));
    let more = more.iter().map(HeaderName::as_str).filter(is_new);
    let names: Vec<&str> = fixed.iter().copied().chain(more).collect();
    // Field names and commas are always a valid value.
    HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: &str = "https://app.example";

    fn policy(origins: &[&'static str], credentials: bool) -> Policy {
        let origins = match origins {
            ["*"] => Origins::Any,
            listed => Origins::Listed(listed.iter().map(|origin| HeaderValue::from_static(origin)).collect()),
        };
        let name = HeaderName::from_static;
        Policy::new(
            origins,
            credentials,
            &[name("x-csrf"), name("content-type")],
            &[name("location")],
            Duration::from_secs(60),
        )
    }

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn text(headers: &HeaderMap, name: &str) -> String {
        let values = headers.get_all(name).iter().map(|value| value.to_str().expect("text"));
        values.collect::<Vec<_>>().join(" | ")
    }

    /// `Access-Control-Allow-Origin`, `-Credentials` and `Vary` of a response.
    fn applied(policy: &Policy, origins: &[&'static str], backend: &[(&'static str, &'static str)]) -> [String; 3] {
        let mut response = map(backend);
        let request: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
        policy.apply(only_origin(&map(&request)), &mut response);
        ["access-control-allow-origin", "access-control-allow-credentials", "vary"].map(|name| text(&response, name))
    }

    #[test]
    fn only_a_listed_origin_gets_access() {
        let policy = policy(&[APP, "http://localhost:5173"], false);
        for origin in [APP, "http://localhost:5173"] {
            assert_eq!(applied(&policy, &[origin], &[]), [origin, "", "Origin"]);
        }
        for origins in [
            &[][..],
            &["null"],
            &[""],
            &["*"],
            &["http://app.example"],
            &["https://app.example:443"],
            &["https://app.example:8443"],
            &["https://app.example/"],
            &["https://APP.example"],
            &["https://app.example.evil.example"],
            &["https://evil.example/https://app.example"],
            &["https://sub.app.example"],
            &["https://app.example https://evil.example"],
            &[APP, APP],
            &[APP, "https://evil.example"],
        ] {
            assert_eq!(applied(&policy, origins, &[]), ["", "", "Origin"], "{origins:?}");
        }
    }

    #[test]
    fn credentials_are_allowed_only_to_listed_origins() {
        let policy = policy(&[APP], true);
        assert_eq!(applied(&policy, &[APP], &[]), [APP, "true", "Origin"]);
        assert_eq!(applied(&policy, &["https://evil.example"], &[]), ["", "", "Origin"]);
    }

    #[test]
    fn any_origin_is_a_constant_without_vary() {
        let policy = policy(&["*"], false);
        for origins in [&[][..], &[APP], &["null"], &[APP, APP]] {
            assert_eq!(applied(&policy, origins, &[]), ["*", "", ""], "{origins:?}");
        }
    }

    #[test]
    fn fields_of_a_backend_are_replaced() {
        let policy = policy(&[APP], false);
        let backend = [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-origin", "https://evil.example"),
            ("access-control-allow-credentials", "true"),
        ];
        assert_eq!(applied(&policy, &[APP], &backend), [APP, "", "Origin"]);
        assert_eq!(applied(&policy, &["https://evil.example"], &backend), ["", "", "Origin"]);
        assert_eq!(applied(&policy, &[], &backend), ["", "", "Origin"]);
    }

    #[test]
    fn vary_of_a_backend_is_kept() {
        let policy = policy(&[APP], false);
        for (vary, expected) in [
            ("Accept-Encoding", "Accept-Encoding | Origin"),
            ("Accept, ORIGIN", "Accept, ORIGIN"),
            ("*", "*"),
            ("X-Origin", "X-Origin | Origin"),
        ] {
            assert_eq!(applied(&policy, &[APP], &[("vary", vary)])[2], expected);
            assert_eq!(applied(&policy, &[], &[("vary", vary)])[2], expected);
        }
    }

    #[test]
    fn a_page_reads_why_it_was_rejected() {
        let mut response = map(&[("access-control-expose-headers", "x-backend")]);
        policy(&[APP], false).apply(Some(&HeaderValue::from_static(APP)), &mut response);
        assert_eq!(
            text(&response, "access-control-expose-headers"),
            "WWW-Authenticate, Retry-After, RateLimit-Policy, RateLimit, X-Request-Id, DPoP-Nonce, location"
        );
    }

    #[test]
    fn a_preflight_grants_the_method_that_it_asks_for() {
        let asked = map(&[("origin", APP), ("access-control-request-method", "DELETE")]);
        let method = requested_method(&asked).expect("a method");
        let response = policy(&[APP], true).preflight(&asked, &method).expect("it is granted");
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        for (name, expected) in [
            ("access-control-allow-origin", APP),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "DELETE"),
            ("access-control-allow-headers", "Authorization, Content-Type, DPoP, x-csrf"),
            ("access-control-max-age", "60"),
            ("access-control-allow-private-network", ""),
            ("vary", "Origin, Access-Control-Request-Method"),
        ] {
            assert_eq!(text(response.headers(), name), expected, "{name}");
        }
    }

    #[test]
    fn a_preflight_of_another_origin_is_rejected() {
        for origin in ["https://evil.example", "null", ""] {
            let asked = map(&[("origin", origin), ("access-control-request-method", "GET")]);
            let rejected = policy(&[APP], true).preflight(&asked, &Method::GET).err().expect("it is rejected");
            assert_eq!(rejected.reason, Reason::CorsOrigin, "{origin}");
        }
    }

    #[test]
    fn a_preflight_has_an_origin_and_one_valid_method() {
        let asked = [("origin", APP), ("access-control-request-method", "GET")];
        assert!(is_preflight(&Method::OPTIONS, &map(&asked)));
        assert!(!is_preflight(&Method::GET, &map(&asked)));
        assert!(!is_preflight(&Method::OPTIONS, &map(&asked[..1])));
        assert!(!is_preflight(&Method::OPTIONS, &map(&asked[1..])));
        let method = ("access-control-request-method", "GET");
        for methods in [&[][..], &[("access-control-request-method", "a b")], &[method, method]] {
            assert_eq!(requested_method(&map(methods)), None, "{methods:?}");
        }
    }
}
