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

/// Request and response fields of MCP, in lower case (MCP 2026-07-28, Transports).
const ALLOWED_OF_MCP: [&str; 5] = ["mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name", "last-event-id"];
const EXPOSED_OF_MCP: [&str; 1] = ["mcp-session-id"];
/// Maximum number of fields `Mcp-Param-*` of one preflight, and maximum length of each name.
const MAX_PARAMETERS: usize = 32;
const MAX_PARAMETER: usize = 64;

/// `[cors]` or `[route.cors]`: which pages may send requests and read their responses. The values of the fields are
/// made once, when the configuration is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    origins: Origins,
    credentials: bool,
    /// Pages of these origins never send credentials.
    applications: Vec<HeaderValue>,
    allow_headers: HeaderValue,
    /// `cors.mcp`
    mcp: bool,
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

/// A page of another origin, which may read a response.
#[derive(Clone, Copy)]
struct AllowedPage<'p> {
    /// The value of `Access-Control-Allow-Origin`.
    origin: &'p HeaderValue,
    credentials: bool,
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
            applications: Vec::new(),
            allow_headers: list(&ALLOWED, headers),
            mcp: false,
            expose: list(&EXPOSED, expose),
            max_age: HeaderValue::from(max_age.as_secs()),
        }
    }

    /// Also allows single-page applications, without credentials.
    #[must_use]
    pub fn with_applications(self, applications: Vec<HeaderValue>) -> Self {
        Policy { applications, ..self }
    }

    /// Also allows the header fields of MCP, and `Mcp-Param-*`, of which each tool may have others.
    #[must_use]
    pub fn with_mcp(self, headers: &[HeaderName], expose: &[HeaderName]) -> Self {
        let names = |more: &[&'static str], names: &[HeaderName]| -> Vec<HeaderName> {
            more.iter().map(|name| HeaderName::from_static(name)).chain(names.iter().cloned()).collect()
        };
        Policy {
            allow_headers: list(&ALLOWED, &names(&ALLOWED_OF_MCP, headers)),
            expose: list(&EXPOSED, &names(&EXPOSED_OF_MCP, expose)),
            mcp: true,
            ..self
        }
    }

    /// The page of this origin, if it gets access.
    fn allowed(&self, origin: Option<&HeaderValue>) -> Option<AllowedPage<'_>> {
        let listed = match &self.origins {
            Origins::Any => Some(&ANY),
            Origins::Listed(listed) => listed.iter().find(|listed| Some(*listed) == origin),
        };
        if let Some(origin) = listed {
            return Some(AllowedPage { origin, credentials: self.credentials });
        }
        let application = self.applications.iter().find(|known| Some(*known) == origin)?;
        Some(AllowedPage { origin: application, credentials: false })
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
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed.origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, self.expose.clone());
        if allowed.credentials {
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
        let allow_headers = self.allow_headers_for(headers);
        let mut response = granted(allowed.origin.clone(), method.as_str(), allow_headers, self.max_age.clone());
        let fields = response.headers_mut();
        fields.insert(header::VARY, OF_PREFLIGHT);
        if allowed.credentials {
            fields.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        Ok(response)
    }

    fn allow_headers_for(&self, preflight: &HeaderMap) -> HeaderValue {
        let asked = field_list::items(preflight, &header::ACCESS_CONTROL_REQUEST_HEADERS);
        let parameters = asked.filter(|name| is_mcp_parameter(name)).filter_map(|name| str::from_utf8(name).ok());
        let parameters: Vec<&str> = parameters.take(MAX_PARAMETERS).collect();
        if !self.mcp || parameters.is_empty() {
            return self.allow_headers.clone();
        }
        let known = self.allow_headers.to_str().unwrap_or_default();
        let all = format!("{known}, {}", parameters.join(", "));
        HeaderValue::from_str(&all).unwrap_or_else(|_| self.allow_headers.clone())
    }
}

/// `Mcp-Param-` and the rest of a field name.
fn is_mcp_parameter(name: &[u8]) -> bool {
    let prefix = b"mcp-param-";
    name.len() > prefix.len()
        && name.len() <= MAX_PARAMETER
        && name[..prefix.len()].eq_ignore_ascii_case(prefix)
        && HeaderName::from_bytes(name).is_ok()
}

/// The response to a preflight for a public document: pages of every origin may read it.
pub fn public_preflight() -> Box<Response<Body>> {
    granted(ANY.clone(), "GET, HEAD", ANY.clone(), HeaderValue::from_static("600"))
}

/// The response to a preflight for what no page of another origin may read.
pub fn refused_preflight() -> Box<Response<Body>> {
    let mut response = Box::new(Response::new(Body::empty()));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
    response.extensions_mut().insert(NotShared);
    response
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
mod tests;
