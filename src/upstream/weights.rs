//! Load balancing by weight: `upstream.weights`. Pure functions, as in [`super::balance`], which serves upstreams with
//! equal weights.

use super::balance::{Set, mix};

/// The weight of each server. At least one is not 0.
pub(super) struct Weights {
    of_servers: Vec<u64>,
    /// The servers with weight 0, which get no requests.
    pub(super) drained: Set,
}

impl Weights {
    /// `None` if all servers have the same weight.
    pub(super) fn new(weights: &[usize]) -> Option<Self> {
        let first = weights.first()?;
        if weights.iter().all(|weight| weight == first) {
            return None;
        }
        let drained = weights.iter().enumerate().filter(|(_, weight)| **weight == 0);
        let drained = drained.fold(0, |drained, (at, _)| drained | 1 << at);
        Some(Weights { of_servers: weights.iter().map(|weight| *weight as u64).collect(), drained })
    }

    /// Round robin: in as many requests as all weights together, each server gets as many as its weight, spread over
    /// them. `set` is not empty.
    pub(super) fn round_robin(&self, set: Set, ticket: u64) -> usize {
        let total = self.total(set).max(1);
        self.at(set, ticket % total * stride(total) % total)
    }

    /// Draws two servers by weight and returns the one with fewer requests in flight for its weight. `set` is not
    /// empty.
    pub(super) fn least_requests(&self, set: Set, ticket: u64, in_flight: impl Fn(usize) -> usize) -> usize {
        let drawn = mix(ticket);
        let first = self.at(set, drawn % self.total(set).max(1));
        let others = set & !(1 << first);
        let left = self.total(others);
        if left == 0 {
            return first;
        }
        let second = self.at(others, mix(drawn) % left);
        let load = |at: usize, other: usize| in_flight(at) as u64 * self.of_servers[other];
        if load(second, first) < load(first, second) { second } else { first }
    }

    /// Rendezvous hashing: a server takes part once for each unit of its weight. If a weight changes, only keys of this
    /// server come or go. With weight 1, a server has the keys that it has without weights. `set` is not empty.
    pub(super) fn by_key(&self, set: Set, key: u64, server_hashes: &[u64]) -> usize {
        let key = key.rotate_left(32);
        let highest = |at: usize| {
            let units = (0..self.of_servers[at]).map(|unit| mix(key ^ unit_hash(server_hashes[at], unit)));
            units.max().map(|hash| (hash, at))
        };
        self.members(set).filter_map(highest).max().map_or(0, |(_, at)| at)
    }

    fn members(&self, set: Set) -> impl Iterator<Item = usize> {
        (0..self.of_servers.len()).filter(move |at| set & (1 << at) != 0)
    }

    fn total(&self, set: Set) -> u64 {
        self.members(set).map(|at| self.of_servers[at]).sum()
    }

    /// The server of this unit, of all units of the servers in `set`.
    fn at(&self, set: Set, mut unit: u64) -> usize {
        let mut last = 0;
        for at in self.members(set) {
            if unit < self.of_servers[at] {
                return at;
            }
            unit -= self.of_servers[at];
            last = at;
        }
        last
    }
}

/// The first unit has the hash of the server.
fn unit_hash(server_hash: u64, unit: u64) -> u64 {
    if unit == 0 { server_hash } else { mix(server_hash ^ mix(unit)) }
}

/// About three fifths of `total` (the golden ratio spreads best), and without a common divisor: then all units have
/// their turn, and those of one server do not follow each other.
fn stride(total: u64) -> u64 {
    let nearest = (total * 618 / 1000).max(1);
    (nearest..total).find(|stride| gcd(*stride, total) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::balance;
    use super::*;

    fn weights(list: &[usize]) -> Weights {
        Weights::new(list).expect("different weights")
    }

    fn hashes(count: usize) -> Vec<u64> {
        (0..count).map(|at| balance::hash(format!("http://10.0.0.{at}:80").as_bytes())).collect()
    }

    #[test]
    fn equal_weights_are_none() {
        assert!(Weights::new(&[]).is_none() && Weights::new(&[3, 3]).is_none());
        assert_eq!(weights(&[0, 1, 0]).drained, 0b101);
    }

    #[test]
    fn each_server_gets_as_many_requests_as_its_weight() {
        for (list, set) in [(&[5, 1, 1][..], 0b111), (&[3, 0, 2], 0b101), (&[100, 1], 0b11), (&[2, 3, 4], 0b110)] {
            let weights = weights(list);
            let total = weights.total(set);
            let mut counts = vec![0; list.len()];
            for ticket in 1000..1000 + 2 * total {
                counts[weights.round_robin(set, ticket)] += 1;
            }
            for (at, count) in counts.iter().enumerate() {
                assert_eq!(*count, if set & (1 << at) == 0 { 0 } else { 2 * list[at] }, "{list:?} {set:b} {at}");
            }
        }
    }

    #[test]
    fn the_requests_of_a_server_are_spread() {
        let weights = weights(&[5, 5, 1]);
        let served: Vec<usize> = (0..11).map(|ticket| weights.round_robin(0b111, ticket)).collect();
        let longest = served.chunk_by(|one, next| one == next).map(<[usize]>::len).max();
        assert!(longest <= Some(2), "{served:?}");
    }

    #[test]
    fn requests_in_flight_count_for_the_weight() {
        let weights = weights(&[4, 1]);
        let counts = |in_flight: [usize; 2]| {
            let served = (0..10_000).map(|ticket| weights.least_requests(0b11, ticket, |at| in_flight[at]));
            served.filter(|at| *at == 0).count()
        };
        assert!((7_700..8_300).contains(&counts([0, 0])), "by weight: {}", counts([0, 0]));
        assert!((7_700..8_300).contains(&counts([4, 1])), "equal loads");
        assert_eq!((counts([5, 1]), counts([3, 1])), (0, 10_000));
        assert_eq!(weights.least_requests(0b10, 7, |_| 9), 1, "the only one");
    }

    #[test]
    fn keys_are_spread_by_weight_and_only_those_of_the_server_move() {
        let hashes = hashes(3);
        let before = weights(&[1, 1, 2]);
        let after = weights(&[1, 1, 4]);
        let mut counts = [0; 3];
        for key in (0..30_000).map(|key: u32| balance::hash(&key.to_le_bytes())) {
            let old = before.by_key(0b111, key, &hashes);
            let new = after.by_key(0b111, key, &hashes);
            counts[new] += 1;
            assert!(new == old || new == 2, "a key goes only to the server with more weight");
            let without = before.by_key(0b011, key, &hashes);
            assert_eq!(without, balance::by_key(0b011, key, &hashes), "weight 1 is as without weights");
            assert!(old == 2 || old == without, "only keys of the missing server move");
        }
        for (count, part) in counts.iter().zip([1.0, 1.0, 4.0]) {
            assert!((f64::from(*count) / 30_000.0 - part / 6.0).abs() < 0.01, "{counts:?}");
        }
    }

    #[test]
    fn a_drained_server_gets_nothing() {
        let weights = weights(&[0, 1, 3]);
        let hashes = hashes(3);
        for ticket in 0..1000 {
            let set = 0b111;
            assert_ne!(weights.round_robin(set, ticket), 0);
            assert_ne!(weights.least_requests(set, ticket, |at| usize::from(at > 0)), 0);
            assert_ne!(weights.by_key(set, mix(ticket), &hashes), 0);
        }
    }
}
