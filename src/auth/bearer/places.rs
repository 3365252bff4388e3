//! Where a route's token may be, and taking it out before the request goes on. Pure.
//!
//! One rule for all places together: exactly one credential, or a backend might believe the other one.

use std::borrow::Cow;
use std::fmt;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, header};

use super::{BearerToken, admitted, cookie, decoded, is_bearer, query, subprotocol};
use crate::protocols::websocket;
use crate::types::reject::{Reason, Reject};

/// `route.token_from`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `header`: `Authorization: Bearer …`
    pub header: bool,
    /// `cookie:NAME`
    pub cookies: Vec<String>,
    /// `query:NAME`
    pub queries: Vec<String>,
    /// `websocket`: in the subprotocols that a WebSocket asks for.
    pub websocket: bool,
}

impl Default for Places {
    fn default() -> Self {
        Places { header: true, cookies: Vec::new(), queries: Vec::new(), websocket: false }
    }
}

/// Where a token was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Header,
    Cookie,
    Query,
    Websocket,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Header => "the Authorization header",
            Place::Cookie => "a cookie",
            Place::Query => "the query",
            Place::Websocket => "the WebSocket subprotocols",
        })
    }
}

/// The one token of a request. Presence is not validity.
pub struct Found<'r> {
    token: Cow<'r, [u8]>,
    pub place: Place,
}

impl Found<'_> {
    pub fn token(&self) -> BearerToken<'_> {
        BearerToken(&self.token)
    }
}

/// A credential that was seen, and not read yet.
enum FoundCredential<'r> {
    Authorization,
    Plain(&'r [u8]),
    /// In base64url, by Kubernetes' way of writing a subprotocol.
    Encoded(&'r [u8]),
}

impl Places {
    /// Does the browser add the token by itself, also for a page of somebody else?
    pub fn has_cookies(&self) -> bool {
        !self.cookies.is_empty()
    }

    fn is_header_alone(&self) -> bool {
        self.header && self.cookies.is_empty() && self.queries.is_empty() && !self.websocket
    }

    /// Exactly one credential in all of the places.
    pub fn find<'r, B>(&self, request: &'r Request<B>, max_size: usize) -> Result<Found<'r>, Reject> {
        if self.is_header_alone() {
            return find_in_header(request.headers(), max_size);
        }
        if request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
            return Err(Reject::new(Reason::SeveralTokens, "several Authorization headers"));
        }
        let mut all = self.all(request).into_iter();
        let (place, seen) = all.next().ok_or(Reason::NoToken)?;
        if let Some((other, _)) = all.next() {
            return Err(Reject::new(Reason::SeveralTokens, format!("a token in {place} and one in {other}")));
        }
        let token = match seen {
            FoundCredential::Authorization if !self.header => {
                return Err(Reject::new(Reason::NoToken, format!("this route takes no token from {place}")));
            }
            FoundCredential::Authorization => return find_in_header(request.headers(), max_size),
            FoundCredential::Plain(token) => Cow::Borrowed(admitted(token, max_size)?),
            FoundCredential::Encoded(token) => Cow::Owned(decoded(token, max_size)?),
        };
        Ok(Found { token, place })
    }

    /// Everything that is a credential. A Bearer in `Authorization` is one wherever tokens are taken from: a backend would
    /// look at it.
    fn all<'r, B>(&self, request: &'r Request<B>) -> Vec<(Place, FoundCredential<'r>)> {
        let headers = request.headers();
        let mut all = Vec::new();
        if headers.get(header::AUTHORIZATION).is_some_and(|value| self.header || is_bearer(value)) {
            all.push((Place::Header, FoundCredential::Authorization));
        }
        for name in &self.cookies {
            // What is left of a cookie after a logout is often its name.
            let values = cookie::values(headers, name).filter(|value| !value.is_empty());
            all.extend(values.map(|token| (Place::Cookie, FoundCredential::Plain(token))));
        }
        let query = request.uri().query().unwrap_or_default();
        for name in &self.queries {
            all.extend(
                query::values(query, name).map(|token| (Place::Query, FoundCredential::Plain(token.as_bytes()))),
            );
        }
        if self.websocket && websocket::is_upgrade_request(request) {
            for entry in subprotocol::entries(headers) {
                match entry {
                    subprotocol::Entry::Token(token) => all.push((Place::Websocket, FoundCredential::Plain(token))),
                    subprotocol::Entry::Encoded(token) => all.push((Place::Websocket, FoundCredential::Encoded(token))),
                    subprotocol::Entry::Marker | subprotocol::Entry::Other(_) => {}
                }
            }
        }
        all
    }

    /// Takes the token from where a backend would log it, the query, or take it for something else, the subprotocols. The
    /// upstream finds it in `Authorization` instead; or nowhere, if the route drops it.
    ///
    /// Answers whether the client now waits to hear that its subprotocol `bearer` was understood.
    pub fn take_out<B>(&self, request: &mut Request<B>, drop: bool) -> Result<bool, Reject> {
        let passed_on = if drop { None } else { self.moved(request) };
        if drop {
            self.drop_from_headers(request.headers_mut());
        }
        if let Some(authorization) = passed_on
            && !request.headers().contains_key(header::AUTHORIZATION)
        {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        if !self.queries.is_empty()
            && let Some(rest) = request.uri().query().and_then(|query| query::without(query, &self.queries))
        {
            set_query(request, &rest)?;
        }
        Ok(self.websocket && subprotocol::remove(request.headers_mut()))
    }

    /// `Authorization` for a token that stands where it cannot stay.
    fn moved<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        if self.queries.is_empty() && !self.websocket {
            return None;
        }
        let found = self.find(request, usize::MAX).ok()?;
        if !matches!(found.place, Place::Query | Place::Websocket) {
            return None;
        }
        HeaderValue::from_str(&format!("Bearer {}", found.token().text().ok()?)).ok()
    }

    fn drop_from_headers(&self, headers: &mut HeaderMap) {
        if self.header || headers.get_all(header::AUTHORIZATION).iter().any(is_bearer) {
            headers.remove(header::AUTHORIZATION);
        }
        if !self.cookies.is_empty() {
            cookie::remove(headers, &self.cookies);
        }
    }
}

fn find_in_header(headers: &HeaderMap, max_size: usize) -> Result<Found<'_>, Reject> {
    let token = super::find(headers, max_size)?;
    Ok(Found { token: Cow::Borrowed(token.as_bytes()), place: Place::Header })
}

fn set_query<B>(request: &mut Request<B>, query: &str) -> Result<(), Reject> {
    let path = request.uri().path();
    let text = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let mut parts = request.uri().clone().into_parts();
    // A part of a query is one. Were it not, the request must not go on with its token in it.
    let unwritable = |_| Reject::new(Reason::Internal, "the query cannot be written without its token");
    parts.path_and_query = Some(PathAndQuery::try_from(text).map_err(unwritable)?);
    *request.uri_mut() = http::Uri::from_parts(parts)
        .map_err(|_| Reject::new(Reason::Internal, "the target cannot be written without its token"))?;
    Ok(())
}
