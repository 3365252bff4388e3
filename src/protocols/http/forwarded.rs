//! The client of a request, also one that connects through proxies which the operator trusts. Pure.
//!
//! Each proxy appends the address of its peer to `X-Forwarded-For`. The gateway reads the list from the right and skips
//! trusted addresses. The first one that is not trusted is the client; the client may have forged those to its left.
//! From a peer that is not trusted, the gateway ignores the header (oauth2-proxy CVE-2026-40575 trusted every peer by
//! default).

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use crate::protocols::http::removed_fields::FieldRules;

/// The client of a request, as the gateway reports it to backends.
pub struct ForwardedClient {
    /// The client's address: that of the peer, or the one that a trusted proxy reports.
    pub address: IpAddr,
    pub forwarded_for: HeaderValue,
    pub forwarded: HeaderValue,
    pub scheme: HeaderValue,
}

impl ForwardedClient {
    pub fn new(address: IpAddr, tls: bool) -> Self {
        let scheme = if tls { "https" } else { "http" };
        // An IPv4 client of a dual-stack socket has a mapped IPv6 address.
        let address = address.to_canonical();
        let node = if address.is_ipv6() { format!("\"[{address}]\"") } else { address.to_string() };
        let value = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("unknown"));
        ForwardedClient {
            address,
            forwarded_for: value(address.to_string()),
            forwarded: value(format!("for={node};proto={scheme}")),
            scheme: HeaderValue::from_static(scheme),
        }
    }
}

/// A list of networks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        contains(&self.0, address)
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<N: IntoIterator<Item = IpNet>>(networks: N) -> Self {
        Networks(networks.into_iter().collect())
    }
}

fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    // An IPv4 peer of a dual-stack socket has a mapped IPv6 address.
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// `forwarding.client_certificate`: what the trusted proxies say about a client in `Client-Cert`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCert {
    /// Nothing: the field is removed.
    #[default]
    Off,
    /// The client has the key of the certificate.
    Any,
    /// The proxies have verified the chain, too.
    Verified,
}

/// `[forwarding]`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forwarding {
    /// Networks of trusted proxies. Empty: no proxy is trusted.
    pub trusted: Vec<IpNet>,
    /// `forwarding.x_real_ip`: if true, backends get the client's address in `X-Real-IP` too.
    pub sets_real_ip: bool,
    pub client_cert: ClientCert,
    pub fields: FieldRules,
}

impl Forwarding {
    pub fn trusts(&self, address: IpAddr) -> bool {
        contains(&self.trusted, address)
    }

    /// The client of a request from a trusted peer. `None` if the peer is not trusted: then the peer is the client.
    ///
    /// Boxed, because it is rare and would make every request's future larger.
    pub fn client_of(&self, peer: &ForwardedClient, headers: &HeaderMap) -> Option<Box<ForwardedClient>> {
        if !self.trusts(peer.address) {
            return None;
        }
        let client = self.client_address(headers).unwrap_or(peer.address);
        let tls = forwarded_proto(headers).unwrap_or(peer.scheme == "https");
        Some(Box::new(ForwardedClient::new(client, tls)))
    }

    /// The client from which the peer, a proxy that may ask about requests, has received a request. Unlike in
    /// [`Forwarding::client_of`], nothing has a default: without the address, all clients would share the limits of
    /// the proxy. Fails with what is wrong.
    pub fn client_in(&self, headers: &HeaderMap) -> Result<Box<ForwardedClient>, &'static str> {
        let client =
            self.client_address(headers).ok_or("the last element of x-forwarded-for is missing or not an address")?;
        let tls = forwarded_proto(headers).ok_or("x-forwarded-proto is missing, or none of http, https, ws and wss")?;
        Ok(Box::new(ForwardedClient::new(client, tls)))
    }

    /// As [`Forwarding::client_in`], from a proxy that names its peer: `source` is the client, unless it is trusted.
    /// `scheme`: what the proxy says without `X-Forwarded-Proto`. Fails with what is wrong.
    pub fn client_behind(
        &self,
        source: IpAddr,
        scheme: &[u8],
        headers: &HeaderMap,
    ) -> Result<Box<ForwardedClient>, &'static str> {
        let client = Some(source).filter(|source| self.trusts(*source)).and_then(|_| self.client_address(headers));
        let tls = if headers.contains_key("x-forwarded-proto") {
            forwarded_proto(headers).ok_or("x-forwarded-proto is none of http, https, ws and wss")?
        } else {
            is_https(scheme).ok_or("the scheme is none of http, https, ws and wss")?
        };
        Ok(Box::new(ForwardedClient::new(client.unwrap_or(source), tls)))
    }

    /// The first address from the right that is not trusted. An element that is no address ends the search at the last
    /// proxy. If all are trusted, it is the leftmost one. `None` if there is no address before the search ends.
    fn client_address(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let fields = headers.get_all("x-forwarded-for").iter().map(HeaderValue::as_bytes);
        let fields: Vec<&[u8]> = fields.collect();
        let mut client = None;
        for element in fields.iter().rev().flat_map(|field| field.rsplit(|byte| *byte == b',')) {
            let element = element.trim_ascii();
            if element.is_empty() {
                continue;
            }
            let Some(address) = parse(element) else { return client };
            client = Some(address);
            if !self.trusts(address) {
                return client;
            }
        }
        client
    }
}

