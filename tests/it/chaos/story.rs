//! The story of a case: its seed decides on the order and the moments, and each step is reported on standard error.
//!
//! A seed repeats the decisions. The gateways and the database are real processes, so that two runs can still differ in
//! what they have in flight at a fault.

use std::fmt::Display;
use std::time::Instant;

use crate::support::random::{Random, seed};

pub(super) struct Story {
    random: Random,
    began: Instant,
}

impl Story {
    /// `BEARWARD_SEED` repeats the decisions of an earlier run.
    pub(super) fn begin(case: &str) -> Story {
        // Each case has its own numbers, so that one of them alone does what it did among all.
        Story { random: Random(seed(case)).part(case), began: Instant::now() }
    }

    pub(super) fn tell(&self, what: impl Display) {
        eprintln!("{:8.3} s  {what}", self.began.elapsed().as_secs_f64());
    }

    pub(super) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// For what runs beside the case.
    pub(super) fn part(&self, name: &str) -> Random {
        self.random.part(name)
    }

    /// One of these numbers, both ends included.
    pub(super) fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.random.below(most - least + 1)
    }
}
