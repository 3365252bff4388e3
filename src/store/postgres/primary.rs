//! The choice of the primary among several hosts.
//!
//! Everything in this process that uses the same hosts shares it: a start compares the root secrets before it opens the
//! store. One look at all hosts is therefore enough for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::store::error::{FailureKind, StoreError};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::timeline::{Newest, Timeline};

/// How many errors of one host the journal gets before the host is well again.
const MAX_REPORTED: usize = 8;

/// What a server writes. `None`: it is read-only. Some services reject the question.
pub(super) type Answer = Result<Option<Timeline>, QueryError>;

#[derive(Debug, Default)]
pub(super) struct Primary {
    /// Set when a look at all hosts has found one that can be used.
    looked: OnceCell<()>,
    /// Index of the host that worked last, or that was promoted since then.
    good: AtomicUsize,
    newest: Mutex<Newest>,
    /// What the journal says of each host, by its index.
    reported: Mutex<BTreeMap<usize, BTreeSet<String>>>,
}

/// Two targets are equal if they name the same hosts, whatever was found there.
impl PartialEq for Primary {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Primary {}

impl Primary {
    /// The index of the host to try first.
    pub(super) fn host(&self) -> usize {
        self.good.load(Ordering::Relaxed)
    }

    pub(super) fn set_host(&self, host: usize) {
        self.good.store(host, Ordering::Relaxed);
    }

    /// Waits for `look`, unless one has succeeded before: it returns true for success. A caller that goes away leaves
    /// it to the next one.
    pub(super) async fn look_once(&self, look: impl Future<Output = bool>) {
        let look = async || look.await.then_some(()).ok_or(());
        // After a failure, the next caller looks again.
        let _ = self.looked.get_or_try_init(look).await;
    }

    /// Takes the answer of each host, before one of them is used. Returns false if none of them can be.
    pub(super) fn begin(&self, hosts: &[impl Display], answers: &[Answer]) -> bool {
        if !answers.iter().any(is_usable) {
            // The attempt to connect reports why.
            return false;
        }
        let mut writing = Vec::new();
        for (host, (name, answer)) in hosts.iter().zip(answers).enumerate() {
            self.note(host, name, answer);
            if let Ok(Some(timeline)) = answer {
                self.newest.lock().add(*timeline);
                writing.push((host, name, *timeline));
            }
        }
        let is_left = |timeline| self.is_after(timeline);
        if let Some((host, ..)) = writing.iter().find(|(.., timeline)| !is_left(*timeline)) {
            self.set_host(*host);
        }
        for (_, host, timeline) in writing.iter().filter(|(.., timeline)| is_left(*timeline)) {
            tracing::warn!(%host, timeline = timeline.number, "{SUPERSEDED}");
        }
        true
    }

    /// The server at this host accepts changes.
    pub(super) fn found(&self, host: usize, name: impl Display, timeline: Timeline) {
        if self.newest.lock().add(timeline) {
            self.set_host(host);
            tracing::warn!(host = %name, timeline = timeline.number, "this server was promoted: it is the primary now");
        }
    }

    /// Returns true if another server was promoted after the one with this timeline.
    pub(super) fn is_after(&self, timeline: Timeline) -> bool {
        self.newest.lock().is_after(timeline)
    }

    /// Reports that a host cannot be asked, once for each cause, and that it can be asked again. A standby that is down
    /// is no fault of the configuration.
    pub(super) fn note(&self, host: usize, name: impl Display, answer: &Answer) {
        match answer {
            Ok(_) if self.reported.lock().remove(&host).is_some() => {
                tracing::info!(host = %name, "this server can be asked again whether it is the primary");
            }
            Ok(_) => {}
            Err(error) => {
                let error = error.clone().into_store_error();
                if !is_away(&error) && self.is_news(host, &error) {
                    tracing::warn!(host = %name, %error, "{CANNOT_ASK}");
                }
            }
        }
    }

