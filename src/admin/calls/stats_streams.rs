//! Event streams of statistics: how many are open, and how they end.
//!
//! Nothing is queued for a client that reads slowly: it misses events. hyper and the socket hold what is on its way. A
//! write that takes too long closes the connection (`slow_readers.rs`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::protocols::http::body::{Body, BodyObserver};
use crate::telemetry::snapshots::Snapshots;
use crate::types::reject::{Reason, Reject};

/// How long to wait for clients to read the end of their streams.
const END_LIMIT: Duration = Duration::from_millis(250);

/// `admin.streams`
pub struct StatsStreams {
    slots: Arc<Semaphore>,
    limit: usize,
    ended: watch::Sender<bool>,
}

/// Frees its slot when the body ends, or is dropped with its connection.
struct Slot {
    _permit: OwnedSemaphorePermit,
}

impl BodyObserver for Slot {
    fn on_data(&mut self, _data: &mut Bytes) {}
    fn on_complete(&mut self) {}
}

impl StatsStreams {
    pub fn new(limit: usize) -> Self {
        StatsStreams { slots: Arc::new(Semaphore::new(limit)), limit, ended: watch::Sender::new(false) }
    }

    /// A body with an event for the newest snapshot, and then one for each snapshot, until `event` returns `None`.
    pub(crate) fn open(
        &self,
        snapshots: &Arc<Snapshots>,
        event: impl Fn(&Snapshots) -> Option<Bytes> + Send + 'static,
    ) -> Result<Body, Reject> {
        let permit = self.slots.clone().try_acquire_owned();
        let permit = permit.map_err(|_| Reject::new(Reason::StreamsLimited, format!("at most {}", self.limit)))?;
        let (sender, pieces) = mpsc::channel(1);
        tokio::spawn(send(snapshots.clone(), event, sender, self.ended.subscribe()));
        Ok(Body::of_pieces(pieces).with_observer(Box::new(Slot { _permit: permit })))
    }

    /// Ends all streams, and those that are opened later.
    pub async fn end(&self) {
        self.ended.send_replace(true);
        let all = u32::try_from(self.limit).unwrap_or(u32::MAX);
        // A client that does not read is not waited for.
        let _ = tokio::time::timeout(END_LIMIT, self.slots.acquire_many(all)).await;
    }
}

/// Ends with the gateway, or when the client has disconnected.
async fn send(
    snapshots: Arc<Snapshots>,
    event: impl Fn(&Snapshots) -> Option<Bytes>,
    pieces: mpsc::Sender<Bytes>,
    mut ended: watch::Receiver<bool>,
) {
    let mut taken = snapshots.taken();
    taken.mark_changed();
    loop {
        tokio::select! {
            () = pieces.closed() => return,
            _ = ended.wait_for(|ended| *ended) => return,
            changed = taken.changed() => if changed.is_err() { return },
        }
        let Some(event) = event(&snapshots) else { return };
        // If there is no room, the client misses this event.
        let _ = pieces.try_send(event);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::snapshots::Others;

    fn snapshots() -> Arc<Snapshots> {
        Arc::new(Snapshots::new(Arc::new(Metrics::new(1)), Box::new(Others::default)))
    }

    fn event(_: &Snapshots) -> Option<Bytes> {
        Some(Bytes::from_static(b"data: {}\n\n"))
    }

    #[tokio::test]
    async fn a_slot_is_free_again_when_its_stream_is_dropped() {
        let streams = StatsStreams::new(2);
        let snapshots = snapshots();
        let first = streams.open(&snapshots, event).expect("room");
        let _second = streams.open(&snapshots, event).expect("room");
        let reason = |opened: Result<Body, Reject>| opened.err().map(|reject| reject.reason);
        assert_eq!(reason(streams.open(&snapshots, event)), Some(Reason::StreamsLimited));
        drop(first);
        assert_eq!(reason(streams.open(&snapshots, event)), None);
        assert_eq!(reason(StatsStreams::new(0).open(&snapshots, event)), Some(Reason::StreamsLimited));
    }

    #[tokio::test]
    async fn the_end_of_the_gateway_ends_a_stream_completely() {
        let streams = StatsStreams::new(1);
        let snapshots = snapshots();
        let mut stream = streams.open(&snapshots, event).expect("room");
        let first = stream.frame().await.expect("an event").expect("no error");
        assert_eq!(first.into_data().ok(), event(&snapshots), "at once, not after a second");
        let reading = tokio::spawn(async move { stream.frame().await.is_none() });
        streams.end().await;
        assert!(reading.await.expect("no panic"), "a complete body");
        assert_eq!(streams.slots.available_permits(), 1);
    }

    #[tokio::test]
    async fn nothing_is_queued_for_a_client_that_does_not_read() {
        let streams = StatsStreams::new(1);
        let snapshots = snapshots();
        let mut stream = streams.open(&snapshots, event).expect("room");
        for _ in 0..10 {
            snapshots.take_now();
            tokio::task::yield_now().await;
        }
        streams.end().await;
        let mut events = 0;
        while stream.frame().await.is_some() {
            events += 1;
        }
        assert_eq!(events, 1);
    }
}
