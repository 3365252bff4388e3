//! Revocations that the log has lost and this gateway remembers, until they are written again. No I/O.
//!
//! A gateway that starts on such a log accepts what was revoked. So what revokes most is written first: watermarks,
//! then sessions, which could be refreshed, then single tokens; of each kind, what lives longest.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use super::recent::{Missing, without_time};
use crate::tokens::family::revocation::{Revocation, Revoked};

/// Maximum number of entries of one statement.
const PAGE: usize = 512;
/// A statement that takes longer delays the revocations that wait for it.
const SLOW: Duration = Duration::from_millis(250);
/// With fewer entries, a statement mostly costs its commit.
const MIN_PAGE: usize = 64;

pub(super) struct Lost {
    missing: Missing,
    /// The order in which they are written. Also has what the log has again.
    order: VecDeque<Revoked>,
    /// Number of entries of the next statement.
    page: usize,
}

impl Lost {
    pub(super) fn new() -> Self {
        Lost { missing: Missing::default(), order: VecDeque::new(), page: PAGE }
    }

    pub(super) fn len(&self) -> usize {
        self.missing.len()
    }

    pub(super) fn add(&mut self, mut lost: Vec<Revocation>) {
        lost.sort_by_key(|each| (rank(&each.what), Reverse(each.until)));
        for revocation in lost {
            let name = without_time(&revocation.what);
            if self.missing.add(revocation) {
                self.order.push_back(name);
            }
        }
    }

    /// The log has these entries: another gateway, or this one, has written them.
    pub(super) fn on_poll(&mut self, entries: &[Revocation]) {
        entries.iter().for_each(|each| self.missing.found(each));
    }

    /// The entries of the next statement. Give them to [`Lost::written`] or to [`Lost::failed`].
    pub(super) fn next(&mut self) -> Vec<Revocation> {
        let mut page = Vec::new();
        while page.len() < self.page {
            let Some(name) = self.order.pop_front() else { break };
            page.extend(self.missing.get(&name).cloned());
        }
        page
    }

    /// A statement was committed, and took so long. `is_written`: for each entry, if it was written; others come again.
    /// Returns how many were written.
    pub(super) fn written(&mut self, page: &[Revocation], is_written: &[bool], took: Duration) -> usize {
        if took > SLOW {
            self.page = (self.page / 2).max(MIN_PAGE.min(self.page));
        } else if took < SLOW / 2 {
            self.page = (2 * self.page).min(PAGE);
        }
        let mut count = 0;
        for (revocation, is_written) in page.iter().zip(is_written) {
            if *is_written {
                self.missing.found(revocation);
                count += 1;
            }
            let name = without_time(&revocation.what);
            if self.missing.get(&name).is_some() {
                self.order.push_back(name);
            }
        }
        count
    }

    /// A statement failed. The next one is smaller, for a database that is slow. An entry that fails alone lets all
    /// others pass.
    pub(super) fn failed(&mut self, page: &[Revocation]) {
        let names = page.iter().map(|each| without_time(&each.what));
        match page.len() {
            1 => self.order.extend(names),
            _ => names.rev().for_each(|name| self.order.push_front(name)),
        }
        self.page = (page.len() / 2).max(1);
    }
}

fn rank(what: &Revoked) -> u8 {
    match what {
        Revoked::Everything { .. } | Revoked::Issuer { .. } | Revoked::Subject { .. } | Revoked::Client { .. } => 0,
        Revoked::Family(_) | Revoked::Session { .. } => 1,
        Revoked::Token { .. } => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::UnixTime;
    use crate::types::ids::TokenId;

    const QUICK: Duration = Duration::from_millis(1);

    fn token(number: u64, until: u64) -> Revocation {
        let what = Revoked::Token { issuer: String::new(), jti: number.to_string() };
        Revocation { sequence: number, what, at: UnixTime::default(), until: UnixTime::from_secs(until) }
    }

    fn lost(revocations: Vec<Revocation>) -> Lost {
        let mut lost = Lost::new();
        lost.add(revocations);
        lost
    }

    fn sequences(page: &[Revocation]) -> Vec<u64> {
        page.iter().map(|each| each.sequence).collect()
    }

    #[test]
    fn what_revokes_most_and_for_longest_is_written_first() {
        let family = Revocation { what: Revoked::Family(TokenId::from_bytes([1; 16])), ..token(3, 5) };
        let everything = Revocation { what: Revoked::Everything { not_after: UnixTime::default() }, ..token(4, 1) };
        let mut lost = lost(vec![token(1, 10), token(2, 20), family, everything]);
        assert_eq!(sequences(&lost.next()), [4, 3, 2, 1]);
    }

    #[test]
    fn what_was_written_by_another_gateway_is_not_written() {
        let mut lost = lost(vec![token(1, 10), token(2, 20), token(3, 30)]);
        lost.on_poll(&[token(2, 20)]);
        assert_eq!((sequences(&lost.next()), lost.len()), (vec![3, 1], 2));
    }

    #[test]
    fn progress_is_kept_page_by_page() {
        let mut lost = lost((0..2 * PAGE as u64 + 1).map(|number| token(number, 9)).collect());
        for (size, left) in [(PAGE, PAGE + 1), (PAGE, 1), (1, 0), (0, 0)] {
            let page = lost.next();
            assert_eq!(lost.written(&page, &vec![true; page.len()], QUICK), size);
            assert_eq!(lost.len(), left);
        }
    }

    #[test]
    fn pages_become_smaller_while_they_delay_others() {
        let mut lost = lost((0..4_000).map(|number| token(number, 9)).collect());
        let mut sizes = Vec::new();
        for millis in [251, 251, 251, 251, 250, 125, 124, 124] {
            let page = lost.next();
            sizes.push(page.len());
            lost.written(&page, &vec![true; page.len()], Duration::from_millis(millis));
        }
        assert_eq!(sizes, [512, 256, 128, 64, 64, 64, 64, 128]);
    }

    #[test]
    fn what_is_locked_comes_again_after_the_others() {
        let mut lost = lost((0..3).map(|number| token(number, 9)).collect());
        let page = lost.next();
        assert_eq!((lost.written(&page, &[true, false, true], QUICK), lost.len()), (2, 1));
        assert_eq!(sequences(&lost.next()), [1]);
    }

    #[test]
    fn statements_that_fail_become_smaller_until_one_entry_stands_alone() {
        let mut lost = lost((0..4).map(|number| token(number, 9)).collect());
        // The database rejects the first one.
        let mut sent = Vec::new();
        let mut written = Vec::new();
        while written.len() < 3 {
            let page = lost.next();
            sent.push(page.len());
            if sequences(&page).contains(&0) {
                lost.failed(&page)
            } else {
                lost.written(&page, &vec![true; page.len()], QUICK);
                written.extend(sequences(&page));
            }
        }
        assert_eq!((sent, written, lost.len()), (vec![4, 2, 1, 1, 2], vec![1, 2, 3], 1));
    }
}
