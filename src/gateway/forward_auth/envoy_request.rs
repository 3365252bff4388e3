//! `envoy.service.auth.v3.CheckRequest`: what Envoy says over gRPC about the request that it has received. Pure.
//!
//! Stricter than Protocol Buffers: what two readers could read in two ways rejects the call. A field that is repeated
//! would be merged by one reader and replaced by another, and the gateway would decide about a request that Envoy does
//! not forward.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::question::Question;
use crate::protocols::http::client_cert::CLIENT_CERT;
use crate::protocols::http::headers;
use crate::protocols::protobuf::{Field, Fields, Malformed, only};
use crate::types::reject::{Reason, Reject};

// CheckRequest
const ATTRIBUTES: u32 = 1;
// AttributeContext
const SOURCE: u32 = 1;
const REQUEST: u32 = 4;
// AttributeContext.Peer, Address, SocketAddress
const PEER_ADDRESS: u32 = 1;
const SOCKET_ADDRESS: u32 = 1;
const ADDRESS: u32 = 2;
// AttributeContext.Request
const HTTP: u32 = 2;
// AttributeContext.HttpRequest
const METHOD: u32 = 2;
const HEADERS: u32 = 3;
const PATH: u32 = 4;
const HOST: u32 = 5;
const SCHEME: u32 = 6;
const QUERY: u32 = 7;
const FRAGMENT: u32 = 8;
const HEADER_MAP: u32 = 13;
// HeaderMap
const MAP_HEADERS: u32 = 1;
// HeaderValue. An entry of `headers` has the first two.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const RAW_VALUE: u32 = 3;

/// What the messages call the three parts of [`Question`].
const NAMES: [&str; 3] = ["http.method", "http.host", "http.path"];

/// The request that Envoy asks about.
#[derive(Debug)]
pub(super) struct CheckRequest<'m> {
    pub(super) question: Question,
    /// Without those for the connection to Envoy.
    pub(super) headers: HeaderMap,
    /// Who has connected to Envoy.
    pub(super) source: IpAddr,
    pub(super) scheme: &'m [u8],
}

impl<'m> CheckRequest<'m> {
    /// `max_headers`: `limits.request_header_count`.
    pub(super) fn read(message: &'m [u8], max_headers: usize) -> Result<Self, Reject> {
        let [attributes] = only(message, [ATTRIBUTES]).map_err(|_| malformed("CheckRequest"))?;
        let [source, request] = only(attributes, [SOURCE, REQUEST]).map_err(|_| malformed("attributes"))?;
        let [http] = only(request, [HTTP]).map_err(|_| malformed("request"))?;
        let numbers = [METHOD, HOST, PATH, SCHEME, QUERY, FRAGMENT, HEADER_MAP];
        let [method, host, path, scheme, query, fragment, map] =
            only_once(http, numbers, HEADERS).map_err(|_| malformed("request.http"))?;
        // Envoy leaves both empty. Another proxy could forward what the gateway has not seen.
        if !query.is_empty() || !fragment.is_empty() {
            return Err(bad("http.query or http.fragment is not part of http.path"));
        }
        let question = Question::of(NAMES, [method, host, path]).map_err(bad)?;
        let source = address(source).map_err(|_| malformed("source"))?;
        let source = source.ok_or_else(|| bad("source.address has no IP address"))?;
        let mut headers = Headers { of: [method, host, path, scheme], left: max_headers, map: HeaderMap::new() };
        headers.add_all(http, map)?;
        Ok(CheckRequest { question, headers: headers.of_request(), source, scheme })
    }
}

/// As [`only`], where the messages of one more field may repeat.
fn only_once<const N: usize>(message: &[u8], numbers: [u32; N], repeated: u32) -> Result<[&[u8]; N], Malformed> {
    let is_message =
        |field| !matches!(field, Ok((number, field)) if number == repeated && !matches!(field, Field::Bytes(_)));
    if Fields(message).all(is_message) { only(message, numbers) } else { Err(Malformed) }
}

/// `None` for a socket of Unix or a listener inside of Envoy.
fn address(peer: &[u8]) -> Result<Option<IpAddr>, Malformed> {
    let [address] = only(peer, [PEER_ADDRESS])?;
    let [socket] = only(address, [SOCKET_ADDRESS])?;
    let [text] = only(socket, [ADDRESS])?;
    Ok(std::str::from_utf8(text).ok().and_then(address_of))
}

