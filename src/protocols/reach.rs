//! The reach of an address: this machine, a private network or the internet. Pure.
//!
//! A document from the internet must not make the gateway connect to this machine or to a private network (SSRF).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// In ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// This machine.
    Loopback,
    /// A private or special network.
    Private,
    /// Everything else.
    Public,
}

impl Reach {
    pub fn of(address: IpAddr) -> Reach {
        match address.to_canonical() {
            address if address.is_loopback() || address.is_unspecified() => Reach::Loopback,
            IpAddr::V4(v4) if is_special_v4(v4) => Reach::Private,
            IpAddr::V6(v6) if is_special_v6(v6) => Reach::Private,
            // 6to4 (RFC 3056) leads to the IPv4 address behind the prefix.
            IpAddr::V6(v6) if v6.segments()[0] == 0x2002 => {
                Reach::of(Ipv4Addr::from_bits((v6.to_bits() >> 80) as u32).into())
            }
            // NAT64 (RFC 6052) leads to the IPv4 address at the end.
            IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
                Reach::of(Ipv4Addr::from_bits(v6.to_bits() as u32).into())
            }
            _ => Reach::Public,
        }
    }

    /// The reach of a host in a URL. `None` for a name that DNS resolves.
    pub fn of_host(host: &str) -> Option<Reach> {
        if let Ok(address) = host.parse() {
            return Some(Reach::of(address));
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        // RFC 6761 section 6.3: these names never leave the machine.
        (name == "localhost" || name.ends_with(".localhost")).then_some(Reach::Loopback)
    }
}

/// RFC 6890: private use, link-local, shared, benchmarks, documentation, protocol assignments, "this network",
/// multicast and reserved.
fn is_special_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || matches!((a, b, c), (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _) | (224.., ..))
}

/// Unique local, link-local, the former site-local, multicast and documentation (RFC 3849, RFC 9637); the NAT64 of one
/// network (RFC 8215), and the former addresses with an IPv4 address at their end (RFC 4291 section 2.5.5.1). Of the
/// special-purpose addresses that are not global (RFC 6890): those that are discarded, Teredo, benchmarks, and segment
/// routing.
fn is_special_v6(address: Ipv6Addr) -> bool {
    let [first, second, third, ..] = address.segments();
    matches!(first, 0xfc00..=0xfdff | 0xfe80..=0xffff)
        || (first, second) == (0x2001, 0xdb8)
        || (first, second, third) == (0x64, 0xff9b, 1)
        || (first, second, third) == (0x100, 0, 0)
        || (first, second) == (0x2001, 0)
        || (first, second, third) == (0x2001, 2, 0)
        || first == 0x3fff && second < 0x1000
        || first == 0x5f00
        || address.segments()[..6] == [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_reach() {
        for (reach, hosts) in [
            (
                Reach::Loopback,
                &[
                    "127.0.0.1",
                    "127.9.9.9",
                    "0.0.0.0",
                    "::1",
                    "::",
                    "::ffff:127.0.0.1",
                    "64:ff9b::7f00:1",
                    "2002:7f00:1::1",
                    "LocalHost.",
                    "a.localhost",
                ][..],
            ),
            (
                Reach::Private,
                &[
                    "10.0.0.1",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "169.254.169.254",
                    "100.64.0.1",
                    "0.1.2.3",
                    "192.0.0.8",
                    "198.18.0.1",
                    "224.0.0.1",
                    "255.255.255.255",
                    "fd00::1",
                    "fc00::1",
                    "fe80::1",
                    "fec0::1",
                    "ff02::1",
                    "2001:db8::1",
                    "2001::1",
                    "2001:2::1",
                    "100::1",
                    "3fff:fff::1",
                    "5f00::1",
                    "::ffff:10.0.0.1",
                    "64:ff9b::a00:1",
                    "64:ff9b:1::101:101",
                    "2002:a00:1::1",
                    "::127.0.0.1",
                ],
            ),
            (
                Reach::Public,
                &[
                    "1.1.1.1",
                    "172.32.0.1",
                    "100.128.0.1",
                    "198.20.0.1",
                    "192.0.1.1",
                    "2606:4700::1111",
                    "64:ff9b::101:101",
                    "2002:101:101::1",
                ],
            ),
        ] {
            for host in hosts {
                assert_eq!(Reach::of_host(host), Some(reach), "{host}");
            }
        }
        for host in ["login.example", "localhost.example", "127.0.0.1.example", "notlocalhost"] {
            assert_eq!(Reach::of_host(host), None, "{host}");
        }
    }
}
