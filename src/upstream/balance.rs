//! Which server a request goes to. Pure: shares and loads come in, an index goes out.
//!
//! One set of servers is open to a request: those that take requests, were not tried for it yet and, on their way back, win
//! their toss. If there is none, all that were not tried are: that every server of a group is ill is less likely than that
//! the judgement is wrong, and a refusal for certain helps nobody.

/// A server's part of the requests that it would get: nothing, all, or between while it returns.
pub(super) const FULL: u16 = 1000;

/// Server i is in it if bit i is set.
pub(super) type Set = u128;

/// The servers that a request may go to. `seed` decides the tosses: the same seed, the same tosses.
pub(super) fn open(names: &[u64], tried: Set, seed: u64, share: impl Fn(usize) -> u16) -> Set {
    let (mut open, mut untried) = (0, 0);
    for (at, name) in names.iter().enumerate() {
        let bit = 1 << at;
        if tried & bit != 0 {
            continue;
        }
        untried |= bit;
        let share = share(at);
        // As the share rises, whoever won before wins again: keys return one after the other and never go back and forth.
        if share == FULL || mix(seed ^ name) % u64::from(FULL) < u64::from(share) {
            open |= bit;
        }
    }
    if open == 0 { untried } else { open }
}

/// Those of a set, of `count` servers, for which this holds.
pub(super) fn only(set: Set, count: usize, holds: impl Fn(usize) -> bool) -> Set {
    (0..count).filter(|at| set & (1 << at) != 0 && holds(*at)).fold(0, |only, at| only | 1 << at)
}

/// One after the other. `open` is not empty.
pub(super) fn in_turn(open: Set, ticket: u64) -> usize {
    nth(open, ticket % u64::from(open.count_ones().max(1)))
}

/// Of two that are drawn, the one with more places free (power of two choices). `open` is not empty.
pub(super) fn less_busy(open: Set, ticket: u64, free: impl Fn(usize) -> usize) -> usize {
    let count = u64::from(open.count_ones().max(1));
    let drawn = mix(ticket);
    let first = drawn % count;
    // Never the first once more, unless it is alone.
    let second = (first + 1 + (drawn >> 32) % (count - 1).max(1)) % count;
    let (first, second) = (nth(open, first), nth(open, second));
    if free(second) > free(first) { second } else { first }
}

/// The highest of all servers' draws for this key (rendezvous hashing): when one leaves, its keys are spread over the
/// others, and no other key moves. `open` is not empty.
pub(super) fn by_key(open: Set, key: u64, names: &[u64]) -> usize {
    let members = names.iter().enumerate().filter(|(at, _)| open & (1 << at) != 0);
    members.max_by_key(|(_, name)| mix(key.rotate_left(32) ^ *name)).map_or(0, |(at, _)| at)
}

/// The n-th member, from 0.
fn nth(mut set: Set, n: u64) -> usize {
    for _ in 0..n {
        set &= set.wrapping_sub(1);
    }
    set.trailing_zeros() as usize
}

/// 64-bit FNV-1a, and stirred. The same on every gateway and in every version, so that gateways side by side agree.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// The finish of SplitMix64: every bit of the input moves every bit of the output.
pub(super) fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<u64> {
        (0..count).map(|at| hash(format!("http://10.0.0.{at}:80").as_bytes())).collect()
    }

    #[test]
    fn those_that_are_out_or_were_tried_are_not_open() {
        let names = names(4);
        let shares = [FULL, 0, FULL, FULL];
        assert_eq!(open(&names, 0, 7, |at| shares[at]), 0b1101);
        assert_eq!(open(&names, 0b0001, 7, |at| shares[at]), 0b1100);
        assert_eq!(open(&names, 0b1101, 7, |at| shares[at]), 0b0010, "rather one that is out than none");
        assert_eq!(open(&names, 0, 7, |_| 0), 0b1111, "if all are out, all are in");
        assert_eq!(open(&names, 0b1111, 7, |_| FULL), 0, "nobody is tried twice");
    }

    #[test]
    fn a_share_is_the_part_of_the_requests_that_it_says() {
        let names = names(3);
        for share in [50, 250, 500, 900] {
            let won = (0..100_000).filter(|seed| open(&names, 0, mix(*seed), |at| [share, FULL, FULL][at]) & 1 == 1);
            let part = won.count() as f64 / 100_000.0;
            assert!((part - f64::from(share) / 1000.0).abs() < 0.01, "{share}: {part}");
        }
    }

    #[test]
    fn turns_are_even_also_while_one_is_out() {
        for open in [0b111_u128, 0b101, 0b1011_0110, Set::MAX] {
            let mut counts = vec![0; 128];
            let members = u64::from(open.count_ones());
            for ticket in 0..members * 10 {
                counts[in_turn(open, ticket)] += 1;
            }
            for (at, count) in counts.iter().enumerate() {
                assert_eq!(*count, if open & (1 << at) == 0 { 0 } else { 10 }, "{open:b} {at}");
            }
        }
    }

    #[test]
    fn of_two_the_less_busy_one_is_taken() {
        let free = [9, 1, 5, 0];
        let mut counts = [0; 4];
        for ticket in 0..10_000 {
            counts[less_busy(0b1111, ticket, |at| free[at])] += 1;
        }
        assert_eq!(counts[3], 0, "the busiest loses against each other");
        assert!(counts[0] > counts[2] && counts[2] > counts[1] && counts[1] > 1000, "{counts:?}");
        assert_eq!(less_busy(0b0100, 5, |at| free[at]), 2, "alone");
        let alike = (0..10_000).filter(|ticket| less_busy(0b11, *ticket, |_| 4) == 0).count();
        assert!((4_000..6_000).contains(&alike), "equals share: {alike}");
    }

    #[test]
    fn when_a_server_leaves_its_keys_are_spread_and_no_other_key_moves() {
        let names = names(5);
        let all = 0b11111;
        let (mut counts, mut heirs) = ([0; 5], [0; 5]);
        for key in (0..50_000).map(|key: u32| hash(&key.to_le_bytes())) {
            let (before, after) = (by_key(all, key, &names), by_key(all & !0b00100, key, &names));
            counts[before] += 1;
            if before == 2 {
                heirs[after] += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
        assert!([0, 1, 3, 4].iter().all(|at| (2_000..3_000).contains(&heirs[*at])), "{heirs:?}");
    }

    /// A hash that changes from one version to the next would move every key at once.
    #[test]
    fn the_hash_is_what_it_was() {
        assert_eq!((hash(b""), hash(b"alice")), (14_087_677_454_934_409_008, 1_874_745_765_387_981_941));
    }
}