/// Of a link-local address, Envoy also writes the interface: `fe80::1%2`.
fn address_of(text: &str) -> Option<IpAddr> {
    match text.split_once('%') {
        Some((address, _)) => Ipv6Addr::from_str(address).ok().map(IpAddr::V6),
        None => IpAddr::from_str(text).ok(),
    }
}

/// The headers, as far as they are read.
struct Headers<'m> {
    /// The method, the host, the path and the scheme.
    of: [&'m [u8]; 4],
    /// How many more there may be.
    left: usize,
    map: HeaderMap,
}

impl<'m> Headers<'m> {
    /// `http`: the message with [`HEADERS`]. `map`: its [`HEADER_MAP`].
    fn add_all(&mut self, http: &'m [u8], map: &'m [u8]) -> Result<(), Reject> {
        let entries = |message, number| {
            let bytes = move |field| match field {
                Ok((found, Field::Bytes(bytes))) if found == number => Some(Ok(bytes)),
                Ok((found, _)) if found != number => None,
                _ => Some(Err(malformed("a header"))),
            };
            Fields(message).filter_map(bytes)
        };
        let mut merged = entries(http, HEADERS).peekable();
        if merged.peek().is_some() && !map.is_empty() {
            return Err(bad("both http.headers and http.header_map"));
        }
        for entry in merged {
            self.add(entry?, true)?;
        }
        for entry in entries(map, MAP_HEADERS) {
            self.add(entry?, false)?;
        }
        Ok(())
    }

    /// `is_merged`: Envoy has joined the values of a name.
    fn add(&mut self, entry: &'m [u8], is_merged: bool) -> Result<(), Reject> {
        let [key, value, raw_value] = only(entry, [KEY, VALUE, RAW_VALUE]).map_err(|_| malformed("a header"))?;
        // Also of a pseudo-header: Envoy could act on the value that is not compared.
        if !raw_value.is_empty() && (is_merged || !value.is_empty()) {
            return Err(bad("a header has two values"));
        }
        let value = if value.is_empty() { raw_value } else { value };
        if key.starts_with(b":") {
            return self.check_pseudo(key, value);
        }
        let name = HeaderName::from_bytes(key).map_err(|_| bad("the name of a header is not valid"))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| bad(format!("the value of {name} is not valid")))?;
        if is_merged && self.map.contains_key(&name) {
            return Err(bad(format!("{name} is repeated in http.headers")));
        }
        if name == header::HOST && value.as_bytes() != self.of[1] {
            return Err(bad("the header host is not http.host"));
        }
        let too_many = || Reject::new(Reason::HeadTooLarge, "more fields than limits.request_header_count");
        // All cookies count as one field, which is checked later.
        let counts = usize::from(name != header::COOKIE);
        self.left = self.left.checked_sub(counts).ok_or_else(too_many)?;
        self.map.try_append(name, value).map_err(|_| too_many())?;
        Ok(())
    }

    /// Envoy repeats the head of the request among its headers.
    fn check_pseudo(&self, key: &[u8], value: &[u8]) -> Result<(), Reject> {
        let [method, host, path, scheme] = self.of;
        let expected = match key {
            b":method" => method,
            b":authority" => host,
            b":path" => path,
            b":scheme" => scheme,
            _ => return Err(bad("a pseudo-header that no request has here")),
        };
        if value == expected { Ok(()) } else { Err(bad("a pseudo-header is not that of the request")) }
    }

    /// Fields for the connection to Envoy say nothing about the request. Its body stays with Envoy. `Client-Cert` is
    /// what the client has written: Envoy asks before it changes headers.
    fn of_request(mut self) -> HeaderMap {
        let of_connection = [&header::TE, &header::TRAILER, &header::CONTENT_LENGTH];
        for name in headers::hop_by_hop().chain(of_connection).chain([&CLIENT_CERT]) {
            self.map.remove(name);
        }
        self.map
    }
}

fn malformed(part: &str) -> Reject {
    bad(format!("{part} is malformed or repeated"))
}

fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::new(Reason::BadAuthCall, detail)
}

#[cfg(test)]
mod tests;
