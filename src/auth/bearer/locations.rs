//! The places where a route accepts its token, and its removal before the request is forwarded. Pure.
//!
//! One rule for all locations together: exactly one credential. With two, the backend might use the other one.

use std::borrow::Cow;
use std::fmt;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};

use super::header::{credentials, find_with_scheme};
use super::subprotocol::{self, SubprotocolEntry};
use super::token::{BearerToken, TokenScheme, decode_base64url};
use super::{cookie, login_cookies, query, session_cookie};
use crate::protocols::http::name_pattern::NamePattern;
use crate::protocols::websocket;
use crate::tokens::credential_kind::{CredentialKind, is_for_backends};
use crate::types::reject::{Reason, Reject};

static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// `route.token_from`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenLocations {
    /// `header`: `Authorization: Bearer …`
    pub header: bool,
    /// `cookie:NAME`
    pub cookies: Vec<String>,
    /// `query:NAME`
    pub queries: Vec<String>,
    /// `websocket`: the subprotocols that a WebSocket handshake requests.
    pub websocket: bool,
    /// `login_cookie`: the cookie of `login = "cookie"`, which is in `cookies` too.
    pub login_cookie: bool,
    /// `route.api_keys`: API keys are accepted in `Authorization` and in `X-API-Key`.
    pub api_keys: bool,
    /// `route.sign_in`: the cookie of a login at a provider.
    pub sign_in: bool,
}

impl Default for TokenLocations {
    fn default() -> Self {
        TokenLocations {
            header: true,
            cookies: Vec::new(),
            queries: Vec::new(),
            websocket: false,
            login_cookie: false,
            api_keys: false,
            sign_in: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenLocation {
    Header,
    ApiKeyHeader,
    Cookie,
    Query,
    Websocket,
    /// The cookie of a login at a provider.
    SignIn,
}

impl fmt::Display for TokenLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TokenLocation::Header => "the Authorization header",
            TokenLocation::ApiKeyHeader => "the X-API-Key header",
            TokenLocation::Cookie => "a cookie",
            TokenLocation::Query => "the query",
            TokenLocation::Websocket => "the WebSocket subprotocols",
            TokenLocation::SignIn => "the cookie of a sign-in",
        })
    }
}

impl TokenLocation {
    /// Never in a URL, which is logged, and never where a browser adds it by itself.
    pub fn can_have_api_key(self) -> bool {
        matches!(self, TokenLocation::Header | TokenLocation::ApiKeyHeader)
    }

    /// Returns true if the browser adds the token by itself.
    pub fn is_cookie(self) -> bool {
        matches!(self, TokenLocation::Cookie | TokenLocation::SignIn)
    }
}

/// The one token of a request, not verified yet.
pub struct FoundToken<'r> {
    token: Cow<'r, [u8]>,
    scheme: TokenScheme,
    pub location: TokenLocation,
}

impl FoundToken<'_> {
    pub fn token(&self) -> BearerToken<'_> {
        BearerToken::from_checked(&self.token, self.scheme)
    }
}

