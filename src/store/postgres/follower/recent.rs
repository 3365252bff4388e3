//! The revocations of the last hour, to find out which of them a database has lost.
//!
//! A failover to a standby that lags, or a restored backup, takes revocations back that were reported as durable.
//! Revocations only add up, so that each gateway can write back what it remembers.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// A standby does not lag for so long.
const SPAN: Duration = Duration::from_hours(1);
/// Maximum number of remembered revocations, some 30 MB. The oldest are forgotten first.
const MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Recent {
    /// By what is revoked, without the time of a watermark: the highest one counts. With the time of the memory.
    by_what: HashMap<Revoked, (BootTime, Revocation)>,
    /// Also has what was remembered again since.
    order: VecDeque<(BootTime, Revoked)>,
}

impl Recent {
    pub(super) fn remember(&mut self, revocation: &Revocation, now: BootTime) {
        self.forget_old(now);
        let name = without_time(&revocation.what);
        if self.by_what.get(&name).is_none_or(|(_, known)| !covers(known, revocation)) {
            self.by_what.insert(name.clone(), (now, revocation.clone()));
            self.order.push_back((now, name));
        }
    }

    fn forget_old(&mut self, now: BootTime) {
        let is_old = |(at, _): &mut (BootTime, Revoked)| now.since(*at) > SPAN;
        while let Some((at, name)) = self.order.pop_front_if(is_old).or_else(|| self.beyond_maximum()) {
            if self.by_what.get(&name).is_some_and(|(remembered, _)| *remembered == at) {
                self.by_what.remove(&name);
            }
        }
    }

    fn beyond_maximum(&mut self) -> Option<(BootTime, Revoked)> {
        (self.order.len() >= MAX).then(|| self.order.pop_front()).flatten()
    }

    /// What a log must contain. Remove each of its entries with [`Missing::found`]; the rest is lost.
    pub(super) fn expected(&self) -> Missing {
        Missing(self.by_what.iter().map(|(name, (_, revocation))| (name.clone(), revocation.clone())).collect())
    }
}

/// The revocations that were not found in the log yet.
pub(super) struct Missing(HashMap<Revoked, Revocation>);

impl Missing {
    pub(super) fn found(&mut self, revocation: &Revocation) {
        let name = without_time(&revocation.what);
        if self.0.get(&name).is_some_and(|expected| covers(revocation, expected)) {
            self.0.remove(&name);
        }
    }

    /// The lost revocations that still matter, in the order in which they were made.
    pub(super) fn lost(self, now: UnixTime) -> Vec<Revocation> {
        let mut lost: Vec<Revocation> = self.0.into_values().filter(|each| each.until > now).collect();
        lost.sort_by_key(|each| (each.at, each.sequence));
        lost
    }
}

/// Returns true if everything that `other` revokes is revoked by `revocation`.
fn covers(revocation: &Revocation, other: &Revocation) -> bool {
    revocation.what.not_after() >= other.what.not_after()
}

fn without_time(what: &Revoked) -> Revoked {
    what.clone().with_not_after(UnixTime::default())
}