/// Parses an address with an optional port, which some load balancers add.
fn parse(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    bare.parse().ok().or_else(with_port).map(|address: IpAddr| address.to_canonical())
}

/// Returns whether the client used TLS, as the last proxy reports it in `X-Forwarded-Proto`.
fn forwarded_proto(headers: &HeaderMap) -> Option<bool> {
    let last = headers.get_all("x-forwarded-proto").iter().next_back()?;
    is_https(last.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii())
}

/// Some proxies, such as Traefik, write `wss` for a WebSocket over TLS, and `ws` for one without.
fn is_https(scheme: &[u8]) -> Option<bool> {
    let is_one_of = |names: [&str; 2]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name.as_bytes()));
    if is_one_of(["https", "wss"]) {
        return Some(true);
    }
    is_one_of(["http", "ws"]).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, fields: &[&'static str]) -> String {
        let trusted = ["10.0.0.0/8", "fd00::/8", "192.0.2.7/32"].map(|network| network.parse().expect("a network"));
        let forwarding = Forwarding { trusted: trusted.into(), ..Forwarding::default() };
        let headers =
            fields.iter().map(|field| ("x-forwarded-for".parse().expect("a name"), HeaderValue::from_static(field)));
        let peer = ForwardedClient::new(peer.parse().expect("an address"), true);
        let found = forwarding.client_of(&peer, &headers.collect());
        found.map_or("the peer".into(), |client| client.address.to_string())
    }

    #[test]
    fn the_client_is_the_first_untrusted_address_from_the_right() {
        for (peer, fields, expected) in [
            ("203.0.113.1", &["198.51.100.1"][..], "the peer"),
            ("192.0.2.8", &["198.51.100.1"], "the peer"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("192.0.2.7", &["198.51.100.1"], "198.51.100.1"),
            ("fd00::1", &["2001:db8::1"], "2001:db8::1"),
            // The client may have forged the addresses to its left.
            ("10.0.0.1", &["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["127.0.0.1, 198.51.100.1, 10.9.9.9"], "198.51.100.1"),
            ("10.0.0.1", &["127.0.0.1", "198.51.100.1", "10.9.9.9, 10.8.8.8"], "198.51.100.1"),
            ("10.0.0.1", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            // An element that is no address ends the search at the last proxy.
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, unknown, 10.2.2.2"], "10.2.2.2"),
            ("10.0.0.1", &["198.51.100.1 10.2.2.2"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.256"], "10.0.0.1"),
            ("10.0.0.1", &["0x7f.1"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, , ,"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
        ] {
            assert_eq!(client(peer, fields), expected, "{peer} {fields:?}");
        }
    }

    #[test]
    fn the_peer_of_a_proxy_is_the_client_unless_it_is_trusted() {
        let forwarding =
            Forwarding { trusted: vec!["10.0.0.0/8".parse().expect("a network")], ..Forwarding::default() };
        for (source, scheme, fields, expected) in [
            ("198.51.100.1", "http", &[][..], Some(("198.51.100.1", "http"))),
            ("198.51.100.1", "https", &[("x-forwarded-for", "192.0.2.1")], Some(("198.51.100.1", "https"))),
            ("10.0.0.1", "http", &[("x-forwarded-for", "192.0.2.1, 10.0.0.1")], Some(("192.0.2.1", "http"))),
            ("10.0.0.1", "http", &[("x-forwarded-for", "unknown")], Some(("10.0.0.1", "http"))),
            ("10.0.0.1", "http", &[("x-forwarded-proto", "https")], Some(("10.0.0.1", "https"))),
            ("10.0.0.1", "", &[("x-forwarded-proto", "https")], Some(("10.0.0.1", "https"))),
            ("10.0.0.1", "http", &[("x-forwarded-proto", "ftp")], None),
            ("10.0.0.1", "", &[], None),
            ("10.0.0.1", "ws", &[], Some(("10.0.0.1", "http"))),
            ("10.0.0.1", "WSS", &[], Some(("10.0.0.1", "https"))),
            ("10.0.0.1", "http", &[("x-forwarded-proto", "wss")], Some(("10.0.0.1", "https"))),
            ("10.0.0.1", "gopher", &[], None),
        ] {
            let name = |name: &str| name.parse::<http::HeaderName>().expect("a name");
            let headers = fields.iter().map(|(field, value)| (name(field), HeaderValue::from_static(value))).collect();
            let found = forwarding.client_behind(source.parse().expect("an address"), scheme.as_bytes(), &headers);
            let found = found.ok().map(|client| (client.address.to_string(), client.scheme));
            let expected = expected.map(|(address, scheme)| (address.into(), HeaderValue::from_static(scheme)));
            assert_eq!(found, expected, "{source} {scheme} {fields:?}");
        }
    }

    #[test]
    fn the_last_proxy_reports_the_scheme() {
        for (fields, expected) in [
            (&[][..], None),
            (&["https"], Some(true)),
            (&["HTTP"], Some(false)),
            (&["https, http"], Some(false)),
            (&["http", "https"], Some(true)),
            (&["wss"], Some(true)),
            (&["https, WS"], Some(false)),
            (&["wssx"], None),
            (&["ftp"], None),
            (&["https,"], None),
        ] {
            let name = || "x-forwarded-proto".parse().expect("a name");
            let headers = fields.iter().map(|field| (name(), HeaderValue::from_static(field))).collect();
            assert_eq!(forwarded_proto(&headers), expected, "{fields:?}");
        }
    }
}
