//! `limits.penalty_duration`: addresses that flooded the gateway, and are rejected for a while.
//!
//! Each kind of flood costs the gateway more than its sender. After a flood of frames, one new connection buys a
//! handshake and the next second's frames. An abandoned handshake costs a signature. A malformed request or a rejected
//! body costs a new connection. The gateway checks the address once for each connection, before TLS. Several clients
//! may share an address, so a penalty is short, does not close open connections, and can be turned off. It never
//! applies to a proxy that carries the requests of others.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Uptime;

/// The gateway remembers 65,536 to 131,072 penalized addresses. It forgets the oldest first, and accepts those again.
const CAPACITY: usize = 65_536;

/// The window for the maximum of failed handshakes, malformed requests and rejected bodies.
const FAILURE_WINDOW: Duration = Duration::from_secs(10);

/// How long a penalty lasts, and how many failures of an address within [`FAILURE_WINDOW`] cause none. 0 for no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PenaltySettings {
    /// `limits.penalty_duration`; zero turns penalties off.
    pub duration: Duration,
    /// `limits.failed_handshakes`
    pub failed_handshakes: u32,
    /// `limits.malformed_requests`
    pub malformed_requests: u32,
    /// `limits.rejected_bodies`
    pub rejected_bodies: u32,
}

pub struct PenaltyBox {
    /// Zero turns penalties off.
    duration: Duration,
    /// When the last penalty ends, in microseconds of uptime. After that, no address is looked up.
    until: AtomicU64,
    /// Each address has one token in `duration`. A flood takes it, and the address is penalized until it is back.
    floods: Limiter,
    /// Failed TLS handshakes; `None` for no limit.
    handshakes: Option<Limiter>,
    /// Malformed requests; `None` for no limit.
    requests: Option<Limiter>,
    /// Rejected bodies; `None` for no limit.
    bodies: Option<Limiter>,
}

impl PenaltyBox {
    pub fn new(settings: PenaltySettings) -> Self {
        let PenaltySettings { duration, failed_handshakes, malformed_requests, rejected_bodies } = settings;
        let limiter = |burst| (burst > 0).then(|| Limiter::new(Rate { burst, interval: FAILURE_WINDOW / burst }));
        PenaltyBox {
            duration,
            until: AtomicU64::new(0),
            floods: Limiter::with_capacity(Rate { burst: 1, interval: duration }, CAPACITY),
            handshakes: limiter(failed_handshakes),
            requests: limiter(malformed_requests),
            bodies: limiter(rejected_bodies),
        }
    }

    /// Counts a TLS handshake that the client began and did not complete. It has cost the gateway a signature.
    pub fn failed_handshake(&self, address: IpAddr, now: Uptime) {
        self.count(self.handshakes.as_ref(), address, now);
    }

    /// Counts a request that was malformed or had too large a head. It ends its connection, so the next one costs a new
    /// one.
    pub fn malformed_request(&self, address: IpAddr, now: Uptime) {
        self.count(self.requests.as_ref(), address, now);
    }

    /// Counts a body that the gateway rejected and did not read. It ends its connection, and the gateway has to discard
    /// what the client still sends.
    pub fn rejected_body(&self, address: IpAddr, now: Uptime) {
        self.count(self.bodies.as_ref(), address, now);
    }

    fn count(&self, failures: Option<&Limiter>, address: IpAddr, now: Uptime) {
        if failures.is_some_and(|failures| failures.try_take(address, now).is_err()) {
            self.penalize(address, now);
        }
    }

    /// Rejects new connections of this address for the penalty duration.
    pub fn penalize(&self, address: IpAddr, now: Uptime) {
        if !self.duration.is_zero() {
            self.floods.take(address, now);
            self.until.fetch_max((now + self.duration).as_micros(), Ordering::Relaxed);
        }
    }

    /// Returns true if this address has a penalty now.
    pub fn contains(&self, address: IpAddr, now: Uptime) -> bool {
        now.as_micros() < self.until.load(Ordering::Relaxed) && self.floods.retry_after(address, now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Uptime = Uptime::from_secs(1_000);
    const DURATION: Duration = Duration::from_secs(10);
    const UNLIMITED: PenaltySettings =
        PenaltySettings { duration: DURATION, failed_handshakes: 0, malformed_requests: 0, rejected_bodies: 0 };

    #[test]
    fn a_penalty_is_for_one_address_and_ends() {
        let penalties = PenaltyBox::new(UNLIMITED);
        let (attacker, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!(!penalties.contains(attacker, NOW));
        (0..100).for_each(|_| penalties.penalize(attacker, NOW));
        assert!(penalties.contains(attacker, NOW) && !penalties.contains(other, NOW));
        let almost = NOW + DURATION - Duration::from_millis(1);
        assert!(penalties.contains(attacker, almost));
        assert!(!penalties.contains(attacker, NOW + DURATION), "many floods cause no longer penalty");
        penalties.penalize(other, almost);
        assert!(penalties.contains(other, NOW + DURATION) && !penalties.contains(attacker, NOW + DURATION));
    }

    #[test]
    fn a_duration_of_zero_turns_penalties_off() {
        let settings = PenaltySettings { duration: Duration::ZERO, failed_handshakes: 1, ..UNLIMITED };
        let penalties = PenaltyBox::new(settings);
        penalties.penalize([192, 0, 2, 1].into(), NOW);
        (0..10).for_each(|_| penalties.failed_handshake([192, 0, 2, 1].into(), NOW));
        assert!(!penalties.contains([192, 0, 2, 1].into(), NOW));
    }

    #[test]
    fn too_many_failed_handshakes_in_ten_seconds_are_a_flood() {
        let (attacker, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let penalties = PenaltyBox::new(PenaltySettings { failed_handshakes: 100, ..UNLIMITED });
        (0..100).for_each(|_| penalties.failed_handshake(attacker, NOW));
        assert!(!penalties.contains(attacker, NOW));
        penalties.failed_handshake(attacker, NOW);
        assert!(penalties.contains(attacker, NOW) && !penalties.contains(other, NOW));
        // Ten a second, without end.
        let second = |second| NOW + Duration::from_secs(second);
        (0..1000).for_each(|at| (0..10).for_each(|_| penalties.failed_handshake(other, second(at))));
        assert!(!penalties.contains(other, second(1000)));
        let unlimited = PenaltyBox::new(UNLIMITED);
        (0..100_000).for_each(|_| unlimited.failed_handshake(attacker, NOW));
        assert!(!unlimited.contains(attacker, NOW));
    }
}
