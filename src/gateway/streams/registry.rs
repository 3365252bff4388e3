//! The open streams of one worker, and the task that ends them.
//!
//! Four times a second, the task compares the time with the earliest expiry, the epoch of revocations, the revision
//! of keys, the number of opaque tokens that ended early, the number of tokens with other rights than before, the
//! number of reloads, and whether revocations may be missing here. It checks the streams themselves only if one of
//! these has moved. Without streams, it sleeps.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::basis::{Held, StreamBasis, TokenChecks};
use super::drain_behavior::DrainBehavior;
use super::reroute::Opening;
use crate::protocols::tls;
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::reject::Reason;

/// A stream ends within a second. A quarter of it is for noticing, the rest for the message in flight.
const TICK: Duration = Duration::from_millis(250);

/// Streams that are checked before other tasks run: about 50 µs.
const BATCH: usize = 256;

/// The same after an issuer's terms have changed, when each check costs a signature.
const SIGNATURE_BATCH: usize = 1;

pub struct Streams {
    checks: TokenChecks,
    metrics: Arc<WorkerMetrics>,
    open: Mutex<Open>,
    /// Wakes the task when the first stream opens.
    first_opened: Notify,
}

#[derive(Default)]
struct Open {
    streams: BTreeMap<u64, RegisteredStream>,
    /// Number of the newest stream.
    newest: u64,
    /// No token here expires earlier. A value that is too early costs one check.
    earliest: UnixTime,
    draining: bool,
    /// `timeouts.drain` has passed.
    drained: bool,
}

struct RegisteredStream {
    basis: StreamBasis,
    drain_behavior: DrainBehavior,
    end: oneshot::Sender<CloseReason>,
}

/// What streams depend on, as of the last check of all of them.
#[derive(PartialEq)]
struct LastChecked {
    epoch: u64,
    key_revision: u64,
    is_stale: bool,
    /// The number of opaque tokens that ended early.
    introspected_ended: u64,
    changed_rights: u64,
    /// The number of reloads, each of which can bring a revocation list for clients.
    reloads: u64,
    /// The number of reloads that have replaced the routes.
    routes: u64,
}

impl Streams {
    pub fn new(checks: TokenChecks, metrics: Arc<WorkerMetrics>) -> Arc<Self> {
        Arc::new(Streams { checks, metrics, open: Mutex::default(), first_opened: Notify::new() })
    }

    /// Registers a WebSocket. `record`: of its handshake.
    pub fn open_tunnel(self: &Arc<Self>, held: &Held, record: &Record) -> OpenStream {
        self.open(held, Some(Opening::of(record, true)), DrainBehavior::AtOnce)
    }

    /// Registers a stream. If its token or its route has ended meanwhile, the stream ends at once.
    pub(super) fn open(
        self: &Arc<Self>,
        held: &Held,
        opening: Option<Opening>,
        drain_behavior: DrainBehavior,
    ) -> OpenStream {
        let (end, ended) = oneshot::channel();
        let mut basis = StreamBasis::on(held, opening, &self.checks);
        let checked = basis.check(&self.checks, self.checks.clock.now());
        let mut open = self.open.lock();
        open.newest += 1;
        let stream = OpenStream { number: open.newest, streams: self.clone(), ended: Some(ended) };
        self.metrics.streams_opened.inc();
        let entry = RegisteredStream { basis, drain_behavior, end };
        match checked {
            Err(reason) => entry.end(CloseReason::Token(reason)),
            _ if open.ends_now(drain_behavior) => entry.end(CloseReason::Draining),
            _ => open.insert(stream.number, entry, &self.first_opened),
        }
        stream
    }

    /// Checks what a stream depends on before it is registered.
    pub(super) fn check(&self, held: &Held) -> Result<(), Reason> {
        StreamBasis::on(held, None, &self.checks).check(&self.checks, self.checks.clock.now())
    }

    /// Ends streams when their token ends, for as long as it is polled.
    pub async fn watch(self: Arc<Self>) {
        // Every stream is checked when it is registered, so nothing older needs to be noticed.
        let mut last = self.current();
        loop {
            while self.open.lock().streams.is_empty() {
                self.first_opened.notified().await;
            }
            tokio::time::sleep(TICK).await;
            self.check_all(&mut last).await;
        }
    }

