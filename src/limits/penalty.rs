//! Addresses that flooded us a moment ago, and are not let in again at once.
//!
//! Ending a flood costs its sender one new connection, and us a handshake and the first second's worth of frames; a handshake that
//! is begun and left costs us a signature, and its sender nothing; a request that cannot be read, or whose body is refused, costs
//! us a new connection. Asked once a connection, before TLS. Several honest people may share an address, so a pause is short, keeps
//! no open connection from going on, and can be turned off; whoever brings the connections of others is never paused.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::UnixTime;

/// Of 65,536 to 131,072 addresses the pause is remembered; forgetting errs on the side of letting in.
const ROOM: usize = 65_536;

/// So many handshakes, requests or bodies of an address may come to nothing within this.
const FAILURES_WITHIN: Duration = Duration::from_secs(10);

/// `limits.penalty_duration`, and what of an address within [`FAILURES_WITHIN`] is no flood yet; 0 for any number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PenaltySettings {
    /// How long; zero: never.
    pub duration: Duration,
    /// `limits.failed_handshakes`
    pub failed_handshakes: u32,
    /// `limits.malformed_requests`
    pub malformed_requests: u32,
    /// `limits.rejected_bodies`
    pub rejected_bodies: u32,
}

pub struct PenaltyBox {
    /// How long; zero: never.
    time: Duration,
    /// The end of the last pause, in milliseconds. After it nobody is paused, and nothing is looked up.
    until: AtomicU64,
    /// Each has one in so much time, and a flood takes it.
    floods: Limiter,
    /// TLS handshakes that came to nothing; `None`: any number.
    handshakes: Option<Limiter>,
    /// Requests that could not be read, likewise.
    requests: Option<Limiter>,
    /// Bodies that were too much, or one too many, likewise.
    bodies: Option<Limiter>,
}

impl PenaltyBox {
    pub fn for_a(settings: PenaltySettings) -> Self {
        let PenaltySettings { duration, failed_handshakes, malformed_requests, rejected_bodies } = settings;
        let limiter = |burst| (burst > 0).then(|| Limiter::new(Rate { burst, every: FAILURES_WITHIN / burst }));
        PenaltyBox {
            time: duration,
            until: AtomicU64::new(0),
            floods: Limiter::with_room(Rate { burst: 1, every: duration }, ROOM),
            handshakes: limiter(failed_handshakes),
            requests: limiter(malformed_requests),
            bodies: limiter(rejected_bodies),
        }
    }

    /// It began a handshake, which costs us a signature, and did not end it. To do so again and again is a flood.
    pub fn failed_handshake(&self, address: IpAddr, now: UnixTime) {
        self.count(self.handshakes.as_ref(), address, now);
    }

    /// What it asked had no one reading, or too large a head, and ended its connection: it costs us a new one each time.
    pub fn malformed_request(&self, address: IpAddr, now: UnixTime) {
        self.count(self.requests.as_ref(), address, now);
    }

    /// What it sent was too much, and nobody read it to its end: so its connection ended, and what is on its way has to be thrown
    /// away.
    pub fn rejected_body(&self, address: IpAddr, now: UnixTime) {
        self.count(self.bodies.as_ref(), address, now);
    }

    fn count(&self, failures: Option<&Limiter>, address: IpAddr, now: UnixTime) {
        if failures.is_some_and(|failures| failures.take_if_any(address, now).is_err()) {
            self.pause(address, now);
        }
    }

    /// It has flooded us.
    pub fn pause(&self, address: IpAddr, now: UnixTime) {
        if !self.time.is_zero() {
            self.floods.take(address, now);
            self.until.fetch_max((now + self.time).as_millis(), Ordering::Relaxed);
        }
    }

    pub fn has(&self, address: IpAddr, now: UnixTime) -> bool {
        now.as_millis() < self.until.load(Ordering::Relaxed) && self.floods.wait(address, now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000);
    const PAUSE: Duration = Duration::from_secs(10);
    const ANY: PenaltySettings =
        PenaltySettings { duration: PAUSE, failed_handshakes: 0, malformed_requests: 0, rejected_bodies: 0 };

    #[test]
    fn a_pause_is_of_one_address_and_ends() {
        let paused = PenaltyBox::for_a(ANY);
        let (attacker, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!(!paused.has(attacker, NOW));
        (0..100).for_each(|_| paused.pause(attacker, NOW));
        assert!(paused.has(attacker, NOW) && !paused.has(other, NOW));
        let almost = NOW + PAUSE - Duration::from_millis(1);
        assert!(paused.has(attacker, almost));
        assert!(!paused.has(attacker, NOW + PAUSE), "however many floods it was");
        paused.pause(other, almost);
        assert!(paused.has(other, NOW + PAUSE) && !paused.has(attacker, NOW + PAUSE));
    }

    #[test]
    fn no_time_is_no_pause() {
        let paused = PenaltyBox::for_a(PenaltySettings { duration: Duration::ZERO, failed_handshakes: 1, ..ANY });
        paused.pause([192, 0, 2, 1].into(), NOW);
        (0..10).for_each(|_| paused.failed_handshake([192, 0, 2, 1].into(), NOW));
        assert!(!paused.has([192, 0, 2, 1].into(), NOW));
    }

    #[test]
    fn so_many_handshakes_may_fail_within_ten_seconds_and_no_more() {
        let (attacker, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let paused = PenaltyBox::for_a(PenaltySettings { failed_handshakes: 100, ..ANY });
        (0..100).for_each(|_| paused.failed_handshake(attacker, NOW));
        assert!(!paused.has(attacker, NOW));
        paused.failed_handshake(attacker, NOW);
        assert!(paused.has(attacker, NOW) && !paused.has(other, NOW));
        // Ten a second for ever.
        let second = |second| NOW + Duration::from_secs(second);
        (0..1000).for_each(|at| (0..10).for_each(|_| paused.failed_handshake(other, second(at))));
        assert!(!paused.has(other, second(1000)));
        let any = PenaltyBox::for_a(ANY);
        (0..100_000).for_each(|_| any.failed_handshake(attacker, NOW));
        assert!(!any.has(attacker, NOW));
    }
}
