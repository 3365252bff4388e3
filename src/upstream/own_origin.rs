//! Recognizes the origins under which a backend knows itself.

use std::net::IpAddr;

use super::group::Upstream;

impl Upstream {
    /// Returns true if a server of this upstream has this scheme, port and host: the host in `servers`, an address of
    /// it, or the host that the gateway sent. nginx joins the host that it was asked for and its own port. IPv6
    /// addresses have no brackets.
    pub fn is_own_origin(&self, tls: bool, host: &str, port: u16, sent_host: &str) -> bool {
        let address = host.parse::<IpAddr>().ok();
        self.settings.servers.iter().zip(&self.servers).any(|(settings, server)| {
            let has_address = |address: IpAddr| {
                let known = server.connector.addresses.known();
                known.iter().any(|known| known.ip().to_canonical() == address.to_canonical())
            };
            (settings.tls, settings.port) == (tls, port)
                && (host.eq_ignore_ascii_case(settings.name())
                    || host.eq_ignore_ascii_case(sent_host)
                    || address.is_some_and(has_address))
        })
    }
}
