//! The memory of the follower and of the task that writes back.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::lost::Lost;
use super::state::FollowerState;
use crate::types::boot_time::BootTime;

/// What the follower knows of the log, and what it remembers of the revocations of this gateway.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) state: Arc<Mutex<FollowerState>>,
    /// What the log lacks, until it is written.
    pub(super) lost: Arc<Mutex<Lost>>,
    /// Notified when the log may lack something.
    pub(super) suspects: Arc<Notify>,
}

impl Known {
    /// `retention`: how long each entry stays in the log at least.
    pub(super) fn new(retention: Duration) -> Self {
        let state = Arc::new(Mutex::new(FollowerState::new(retention)));
        Known { state, lost: Arc::new(Mutex::new(Lost::new())), suspects: Arc::default() }
    }

    /// Returns when the log lacks something, or is read again to find out.
    pub(super) async fn may_lack(&self) {
        loop {
            let is_lost = self.lost.lock().len() > 0;
            if is_lost || self.state.lock().is_reading_again() {
                return;
            }
            self.suspects.notified().await;
        }
    }

    /// Returns true if a poll that was sent after `time` has read all of the log.
    pub(super) fn has_read_since(&self, time: BootTime) -> bool {
        self.state.lock().complete_at() >= Some(time)
    }
}
