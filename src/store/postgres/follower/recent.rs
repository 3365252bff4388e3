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
pub(super) const SPAN: Duration = Duration::from_hours(1);
/// Maximum number of remembered revocations, some 30 MB. The oldest are forgotten first.
pub(super) const MAX: usize = 100_000;

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

    /// What a log must contain. Remove each of its entries with [`Missing::found`]; the rest is lost. What is older may
    /// have been swept, of which the clock of the database tells nothing: it may be wrong.
    pub(super) fn expected(&self, now: BootTime) -> Missing {
        let is_recent = |(_, (at, _)): &(&Revoked, &(BootTime, Revocation))| now.since(*at) <= SPAN;
        let recent = self.by_what.iter().filter(is_recent);
        Missing(recent.map(|(name, (_, revocation))| (name.clone(), revocation.clone())).collect())
    }
}

/// The revocations that were not found in the log yet.
#[derive(Default)]
pub(super) struct Missing(HashMap<Revoked, Revocation>);

impl Missing {
    /// Returns false if what is missing already covers it.
    pub(super) fn add(&mut self, revocation: Revocation) -> bool {
        let name = without_time(&revocation.what);
        let is_new = self.0.get(&name).is_none_or(|expected| !covers(expected, &revocation));
        if is_new {
            self.0.insert(name, revocation);
        }
        is_new
    }

    pub(super) fn merge(&mut self, other: Missing) {
        for revocation in other.0.into_values() {
            self.add(revocation);
        }
    }

    /// `what`: without its time.
    pub(super) fn get(&self, what: &Revoked) -> Option<&Revocation> {
        self.0.get(what)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn found(&mut self, revocation: &Revocation) {
        // At a start, nothing is missing.
        if self.0.is_empty() {
            return;
        }
        let name = without_time(&revocation.what);
        if self.0.get(&name).is_some_and(|expected| covers(revocation, expected)) {
            self.0.remove(&name);
        }
    }

    /// The lost revocations, in the order in which they were made.
    pub(super) fn lost(self) -> Vec<Revocation> {
        let mut lost: Vec<Revocation> = self.0.into_values().collect();
        lost.sort_by_key(|each| (each.at, each.sequence));
        lost
    }
}

/// Returns true if everything that `other` revokes is revoked by `revocation`.
fn covers(revocation: &Revocation, other: &Revocation) -> bool {
    revocation.what.not_after() >= other.what.not_after()
}

/// The name under which a revocation is remembered.
pub(super) fn without_time(what: &Revoked) -> Revoked {
    what.clone().with_not_after(UnixTime::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn everything(not_after: u64) -> Revocation {
        let what = Revoked::Everything { not_after: UnixTime::from_secs(not_after) };
        Revocation { sequence: not_after, what, at: UnixTime::from_secs(not_after), until: UnixTime::MAX }
    }

    fn token(number: u64) -> Revocation {
        let what = Revoked::Token { issuer: String::new(), jti: number.to_string() };
        Revocation { sequence: number, what, at: UnixTime::from_secs(number), until: UnixTime::MAX }
    }

    fn sequences(recent: &Recent, now: BootTime) -> Vec<u64> {
        recent.expected(now).lost().iter().map(|each| each.sequence).collect()
    }

    #[test]
    fn a_revocation_is_remembered_for_an_hour() {
        let mut recent = Recent::default();
        let start = BootTime::default();
        recent.remember(&everything(1), start);
        recent.remember(&token(2), start);
        // A later watermark replaces the first one, and an earlier one does not.
        recent.remember(&everything(3), start + SECOND);
        recent.remember(&everything(2), start + SECOND * 2);
        recent.remember(&token(4), start + SPAN);
        assert_eq!(sequences(&recent, start + SPAN), [2, 3, 4]);
        assert_eq!(sequences(&recent, start + SPAN + SECOND), [3, 4], "the others may have been swept");
        recent.remember(&token(5), start + SPAN + SECOND);
        assert_eq!(sequences(&recent, start + SPAN + SECOND), [3, 4, 5]);
        recent.remember(&token(6), start + SPAN + SECOND * 2);
        assert_eq!(sequences(&recent, start + SPAN + SECOND * 2), [4, 5, 6]);
    }

    #[test]
    fn beyond_the_maximum_the_oldest_are_forgotten() {
        let mut recent = Recent::default();
        let max = MAX as u64;
        (1..=max).for_each(|number| recent.remember(&token(number), BootTime::default()));
        assert_eq!((recent.by_what.len(), recent.order.len()), (MAX, MAX));
        recent.remember(&token(max + 1), BootTime::default());
        assert_eq!((recent.by_what.len(), sequences(&recent, BootTime::default()).first()), (MAX, Some(&2)));
    }
}
