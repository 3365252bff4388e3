//! Random choices that a seed repeats.

use std::env;
use std::time::Duration;

use bearward::types::secret;

/// The seed of this run: `BEARWARD_SEED` repeats that of an earlier one. Prints it with the name of the test.
pub fn seed(test: &str) -> u64 {
    let seed = match env::var("BEARWARD_SEED") {
        Ok(seed) => seed.parse().unwrap_or_else(|error| panic!("BEARWARD_SEED={seed}: {error}")),
        Err(_) => u64::from(u16::from_be_bytes(secret::random())),
    };
    eprintln!("{test}: BEARWARD_SEED={seed}");
    seed
}

/// The pseudo-random generator SplitMix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// A generator for a part of a test. It does not depend on how many numbers another part takes.
    pub fn part(&self, name: &str) -> Random {
        // FNV-1a.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(name.bytes().fold(self.0 ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % count as u64).expect("is below a usize")
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(usize::try_from(count).expect("is small")) == 0
    }

    /// A time of up to `most`, in milliseconds.
    pub fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(usize::try_from(most).expect("is small") + 1) as u64)
    }
}
