//! Finds RSA keys that attackers can factor, because a chip of Infineon made them (ROCA, CVE-2017-15361).
//!
//! The primes of these chips are powers of 65537 modulo a product of small primes, and so is their product, the modulus
//! (Nemec et al., "The Return of Coppersmith's Attack", CCS 2017, section 2). For another modulus that is true with a
//! probability below 2^-100. Pure.

const GENERATOR: u32 = 65537;

/// The product of these and 2 is what the chips use for keys of 512 bits. For longer keys, they use these and more
/// primes.
const PRIMES: [u32; 38] = [
    3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109,
    113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
];

/// Returns true if the modulus (big-endian) is a power of 65537 modulo the product of the primes.
pub(super) fn is_from_weak_chip(modulus: &[u8]) -> bool {
    let mut exponents = [(0, 1); PRIMES.len()];
    for (place, prime) in PRIMES.into_iter().enumerate() {
        let Some((exponent, order)) = discrete_logarithm(remainder(modulus, prime), prime) else { return false };
        // One exponent must fit all primes (Chinese remainder theorem).
        let fits = |&(other, its_order): &(u32, u32)| {
            let common = gcd(order, its_order);
            exponent % common == other % common
        };
        if !exponents[..place].iter().all(fits) {
            return false;
        }
        exponents[place] = (exponent, order);
    }
    true
}

/// The exponent of `power` to the base 65537 modulo a prime, and after how many powers they repeat.
fn discrete_logarithm(power: u32, prime: u32) -> Option<(u32, u32)> {
    let mut found = None;
    let mut current = 1;
    for exponent in 0..prime {
        if current == power && found.is_none() {
            found = Some(exponent);
        }
        current = current * GENERATOR % prime;
        if current == 1 {
            return found.map(|found| (found, exponent + 1));
        }
    }
    None
}

fn remainder(number: &[u8], divisor: u32) -> u32 {
    number.iter().fold(0, |rest, byte| (rest << 8 | u32::from(*byte)) % divisor)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::secret;

    /// `number * factor + summand`, big-endian.
    fn multiplied(number: &[u8], factor: u32, summand: u32) -> Vec<u8> {
        let mut carry = u64::from(summand);
        let mut result = Vec::new();
        for byte in number.iter().rev() {
            carry += u64::from(*byte) * u64::from(factor);
            result.push(carry as u8);
            carry >>= 8;
        }
        while carry > 0 {
            result.push(carry as u8);
            carry >>= 8;
        }
        result.reverse();
        result
    }

    /// A number of 2048 bits with this remainder modulo 2 and all the primes.
    fn with_remainder(remainder: u32) -> Vec<u8> {
        let mut number = PRIMES.iter().fold(vec![2], |product, prime| multiplied(&product, *prime, 0));
        while number.len() < 256 {
            number = multiplied(&number, u32::from_be_bytes(secret::random()) >> 8 | 1, 0);
        }
        multiplied(&number, 1, remainder)
    }

    #[test]
    fn powers_of_65537_are_found() {
        for power in [1, GENERATOR] {
            assert!(is_from_weak_chip(&with_remainder(power)));
        }
    }

    /// The exponents of two primes are compared modulo what their orders have in common.
    #[test]
    fn orders_have_their_greatest_divisor_in_common() {
        assert_eq!([gcd(12, 18), gcd(18, 12), gcd(7, 30), gcd(4, 0)], [6, 6, 1, 4]);
    }

    #[test]
    fn other_numbers_are_not_found() {
        // Each is a power of 65537 modulo most of the primes, but not the same one modulo all of them.
        for remainder in [3, 5, GENERATOR - 2, GENERATOR + 2, GENERATOR + 30] {
            assert!(!is_from_weak_chip(&with_remainder(remainder)), "{remainder}");
        }
        for _ in 0..1000 {
            assert!(!is_from_weak_chip(&secret::random::<256>()));
        }
        assert!(!is_from_weak_chip(&[]));
    }
}
