//! The state of the connections of a shared store, for metrics. No request with a known token comes here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What an operation is for. A closed list, because metrics have it as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A login.
    Issue,
    /// Also at a provider.
    Refresh,
    Revoke,
    /// Of sessions, API keys, endings and marks.
    Read,
    /// A proof, an assertion or a report that may be used once.
    Mark,
    /// Audit events.
    Audit,
    Sweep,
    /// Of the log of revocations.
    Poll,
    /// Of revocations that the database has lost.
    WriteBack,
    /// Keys, certificates, leases, heartbeats, confirmations and probes.
    Upkeep,
}

impl OperationKind {
    pub const ALL: [OperationKind; 10] = [
        OperationKind::Issue,
        OperationKind::Refresh,
        OperationKind::Revoke,
        OperationKind::Read,
        OperationKind::Mark,
        OperationKind::Audit,
        OperationKind::Sweep,
        OperationKind::Poll,
        OperationKind::WriteBack,
        OperationKind::Upkeep,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            OperationKind::Issue => "issue",
            OperationKind::Refresh => "refresh",
            OperationKind::Revoke => "revoke",
            OperationKind::Read => "read",
            OperationKind::Mark => "mark",
            OperationKind::Audit => "audit",
            OperationKind::Sweep => "sweep",
            OperationKind::Poll => "poll",
            OperationKind::WriteBack => "write_back",
            OperationKind::Upkeep => "upkeep",
        }
    }
}

/// Gets how long each attempt at an operation took, from a free connection to its outcome.
pub type OperationHook = Arc<dyn Fn(OperationKind, Duration) + Send + Sync>;

/// Open connections by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenConnections {
    pub changes: usize,
    pub log: usize,
    pub upkeep: usize,
    pub follower: usize,
}

/// Written by the thread of the store, read by scrapes.
#[derive(Default)]
pub struct PoolStatus {
    open: [AtomicU64; 4],
    waiting: AtomicU64,
    running: AtomicU64,
    hook: OnceLock<OperationHook>,
}

impl PoolStatus {
    /// Calls `hook` after each attempt from now on. Only the first hook counts.
    pub fn observe_with(&self, hook: OperationHook) {
        let _ = self.hook.set(hook);
    }

    pub fn open(&self) -> OpenConnections {
        let [changes, log, upkeep, follower] =
            [0, 1, 2, 3].map(|place: usize| self.open[place].load(Ordering::Relaxed) as usize);
        OpenConnections { changes, log, upkeep, follower }
    }

    /// Operations that wait for a connection, or for a place on it.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Operations on a connection.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn set_open(&self, open: OpenConnections) {
        let OpenConnections { changes, log, upkeep, follower } = open;
        for (place, count) in self.open.iter().zip([changes, log, upkeep, follower]) {
            place.store(count as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn wait(&self) -> Counted<'_> {
        Counted::among(&self.waiting)
    }

    pub(super) fn run(&self) -> Counted<'_> {
        Counted::among(&self.running)
    }

    pub(super) fn took(&self, kind: OperationKind, duration: Duration) {
        if let Some(hook) = self.hook.get() {
            hook(kind, duration);
        }
    }
}

/// Counts one operation until it is dropped.
pub(super) struct Counted<'p>(&'p AtomicU64);

impl<'p> Counted<'p> {
    fn among(count: &'p AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn each_kind_has_the_place_of_its_number_and_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = OperationKind::ALL.map(OperationKind::as_str).into();
        assert_eq!(names.len(), OperationKind::ALL.len());
        assert!(OperationKind::ALL.iter().enumerate().all(|(place, kind)| *kind as usize == place));
    }

    #[test]
    fn operations_count_until_they_end() {
        let pool = PoolStatus::default();
        let waiting = [pool.wait(), pool.wait()];
        let running = pool.run();
        assert_eq!((pool.waiting(), pool.running()), (2, 1));
        drop((waiting, running));
        assert_eq!((pool.waiting(), pool.running()), (0, 0));
        let open = OpenConnections { changes: 4, log: 1, upkeep: 0, follower: 1 };
        pool.set_open(open);
        assert_eq!(pool.open(), open);
    }

    #[test]
    fn a_hook_gets_each_duration() {
        let pool = PoolStatus::default();
        pool.took(OperationKind::Sweep, Duration::ZERO);
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let sees = seen.clone();
        pool.observe_with(Arc::new(move |kind, duration| sees.lock().push((kind, duration))));
        pool.took(OperationKind::Refresh, Duration::from_millis(2));
        assert_eq!(*seen.lock(), [(OperationKind::Refresh, Duration::from_millis(2))]);
    }
}