/// A credential that was found, and not checked yet.
enum FoundCredential<'r> {
    Authorization,
    ApiKey,
    Plain(&'r [u8]),
    /// In base64url, as Kubernetes writes a token into a subprotocol.
    Encoded(&'r [u8]),
}

impl TokenLocations {
    /// Accepts the token in the cookie of `login = "cookie"`.
    pub fn accept_login_cookie(&mut self) {
        self.login_cookie = true;
        self.cookies.push(login_cookies::ACCESS.to_owned());
    }

    /// Returns true if the browser adds the token by itself, also to requests that another site causes.
    pub fn has_cookies(&self) -> bool {
        !self.cookies.is_empty() || self.sign_in
    }

    fn is_header_only(&self) -> bool {
        self.header && self.cookies.is_empty() && self.queries.is_empty() && !self.websocket
    }

    /// Finds exactly one credential in all locations together.
    pub fn find<'r, B>(&self, request: &'r Request<B>, max_size: usize) -> Result<FoundToken<'r>, Reject> {
        let mut handles = session_cookie::handles(request.headers());
        let handle = if self.sign_in { handles.next() } else { None };
        let has_key = self.api_keys && request.headers().contains_key(&X_API_KEY);
        if let Some(handle) = handle
            && self.is_header_only()
            && !has_key
            && !request.headers().contains_key(header::AUTHORIZATION)
        {
            let token = Cow::Borrowed(BearerToken::new(handle, TokenScheme::Other, max_size)?.as_bytes());
            return Ok(FoundToken { token, scheme: TokenScheme::Other, location: TokenLocation::SignIn });
        }
        if self.is_header_only() && !has_key && handle.is_none() {
            return find_in_header(request.headers(), max_size);
        }
        if self.is_header_only() && handle.is_none() && !request.headers().contains_key(header::AUTHORIZATION) {
            return find_api_key(request.headers(), max_size);
        }
        if request.headers().get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
            return Err(Reject::new(Reason::SeveralTokens, "several Authorization headers"));
        }
        let handle = handle.map(|handle| (TokenLocation::SignIn, FoundCredential::Plain(handle)));
        let mut all = self.all(request).into_iter().chain(handle);
        let (location, credential) = all.next().ok_or(Reason::NoToken)?;
        if let Some((other, _)) = all.next() {
            return Err(Reject::new(Reason::SeveralTokens, format!("a token in {location} and one in {other}")));
        }
        let token = match credential {
            FoundCredential::Authorization if !self.header => {
                return Err(Reject::new(Reason::NoToken, format!("this route accepts no token from {location}")));
            }
            FoundCredential::Authorization => return find_in_header(request.headers(), max_size),
            FoundCredential::ApiKey => return find_api_key(request.headers(), max_size),
            FoundCredential::Plain(token) => {
                Cow::Borrowed(BearerToken::new(token, TokenScheme::Other, max_size)?.as_bytes())
            }
            FoundCredential::Encoded(token) => Cow::Owned(decode_base64url(token, max_size)?),
        };
        Ok(FoundToken { token, scheme: TokenScheme::Other, location })
    }

    /// Every credential of the request. A token in `Authorization` always counts, because the backend would read it.
    fn all<'r, B>(&self, request: &'r Request<B>) -> Vec<(TokenLocation, FoundCredential<'r>)> {
        let headers = request.headers();
        let mut all = Vec::new();
        if headers.get(header::AUTHORIZATION).is_some_and(|value| self.header || credentials(value).is_some()) {
            all.push((TokenLocation::Header, FoundCredential::Authorization));
        }
        if self.api_keys {
            let keys = headers.get_all(&X_API_KEY).iter();
            all.extend(keys.map(|_| (TokenLocation::ApiKeyHeader, FoundCredential::ApiKey)));
        }
        for name in &self.cookies {
            // Many applications log out by an empty cookie.
            let values = cookie::values(headers, name).filter(|value| !value.is_empty());
            all.extend(values.map(|token| (TokenLocation::Cookie, FoundCredential::Plain(token))));
        }
        let query = request.uri().query().unwrap_or_default();
        for name in &self.queries {
            let values = query::values(query, name);
            all.extend(values.map(|token| (TokenLocation::Query, FoundCredential::Plain(token.as_bytes()))));
        }
        if self.websocket && websocket::is_upgrade_request(request) {
            let tokens = subprotocol::entries(headers).into_iter().filter_map(|entry| match entry {
                SubprotocolEntry::Token(token) => Some(FoundCredential::Plain(token)),
                SubprotocolEntry::Encoded(token) => Some(FoundCredential::Encoded(token)),
                SubprotocolEntry::Marker | SubprotocolEntry::Other(_) => None,
            });
            all.extend(tokens.map(|token| (TokenLocation::Websocket, token)));
        }
        all
    }

    /// Removes the token from the query, which backends log, and from the subprotocols, which the backend would try to
    /// speak. The upstream gets it in `Authorization` instead, or not at all if `drop` is true.
    ///
    /// Returns true if the client requested the subprotocol `bearer` and waits for it in the response.
    pub fn rewrite_for_upstream<B>(&self, request: &mut Request<B>, drop: bool) -> Result<bool, Reject> {
        let authorization = if drop { None } else { self.authorization_for_upstream(request) };
        self.drop_stored_credentials(request.headers_mut());
        if drop {
            self.drop_from_headers(request.headers_mut());
        }
        if let Some(authorization) = authorization
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

    /// `Authorization` for a token that cannot stay where it is.
    fn authorization_for_upstream<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        if self.queries.is_empty() && !self.websocket {
            return None;
        }
        let found = self.find(request, usize::MAX).ok()?;
        if !matches!(found.location, TokenLocation::Query | TokenLocation::Websocket) {
            return None;
        }
        let text = found.token().text().ok().filter(|text| is_for_backends(text.as_bytes()))?;
        HeaderValue::from_str(&format!("Bearer {text}")).ok()
    }

    /// No backend gets what [`is_for_backends`] keeps from it. On a route without API keys, another `X-API-Key` can be
    /// for the backend.
    fn drop_stored_credentials(&self, headers: &mut HeaderMap) {
        let is_ours = |value: &HeaderValue| self.api_keys || !is_for_backends(value.as_bytes());
        // CGI reads `X_API_KEY` as the same.
        while let Some(name) = headers.iter().find(|(name, value)| is_named_api_key(name) && is_ours(value)) {
            let name = name.0.clone();
            headers.remove(name);
        }
        let is_kept_back = |value| credentials(value).is_some_and(|(token, _)| !is_for_backends(token));
        if headers.get_all(header::AUTHORIZATION).iter().any(is_kept_back) {
            headers.remove(header::AUTHORIZATION);
        }
    }

    fn drop_from_headers(&self, headers: &mut HeaderMap) {
        if self.header || headers.get_all(header::AUTHORIZATION).iter().any(|value| credentials(value).is_some()) {
            headers.remove(header::AUTHORIZATION);
        }
        if !self.cookies.is_empty() {
            cookie::remove(headers, &self.cookies);
        }
    }
}

