//! The callbacks that are being handled. A browser may send one twice at once, and a provider revokes everything if a
//! code is used twice: the second request waits for the first one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long the second request waits.
const PATIENCE: Duration = Duration::from_secs(3);

type Key = [u8; 32];

/// By a hash of the state. As many as requests in flight.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<Key, watch::Receiver<()>>>>);

/// A callback that is handled until this is dropped.
pub(super) struct Turn {
    key: Key,
    running: Running,
    _ends: watch::Sender<()>,
}

impl Running {
    /// `None`: another request handles this callback.
    pub(super) fn begin(&self, key: Key) -> Option<Turn> {
        let mut running = self.0.lock();
        if running.contains_key(&key) {
            return None;
        }
        let (sender, receiver) = watch::channel(());
        running.insert(key, receiver);
        Some(Turn { key, running: self.clone(), _ends: sender })
    }

    /// Waits until no request handles this callback, but not for long.
    pub(super) async fn wait(&self, key: &Key) {
        let found = self.0.lock().get(key).cloned();
        if let Some(mut running) = found {
            // An error says that the other one has ended.
            let _ = tokio::time::timeout(PATIENCE, running.changed()).await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_request_waits_for_the_first() {
        let running = Running::default();
        let first = running.begin([1; 32]).expect("the first");
        assert!(running.begin([1; 32]).is_none() && running.begin([2; 32]).is_some());
        let waiting = running.clone();
        let waits = tokio::spawn(async move { waiting.wait(&[1; 32]).await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(first);
        waits.await.expect("ends");
        assert!(running.begin([1; 32]).is_some());
        running.wait(&[3; 32]).await;
    }
}
