//! The hosts for which proofs are accepted. Pure.
//!
//! The client writes `Host`. If `htu` were compared with any `Host`, a server that gets a proof for itself could use it
//! here: it would send its own name. So only names count that the operator has given to this gateway.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::protocols::http::target::without_port;
use crate::protocols::tls::ServerTls;

/// Names and addresses in lower case, without port and brackets. `*.example.com` is every name one label below
/// `example.com`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnHosts(HashSet<String>);

impl OwnHosts {
    /// Returns true if this is the host of a proof for the gateway. `authority`: a host with an optional port.
    /// `listener`: the certificates of the listener.
    pub fn contain(&self, authority: &str, listener: Option<&ServerTls>) -> bool {
        let host = normalised(authority);
        let wildcard = || host.split_once('.').is_some_and(|(_, parent)| self.0.contains(&format!("*.{parent}")));
        self.0.contains(&host) || wildcard() || listener.is_some_and(|listener| listener.names(&host))
    }

    /// Returns true if every name is one of this machine only.
    pub fn are_local(&self) -> bool {
        let is_loopback = |host: &String| host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.0.iter().all(|host| host == "localhost" || host.ends_with(".localhost") || is_loopback(host))
    }
}

/// From hosts with an optional port.
impl<'h> Extend<&'h str> for OwnHosts {
    fn extend<H: IntoIterator<Item = &'h str>>(&mut self, hosts: H) {
        self.0.extend(hosts.into_iter().map(normalised));
    }
}

/// An IPv6 address has several spellings.
fn normalised(authority: &str) -> String {
    let host = if authority.parse::<IpAddr>().is_ok() { authority } else { without_port(authority) };
    host.parse::<IpAddr>().map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(hosts: &[&'static str]) -> OwnHosts {
        let mut own = OwnHosts::default();
        own.extend(hosts.iter().copied());
        own
    }

    #[test]
    fn a_host_is_known_whatever_its_port_and_its_spelling() {
        let own = own(&["api.example", "GATEWAY.example:8443", "2001:db8::1", "[2001:db8::2]:443", "*.apps.example"]);
        for (host, expected) in [
            ("api.example", true),
            ("API.example:8443", true),
            ("api.example.", true),
            ("gateway.example", true),
            ("[2001:DB8:0::1]:8443", true),
            ("[2001:db8::2]", true),
            ("a.apps.example", true),
            ("a.b.apps.example", false),
            ("apps.example", false),
            ("api.example.evil", false),
            ("evilapi.example", false),
            ("[2001:db8::3]", false),
            ("192.0.2.1", false),
            ("", false),
        ] {
            assert_eq!(own.contain(host, None), expected, "{host}");
        }
        assert!(!OwnHosts::default().contain("localhost", None));
    }

    #[test]
    fn a_name_of_this_machine_is_local() {
        for (hosts, expected) in [
            (&[][..], true),
            (&["localhost:8443", "app.localhost", "127.0.0.1", "[::1]:80"], true),
            (&["localhost", "api.example"], false),
            (&["192.0.2.1"], false),
            (&["localhost.example"], false),
        ] {
            assert_eq!(own(hosts).are_local(), expected, "{hosts:?}");
        }
    }
}
