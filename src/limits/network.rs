//! The networks that an address counts for.
//!
//! A customer with IPv6 has a whole network: a /64, often a /56, seldom a /48 (RFC 6177). What is counted for one
//! address is counted for each of these, so that a customer with a large network has not as many times the limit as it
//! has networks of size /64: 256 or 65,536. A larger network may have more, because it may also be that of many
//! customers with a /64 each.

use std::net::IpAddr;

use crate::limits::limiter::Key;

/// How many networks an address can count for.
pub const LEVELS: usize = 3;

/// The networks of an IPv6 address by prefix length. An IPv4 address is its own network, with the first weight.
const PREFIXES: [u32; LEVELS] = [64, 56, 48];

/// How many times the limit of one address each network has.
pub const WEIGHTS: [u32; LEVELS] = [1, 2, 4];

/// One network of an address.
#[derive(Clone, Copy)]
pub struct Network {
    pub key: Key,
    /// It has this many times the limit of one address.
    pub weight: usize,
    /// 0 for an address or a /64, and higher for larger networks.
    pub level: usize,
}

/// Returns the networks of an address, the smallest first.
pub fn networks(address: IpAddr) -> impl Iterator<Item = Network> {
    let bits = match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(v6.to_bits()),
    };
    let levels = if bits.is_some() { LEVELS } else { 1 };
    (0..levels).map(move |level| {
        let prefix = PREFIXES[level];
        let key = match bits {
            // Without the length, a /56 would have the key of its first /64.
            Some(bits) if level > 0 => Key::from(bits >> (128 - prefix) << (128 - prefix) | u128::from(prefix)),
            _ => Key::from(address),
        };
        Network { key, weight: WEIGHTS[level] as usize, level }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many networks two addresses have in common.
    fn shared(one: &str, other: &str) -> usize {
        let [one, other] = [one, other].map(|text| networks(text.parse().expect("an address")));
        let others: Vec<_> = other.map(|network| (network.key, network.weight)).collect();
        one.filter(|network| others.contains(&(network.key, network.weight))).count()
    }

    #[test]
    fn addresses_share_networks_by_their_prefix() {
        assert_eq!(shared("192.0.2.1", "192.0.2.2"), 0);
        assert_eq!(shared("192.0.2.1", "::ffff:192.0.2.1"), 1);
        assert_eq!(shared("2001:db8::1", "2001:db8::2"), 3, "one /64");
        assert_eq!(shared("2001:db8::1", "2001:db8:0:ff::1"), 2, "one /56");
        assert_eq!(shared("2001:db8::1", "2001:db8:0:100::1"), 1, "one /48");
        assert_eq!(shared("2001:db8::1", "2001:db8:1::1"), 0);
    }
}