    fn is_news(&self, host: usize, error: &StoreError) -> bool {
        // Some texts have a time in them, such as that of a certificate that has ended.
        let cause: String = error.message.chars().filter(|c| !c.is_ascii_digit()).collect();
        let mut reported = self.reported.lock();
        let of_host = reported.entry(host).or_default();
        of_host.len() < MAX_REPORTED && of_host.insert(cause)
    }
}

pub(super) const SUPERSEDED: &str = "this server was the primary before: another one was promoted after it; stop it, \
     or let it follow the new one. If you have restored a backup here, restart the gateway";

const CANNOT_ASK: &str = "this server cannot be asked whether it is the primary: the gateway may miss a failover to it";

/// A server that rejects the question may accept changes.
fn is_usable(answer: &Answer) -> bool {
    matches!(answer, Ok(Some(_)) | Err(QueryError::Rejected(_) | QueryError::Conflict(_)))
}

/// The server or its machine is down, or starts.
fn is_away(error: &StoreError) -> bool {
    matches!(error.kind, FailureKind::Unreachable | FailureKind::Silent | FailureKind::Starting)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [&str; 3] = ["a", "b", "c"];

    /// The host at which connections begin, and whether the look has succeeded.
    fn begun(answers: Vec<Answer>) -> (usize, bool) {
        let primary = Primary::default();
        let has_begun = primary.begin(&HOSTS, &answers);
        (primary.host(), has_begun)
    }

    fn writes(system: i64, number: i32) -> Answer {
        Ok(Some(Timeline { system, number }))
    }

    fn lost() -> Answer {
        Err(QueryError::Lost(StoreError::new("refused").of_kind(FailureKind::Unreachable)))
    }

    fn rejected() -> Answer {
        Err(QueryError::Rejected(StoreError::new("no right")))
    }

    #[test]
    fn connections_begin_at_the_server_that_was_promoted_last() {
        for (answers, host) in [
            (vec![writes(7, 1), writes(7, 2), Ok(None)], 1),
            (vec![writes(7, 2), writes(7, 1), writes(7, 3)], 2),
            (vec![writes(7, 2), writes(7, 2), writes(7, 1)], 0),
            (vec![lost(), Ok(None), writes(7, 1)], 2),
            // Another system is not compared: the order decides.
            (vec![writes(7, 1), writes(8, 9), Ok(None)], 0),
            (vec![writes(7, 1), writes(8, 1), writes(7, 2)], 1),
            (vec![rejected(), lost(), lost()], 0),
        ] {
            assert_eq!(begun(answers.clone()), (host, true), "{answers:?}");
        }
    }

    #[test]
    fn a_look_that_finds_no_server_to_write_to_is_made_again() {
        for answers in [vec![lost(), lost(), lost()], vec![Ok(None), lost(), Ok(None)]] {
            assert_eq!(begun(answers.clone()), (0, false), "{answers:?}");
        }
    }

    #[tokio::test]
    async fn one_look_that_succeeds_is_enough() {
        let primary = Primary::default();
        let looks = AtomicUsize::new(0);
        let look = async |succeeds: bool| {
            let count = async {
                looks.fetch_add(1, Ordering::Relaxed);
                succeeds
            };
            primary.look_once(count).await;
            looks.load(Ordering::Relaxed)
        };
        // A caller goes away in the middle of its look.
        let unfinished = primary.look_once(std::future::pending());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(10), unfinished).await.is_err());
        assert_eq!([look(false).await, look(true).await, look(false).await, look(true).await], [1, 2, 2, 2]);
    }

    #[test]
    fn each_cause_is_reported_once_until_the_host_is_well() {
        let primary = Primary::default();
        let is_news = |host, message| primary.is_news(host, &StoreError::new(message));
        assert!(is_news(0, "ended 10 seconds ago") && !is_news(0, "ended 15 seconds ago"));
        assert!(is_news(0, "no right") && is_news(1, "no right"), "another cause, and another host");
        assert!(!is_news(0, "ended 20 seconds ago"), "two causes that alternate");
        primary.note(0, "a", &Ok(None));
        assert!(is_news(0, "no right") && !is_news(1, "no right"));
        let reported = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|message| is_news(0, message));
        assert_eq!(reported.into_iter().filter(|is_news| *is_news).count(), MAX_REPORTED - 1);
    }

    #[test]
    fn a_server_that_is_down_is_no_fault() {
        for (kind, is_down) in [
            (FailureKind::Unreachable, true),
            (FailureKind::Silent, true),
            (FailureKind::Starting, true),
            (FailureKind::Login, false),
            (FailureKind::NoConnection, false),
            (FailureKind::Other, false),
        ] {
            assert_eq!(is_away(&StoreError::new("").of_kind(kind)), is_down, "{kind:?}");
        }
    }
}