    fn current(&self) -> LastChecked {
        LastChecked {
            epoch: self.checks.revocations.epoch(),
            key_revision: self.checks.keyring.revision(),
            is_stale: self.checks.is_stale(),
            introspected_ended: self.checks.introspected_tokens.ended(),
            changed_rights: self.checks.changed_rights(),
            reloads: tls::reloads(),
            routes: self.checks.routes.changes(),
        }
    }

    async fn check_all(&self, last: &mut LastChecked) {
        // Read before the check: what moves meanwhile is noticed the next time.
        let current = self.current();
        let now = self.checks.clock.now();
        {
            let mut open = self.open.lock();
            if current == *last && now < open.earliest {
                return;
            }
            open.earliest = UnixTime::MAX;
        }
        // A change of keys can cost a signature for each stream.
        let batch = if current.key_revision == last.key_revision { BATCH } else { SIGNATURE_BATCH };
        let mut from = Bound::Unbounded;
        while let Some(number) = self.check_batch(from, batch, now) {
            from = Bound::Excluded(number);
            // Requests run in between.
            tokio::task::yield_now().await;
        }
        *last = current;
    }

    /// Returns the number of the last stream that was checked, or `None` if there was none.
    fn check_batch(&self, from: Bound<u64>, count: usize, now: UnixTime) -> Option<u64> {
        let mut open = self.open.lock();
        let mut last = None;
        let mut earliest = open.earliest;
        let mut ended = Vec::new();
        for (number, entry) in open.streams.range_mut((from, Bound::Unbounded)).take(count) {
            last = Some(*number);
            match entry.basis.check(&self.checks, now) {
                Ok(()) => earliest = earliest.min(entry.deadline()),
                Err(reason) => ended.push((*number, reason)),
            }
        }
        open.earliest = earliest;
        for (number, reason) in ended {
            open.end(number, CloseReason::Token(reason));
        }
        last
    }

    /// Starts a graceful shutdown: ends the streams that end at once, also those that open from now on.
    pub fn drain(&self) {
        self.end_drained(|open| open.draining = true);
    }

    /// `timeouts.drain` has passed: ends the streams that were given this time.
    pub fn end_drain(&self) {
        self.end_drained(|open| open.drained = true);
    }

    fn end_drained(&self, advance: impl FnOnce(&mut Open)) {
        let mut open = self.open.lock();
        advance(&mut open);
        let ended = open.streams.iter().filter(|(_, entry)| open.ends_now(entry.drain_behavior));
        for number in ended.map(|(number, _)| *number).collect::<Vec<_>>() {
            open.end(number, CloseReason::Draining);
        }
    }
}

impl Open {
    fn insert(&mut self, number: u64, entry: RegisteredStream, first_opened: &Notify) {
        if self.streams.is_empty() {
            self.earliest = UnixTime::MAX;
            first_opened.notify_one();
        }
        self.earliest = self.earliest.min(entry.deadline());
        self.streams.insert(number, entry);
    }

    fn ends_now(&self, drain_behavior: DrainBehavior) -> bool {
        match drain_behavior {
            DrainBehavior::AtOnce => self.draining,
            DrainBehavior::AtLast => self.drained,
            DrainBehavior::CutOff => false,
        }
    }

    fn end(&mut self, number: u64, reason: CloseReason) {
        if let Some(entry) = self.streams.remove(&number) {
            entry.end(reason);
        }
    }
}

impl RegisteredStream {
    fn deadline(&self) -> UnixTime {
        self.basis.deadline()
    }

    fn end(self, reason: CloseReason) {
        // The owner of the stream may just have dropped it.
        let _ = self.end.send(reason);
    }
}

/// A registered stream. Dropping it removes it.
pub struct OpenStream {
    number: u64,
    streams: Arc<Streams>,
    ended: Option<oneshot::Receiver<CloseReason>>,
}