/// Returns true for every spelling of `X-API-Key`.
fn is_named_api_key(name: &HeaderName) -> bool {
    // Checked for every field of every request. Hardly any field has this length.
    name.as_str().len() == 9 && NamePattern::exact(X_API_KEY.as_str()).matches(name.as_str().as_bytes())
}

fn find_in_header(headers: &HeaderMap, max_size: usize) -> Result<FoundToken<'_>, Reject> {
    let token = find_with_scheme(headers, max_size)?;
    let bytes = Cow::Borrowed(token.as_bytes());
    let scheme = token.scheme();
    Ok(FoundToken { token: bytes, scheme, location: TokenLocation::Header })
}

/// The only `X-API-Key`. A token of another kind there is rejected: other checks belong to it.
fn find_api_key(headers: &HeaderMap, max_size: usize) -> Result<FoundToken<'_>, Reject> {
    let mut values = headers.get_all(&X_API_KEY).iter();
    let value = values.next().ok_or(Reason::NoToken)?;
    if values.next().is_some() {
        return Err(Reject::new(Reason::SeveralTokens, "several X-API-Key headers"));
    }
    if CredentialKind::of_own(value.as_bytes()) != Some(CredentialKind::ApiKey) {
        return Err(Reject::new(Reason::BadApiKey, "X-API-Key has no key of this gateway"));
    }
    let token = BearerToken::new(value.as_bytes(), TokenScheme::Other, max_size)?;
    let bytes = Cow::Borrowed(token.as_bytes());
    let scheme = token.scheme();
    Ok(FoundToken { token: bytes, scheme, location: TokenLocation::ApiKeyHeader })
}

