//! Load balancing: which server a request goes to. Pure functions from shares and loads to an index.
//!
//! The candidates for a request are the servers in rotation that were not tried for it yet. A server in slow start is a
//! candidate for its share of the requests. If there is no candidate, all servers that were not tried become
//! candidates: it is less likely that every server is down than that the checks are wrong, and a rejected request would
//! fail for certain.

/// The share of a server in full rotation, in thousandths. It is 0 for a server out of rotation, and rises during slow
/// start.
pub(super) const FULL_WEIGHT: u16 = 1000;

/// A set of servers: bit i stands for server i.
pub(super) type Set = u128;

/// The candidates for a request. The same `seed` draws the same servers in slow start.
pub(super) fn candidates(server_hashes: &[u64], tried: Set, seed: u64, share: impl Fn(usize) -> u16) -> Set {
    let mut candidates = 0;
    let mut untried = 0;
    for (at, server_hash) in server_hashes.iter().enumerate() {
        let bit = 1 << at;
        if tried & bit != 0 {
            continue;
        }
        untried |= bit;
        let share = share(at);
        // A seed that was below a smaller share is below a larger one too, so during slow start a key moves back once
        // and stays.
        if share == FULL_WEIGHT || mix(seed ^ server_hash) % u64::from(FULL_WEIGHT) < u64::from(share) {
            candidates |= bit;
        }
    }
    if candidates == 0 { untried } else { candidates }
}

/// The members of `set`, of `count` servers in all, for which `predicate` is true.
pub(super) fn filter(set: Set, count: usize, predicate: impl Fn(usize) -> bool) -> Set {
    (0..count).filter(|at| set & (1 << at) != 0 && predicate(*at)).fold(0, |filtered, at| filtered | 1 << at)
}

/// Round robin. `set` is not empty.
pub(super) fn round_robin(set: Set, ticket: u64) -> usize {
    nth(set, ticket % u64::from(set.count_ones().max(1)))
}

/// Draws two servers and returns the one with more free slots (power of two choices). `set` is not empty.
pub(super) fn least_requests(set: Set, ticket: u64, free: impl Fn(usize) -> usize) -> usize {
    let count = u64::from(set.count_ones().max(1));
    let drawn = mix(ticket);
    let first = drawn % count;
    // Never the first again, unless it is the only one.
    let second = (first + 1 + (drawn >> 32) % (count - 1).max(1)) % count;
    let first = nth(set, first);
    let second = nth(set, second);
    if free(second) > free(first) { second } else { first }
}

/// Rendezvous hashing: the server with the highest hash for this key. When a server leaves, its keys are spread over
/// the others, and no other key moves. `set` is not empty.
pub(super) fn by_key(set: Set, key: u64, server_hashes: &[u64]) -> usize {
    let members = server_hashes.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0);
    members.max_by_key(|(_, server_hash)| mix(key.rotate_left(32) ^ *server_hash)).map_or(0, |(at, _)| at)
}

/// Member number `n` of the set, counted from 0.
fn nth(mut set: Set, n: u64) -> usize {
    for _ in 0..n {
        set &= set.wrapping_sub(1);
    }
    set.trailing_zeros() as usize
}

/// 64-bit FNV-1a, then [`mix`]. It must not change between versions, so that several gateways send a key to the same
/// server.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// The finalizer of SplitMix64: every bit of the input affects every bit of the output.
pub(super) fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(count: usize) -> Vec<u64> {
        (0..count).map(|at| hash(format!("http://10.0.0.{at}:80").as_bytes())).collect()
    }

    #[test]
    fn servers_out_of_rotation_or_tried_are_no_candidates() {
        let hashes = hashes(4);
        let shares = [FULL_WEIGHT, 0, FULL_WEIGHT, FULL_WEIGHT];
        assert_eq!(candidates(&hashes, 0, 7, |at| shares[at]), 0b1101);
        assert_eq!(candidates(&hashes, 0b0001, 7, |at| shares[at]), 0b1100);
        assert_eq!(
            candidates(&hashes, 0b1101, 7, |at| shares[at]),
            0b0010,
            "a server out of rotation rather than none"
        );
        assert_eq!(candidates(&hashes, 0, 7, |_| 0), 0b1111, "if all are out of rotation, all are candidates");
        assert_eq!(candidates(&hashes, 0b1111, 7, |_| FULL_WEIGHT), 0, "no server is tried twice");
    }

    #[test]
    fn a_server_in_slow_start_gets_its_share() {
        let hashes = hashes(3);
        for share in [50, 250, 500, 900] {
            let drawn = (0..100_000)
                .filter(|seed| candidates(&hashes, 0, mix(*seed), |at| [share, FULL_WEIGHT, FULL_WEIGHT][at]) & 1 == 1);
            let part = drawn.count() as f64 / 100_000.0;
            assert!((part - f64::from(share) / 1000.0).abs() < 0.01, "{share}: {part}");
        }
    }

    #[test]
    fn round_robin_is_even_also_while_a_server_is_missing() {
        for set in [0b111_u128, 0b101, 0b1011_0110, Set::MAX] {
            let mut counts = vec![0; 128];
            let members = u64::from(set.count_ones());
            for ticket in 0..members * 10 {
                counts[round_robin(set, ticket)] += 1;
            }
            for (at, count) in counts.iter().enumerate() {
                assert_eq!(*count, if set & (1 << at) == 0 { 0 } else { 10 }, "{set:b} {at}");
            }
        }
    }

    #[test]
    fn the_server_with_more_free_slots_is_taken() {
        let free = [9, 1, 5, 0];
        let mut counts = [0; 4];
        for ticket in 0..10_000 {
            counts[least_requests(0b1111, ticket, |at| free[at])] += 1;
        }
        assert_eq!(counts[3], 0, "the busiest is never taken");
        assert!(counts[0] > counts[2] && counts[2] > counts[1] && counts[1] > 1000, "{counts:?}");
        assert_eq!(least_requests(0b0100, 5, |at| free[at]), 2, "the only one");
        let first = (0..10_000).filter(|ticket| least_requests(0b11, *ticket, |_| 4) == 0).count();
        assert!((4_000..6_000).contains(&first), "equal servers share evenly: {first}");
    }

    #[test]
    fn only_the_keys_of_a_server_that_leaves_move() {
        let hashes = hashes(5);
        let all = 0b11111;
        let mut counts = [0; 5];
        let mut moved = [0; 5];
        for key in (0..50_000).map(|key: u32| hash(&key.to_le_bytes())) {
            let before = by_key(all, key, &hashes);
            let after = by_key(all & !0b00100, key, &hashes);
            counts[before] += 1;
            if before == 2 {
                moved[after] += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
        assert!([0, 1, 3, 4].iter().all(|at| (2_000..3_000).contains(&moved[*at])), "{moved:?}");
    }

    /// Another hash would move every key at once when a gateway is upgraded.
    #[test]
    fn the_hash_has_not_changed() {
        assert_eq!((hash(b""), hash(b"alice")), (14_087_677_454_934_409_008, 1_874_745_765_387_981_941));
    }
}
