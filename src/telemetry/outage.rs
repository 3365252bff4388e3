//! The outage of another server, for the journal: one message when it begins, and one when it ends, however many
//! requests notice it.

use std::time::Instant;

use parking_lot::Mutex;

use super::report_interval::ReportInterval;

/// What the journal says of one server. Clients choose requests, so they can choose between failures: a server may
/// reject a long token otherwise than a short one. Another failure of the same outage is therefore reported at most
/// once in ten seconds.
#[derive(Debug, Default)]
pub struct Outage {
    /// As the journal says. Empty if it says that the server responds.
    last_error: Mutex<String>,
    reports: ReportInterval,
}

/// What the journal does not say yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageChange {
    /// `others`: changes that were not reported before.
    Failed {
        others: u64,
    },
    Ended,
}

impl Outage {
    /// `error`: empty if the server has responded. Returns what to report.
    pub fn note(&self, error: &str, now: Instant) -> Option<OutageChange> {
        let mut last = self.last_error.lock();
        if *last == error {
            return None;
        }
        if error.is_empty() {
            last.clear();
            return Some(OutageChange::Ended);
        }
        let others = self.reports.count(now)?;
        error.clone_into(&mut last);
        Some(OutageChange::Failed { others })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_begin_and_the_end_are_reported_once() {
        let outage = Outage::default();
        let start = Instant::now();
        let noted = [(0, ""), (0, "refused"), (1, "refused"), (2, "timeout"), (11, "timeout"), (12, ""), (13, "")]
            .map(|(after, error)| outage.note(error, start + Duration::from_secs(after)));
        let began = OutageChange::Failed { others: 0 };
        let changed = OutageChange::Failed { others: 1 };
        assert_eq!(noted, [None, Some(began), None, None, Some(changed), Some(OutageChange::Ended), None]);
    }
}