fn set_query<B>(request: &mut Request<B>, query: &str) -> Result<(), Reject> {
    let path = request.uri().path();
    let text = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let mut parts = request.uri().clone().into_parts();
    // A part of a valid query is a valid query. If that ever fails, the request must not be forwarded with its token.
    let internal = |detail| Reject::new(Reason::Internal, detail);
    parts.path_and_query = Some(
        PathAndQuery::try_from(text)
            .map_err(|_| internal("cannot remove the token from the query: not a valid query"))?,
    );
    *request.uri_mut() = http::Uri::from_parts(parts)
        .map_err(|_| internal("cannot remove the token from the query: not a valid request target"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[(&str, &str)] = &[("authorization", "Bearer h")];
    const COOKIE: &[(&str, &str)] = &[("cookie", "t=c")];
    const WEBSOCKET: &[(&str, &str)] =
        &[("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", "bearer, w")];

    /// The header, and the locations of this list.
    fn accepting(also: &[TokenLocation]) -> TokenLocations {
        let named =
            |location, name: &str| also.iter().filter(|one| **one == location).map(|_| name.to_owned()).collect();
        let cookies = named(TokenLocation::Cookie, "t");
        let queries = named(TokenLocation::Query, "q");
        let websocket = also.contains(&TokenLocation::Websocket);
        TokenLocations { cookies, queries, websocket, ..TokenLocations::default() }
    }

    fn request(target: &str, fields: &[&[(&str, &str)]]) -> Request<()> {
        let request = Request::get(target);
        let fields = fields.concat().into_iter();
        fields.fold(request, |request, (name, value)| request.header(name, value)).body(()).expect("a request")
    }

    fn found(locations: &TokenLocations, request: &Request<()>) -> Result<(TokenLocation, Vec<u8>), Reason> {
        let found = locations.find(request, 100).map_err(|reject| reject.reason)?;
        Ok((found.location, found.token().as_bytes().to_vec()))
    }

    #[test]
    fn a_token_is_found_where_the_route_accepts_it() {
        for (location, target, fields, token) in [
            (TokenLocation::Header, "/", HEADER, "h"),
            (TokenLocation::Cookie, "/", COOKIE, "c"),
            (TokenLocation::Query, "/?q=s", &[][..], "s"),
            (TokenLocation::Websocket, "/", WEBSOCKET, "w"),
        ] {
            let locations = accepting(&[location]);
            assert_eq!(found(&locations, &request(target, &[fields])), Ok((location, token.into())), "{location}");
            if location != TokenLocation::Header {
                let none = found(&accepting(&[]), &request(target, &[fields]));
                assert_eq!(none, Err(Reason::NoToken), "{location}");
                let two = found(&locations, &request(target, &[HEADER, fields]));
                assert_eq!(two, Err(Reason::SeveralTokens), "{location}");
            }
            assert_eq!(locations.has_cookies(), location == TokenLocation::Cookie);
        }
    }

    #[test]
    fn subprotocols_count_only_in_a_websocket_handshake() {
        let request = request("/", &[&WEBSOCKET[2..]]);
        assert_eq!(found(&accepting(&[TokenLocation::Websocket]), &request), Err(Reason::NoToken));
    }

    #[test]
    fn the_upstream_gets_the_token_in_authorization() {
        for (location, target, fields, authorization, marked) in [
            (TokenLocation::Header, "/", HEADER, Some("Bearer h"), false),
            (TokenLocation::Cookie, "/", COOKIE, None, false),
            (TokenLocation::Query, "/?q=s", &[][..], Some("Bearer s"), false),
            (TokenLocation::Query, "/?q=bws_s", &[], None, false),
            (TokenLocation::Header, "/", &[("authorization", "Bearer bws_s")], None, false),
            (TokenLocation::Websocket, "/", WEBSOCKET, Some("Bearer w"), true),
            (TokenLocation::Websocket, "/", HEADER, Some("Bearer h"), false),
        ] {
            let mut request = request(target, &[fields]);
            let waits = accepting(&[location]).rewrite_for_upstream(&mut request, false).expect("rewritten");
            let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            assert_eq!((sent, waits, request.uri().query()), (authorization, marked, None), "{location}");
        }
        let mut request = request("/", &[WEBSOCKET]);
        assert!(!accepting(&[]).rewrite_for_upstream(&mut request, false).expect("rewritten"));
        assert!(request.headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL), "the backend's own");
    }

    #[test]
    fn a_dropped_token_reaches_the_backend_nowhere() {
        let basic = &[("authorization", "Basic eDp5")][..];
        for (header, fields, is_left) in [(true, basic, false), (false, HEADER, false), (false, basic, true)] {
            let mut request = request("/?q=s&x=1", &[fields, &[("cookie", "t=c; u=1")]]);
            let locations = accepting(&[TokenLocation::Cookie, TokenLocation::Query]);
            TokenLocations { header, ..locations }.rewrite_for_upstream(&mut request, true).expect("rewritten");
            assert_eq!(request.headers().contains_key(header::AUTHORIZATION), is_left, "{fields:?}");
            assert_eq!(
                (request.uri().query(), &request.headers()["cookie"]),
                (Some("x=1"), &HeaderValue::from_static("u=1"))
            );
        }
    }
}