impl OpenStream {
    /// Ready, once, when the stream must end.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<CloseReason> {
        let Some(receiver) = &mut self.ended else { return Poll::Pending };
        let ended = ready!(std::pin::Pin::new(receiver).poll(context));
        self.ended = None;
        // The sender is dropped unused only when the process ends.
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// The response has begun: it follows the routes. A reload may have replaced them since the request came.
    pub(super) fn follow_routes(&self, opening: Opening) {
        let checks = &self.streams.checks;
        let mut open = self.streams.open.lock();
        let Some(entry) = open.streams.get_mut(&self.number) else { return };
        entry.basis.follow_routes(opening);
        if let Err(reason) = entry.basis.check(checks, checks.clock.now()) {
            open.end(self.number, CloseReason::Token(reason));
        }
    }

    /// Sets the behavior of a stream, once its kind is known.
    pub(super) fn set_drain_behavior(&self, drain_behavior: DrainBehavior) {
        let mut open = self.streams.open.lock();
        if open.ends_now(drain_behavior) {
            return open.end(self.number, CloseReason::Draining);
        }
        if let Some(entry) = open.streams.get_mut(&self.number) {
            entry.drain_behavior = drain_behavior;
        }
    }

    /// Returns when the stream must end.
    pub async fn ended(&mut self) -> CloseReason {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.metrics.streams_closed.inc();
        self.streams.open.lock().streams.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::auth::token_cache::CachedToken;
    use crate::gateway::route::Route;
    use crate::gateway::streams::HeldToken;
    use crate::tokens::family::revocation::{Revocation, Revoked};
    use crate::tokens::jwt::VerifiedToken;
    use crate::types::ids::TokenId;

    const FAMILY: TokenId = TokenId::from_bytes([7; 16]);

    fn streams() -> Arc<Streams> {
        Streams::new(TokenChecks::alone(), Arc::default())
    }

    fn ended(stream: &mut OpenStream) -> Option<CloseReason> {
        match stream.poll_ended(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reason) => Some(reason),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_stream_that_opens_in_a_drain_ends_as_it_would_have() {
        let streams = streams();
        let drained = |expected: [bool; 3]| {
            for (behavior, ends) in
                [DrainBehavior::AtOnce, DrainBehavior::AtLast, DrainBehavior::CutOff].into_iter().zip(expected)
            {
                let draining = ends.then_some(CloseReason::Draining);
                assert_eq!(ended(&mut streams.open(&Held::default(), None, behavior)), draining, "{behavior:?}");
                // The behavior is known only after the stream was opened.
                let mut later = streams.open(&Held::default(), None, DrainBehavior::CutOff);
                later.set_drain_behavior(behavior);
                assert_eq!(ended(&mut later), draining, "{behavior:?}");
            }
        };
        drained([false; 3]);
        streams.drain();
        drained([true, false, false]);
        streams.end_drain();
        drained([true, true, false]);
    }

    #[test]
    fn a_drain_ends_streams_by_their_last_behavior() {
        let streams = streams();
        let mut open = [DrainBehavior::CutOff, DrainBehavior::AtOnce]
            .map(|behavior| streams.open(&Held::default(), None, behavior));
        open[0].set_drain_behavior(DrainBehavior::AtOnce);
        open[1].set_drain_behavior(DrainBehavior::CutOff);
        streams.drain();
        assert_eq!(open.each_mut().map(ended), [Some(CloseReason::Draining), None]);
    }

    #[tokio::test]
    async fn a_revocation_ends_a_stream_long_before_its_expiry() {
        let streams = streams();
        let mut token = VerifiedToken::with_subject("alice".into());
        token.family = Some(FAMILY);
        let key_revision = streams.checks.keyring.revision();
        let cached = Arc::new(CachedToken::new("a token", token, Vec::new(), key_revision));
        let held = Held { token: Some(HeldToken { cached, route: Arc::new(Route::everything()) }), certificate: None };
        let mut stream = streams.open_tunnel(&held, &Record::default());
        let mut last = streams.current();
        streams.check_all(&mut last).await;
        assert_eq!(ended(&mut stream), None);
        let now = streams.checks.clock.now();
        let revocation = Revocation { sequence: 1, what: Revoked::Family(FAMILY), at: now, until: UnixTime::MAX };
        streams.checks.revocations.enforce(&revocation);
        let revoked = Some(CloseReason::Token(Reason::Revoked));
        assert_eq!(ended(&mut streams.open_tunnel(&held, &Record::default())), revoked, "opened after the revocation");
        streams.check_all(&mut last).await;
        assert_eq!(ended(&mut stream), revoked);
    }
}
