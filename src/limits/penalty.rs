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

use crate::limits::limiter::{Key, Limiter, Rate};
use crate::limits::network::{self, LEVELS, Network, networks};
use crate::types::clock::Uptime;
use crate::types::limit::Limit;

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
    handshakes: Option<Failures>,
    /// Malformed requests; `None` for no limit.
    requests: Option<Failures>,
    /// Rejected bodies; `None` for no limit.
    bodies: Option<Failures>,
}

/// The failures of addresses, and of the networks that they are in.
struct Failures([Limiter; LEVELS]);

impl Failures {
    fn new(burst: u32) -> Failures {
        Failures(network::WEIGHTS.map(|weight| {
            let burst = burst.saturating_mul(weight);
            Limiter::new(Rate { burst, interval: FAILURE_WINDOW / burst })
        }))
    }

    /// Counts a failure. Returns the smallest network that has too many.
    fn count(&self, address: IpAddr, now: Uptime) -> Option<Key> {
        let too_many = |network: &Network| self.0[network.level].try_take(network.key, now).is_err();
        networks(address).find(too_many).map(|network| network.key)
    }
}

impl PenaltyBox {
    pub fn new(settings: PenaltySettings) -> Self {
        let PenaltySettings { duration, failed_handshakes, malformed_requests, rejected_bodies } = settings;
        let limiter = |burst| (burst > 0).then(|| Failures::new(burst));
        PenaltyBox {
            duration,
            until: AtomicU64::new(0),
            floods: Limiter::with_capacity(Rate { burst: 1, interval: duration }, CAPACITY),
            handshakes: limiter(failed_handshakes),
            requests: limiter(malformed_requests),
            bodies: limiter(rejected_bodies),
        }
    }

    /// Counts a TLS handshake that the client began and did not complete. It has cost the gateway a signature. Returns
    /// the limit if it was hit; so do the next two.
    pub fn failed_handshake(&self, address: IpAddr, now: Uptime) -> Option<Limit> {
        self.count(self.handshakes.as_ref(), address, now).then_some(Limit::FailedHandshakes)
    }

    /// Counts a request that was malformed or had too large a head. It ends its connection, so the next one costs a new
    /// one.
    pub fn malformed_request(&self, address: IpAddr, now: Uptime) -> Option<Limit> {
        self.count(self.requests.as_ref(), address, now).then_some(Limit::MalformedRequests)
    }

    /// Counts a body that the gateway rejected and did not read. It ends its connection, and the gateway has to discard
    /// what the client still sends.
    pub fn rejected_body(&self, address: IpAddr, now: Uptime) -> Option<Limit> {
        self.count(self.bodies.as_ref(), address, now).then_some(Limit::RejectedBodies)
    }

    /// Returns true if these were too many.
    fn count(&self, failures: Option<&Failures>, address: IpAddr, now: Uptime) -> bool {
        let penalized = failures.and_then(|failures| failures.count(address, now));
        penalized.inspect(|network| self.penalize_network(*network, now)).is_some()
    }

    /// Rejects new connections of this address for the penalty duration. The rejection of the flood itself tells which
    /// limit was hit.
    pub fn penalize(&self, address: IpAddr, now: Uptime) -> Option<Limit> {
        self.penalize_network(Key::from(address), now);
        None
    }

    fn penalize_network(&self, network: Key, now: Uptime) {
        if !self.duration.is_zero() {
            self.floods.take(network, now);
            self.until.fetch_max((now + self.duration).as_micros(), Ordering::Relaxed);
        }
    }

    /// Returns true if this address, or a network that it is in, has a penalty now.
    pub fn contains(&self, address: IpAddr, now: Uptime) -> bool {
        let has_penalty = |network: Network| self.floods.retry_after(network.key, now).is_some();
        now.as_micros() < self.until.load(Ordering::Relaxed) && networks(address).any(has_penalty)
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
        let attacker = IpAddr::from([192, 0, 2, 1]);
        let other = IpAddr::from([192, 0, 2, 2]);
        assert!(!penalties.contains(attacker, NOW));
        (0..100).for_each(|_| _ = penalties.penalize(attacker, NOW));
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
        (0..10).for_each(|_| _ = penalties.failed_handshake([192, 0, 2, 1].into(), NOW));
        assert!(!penalties.contains([192, 0, 2, 1].into(), NOW));
    }

    #[test]
    fn too_many_failed_handshakes_in_ten_seconds_are_a_flood() {
        let attacker = IpAddr::from([192, 0, 2, 1]);
        let other = IpAddr::from([192, 0, 2, 2]);
        let penalties = PenaltyBox::new(PenaltySettings { failed_handshakes: 100, ..UNLIMITED });
        (0..100).for_each(|_| _ = penalties.failed_handshake(attacker, NOW));
        assert!(!penalties.contains(attacker, NOW));
        penalties.failed_handshake(attacker, NOW);
        assert!(penalties.contains(attacker, NOW) && !penalties.contains(other, NOW));
        // Ten a second, without end.
        let second = |second| NOW + Duration::from_secs(second);
        (0..1000).for_each(|at| (0..10).for_each(|_| _ = penalties.failed_handshake(other, second(at))));
        assert!(!penalties.contains(other, second(1000)));
        let unlimited = PenaltyBox::new(UNLIMITED);
        (0..100_000).for_each(|_| _ = unlimited.failed_handshake(attacker, NOW));
        assert!(!unlimited.contains(attacker, NOW));
    }

    #[test]
    fn each_kind_of_failure_has_its_own_limit() {
        const ATTACKER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
        let settings = PenaltySettings { failed_handshakes: 2, malformed_requests: 3, rejected_bodies: 4, ..UNLIMITED };
        let kinds = [PenaltyBox::failed_handshake, PenaltyBox::malformed_request, PenaltyBox::rejected_body];
        for (count, limit) in kinds.iter().zip(2..) {
            let penalties = PenaltyBox::new(settings);
            (0..limit).for_each(|_| _ = count(&penalties, ATTACKER, NOW));
            assert!(!penalties.contains(ATTACKER, NOW), "{limit}");
            count(&penalties, ATTACKER, NOW);
            assert!(penalties.contains(ATTACKER, NOW), "{limit}");
        }
    }

    /// A customer with a /48 cannot fail without end by using one /64 after the other.
    #[test]
    fn failures_in_many_small_networks_penalize_a_large_one() {
        let address = |subnet: u16| IpAddr::from([0x2001, 0xdb8, 0, subnet, 0, 0, 0, 1]);
        let penalties = PenaltyBox::new(PenaltySettings { failed_handshakes: 10, ..UNLIMITED });
        let count = |subnets: &mut dyn Iterator<Item = u16>| {
            subnets.take_while(|subnet| !penalties.contains(address(*subnet), NOW)).fold(0, |failed, subnet| {
                penalties.failed_handshake(address(subnet), NOW);
                failed + 1
            })
        };
        assert_eq!(count(&mut (0..256)), 21, "the next after twice the limit, in a /56");
        assert!(penalties.contains(address(255), NOW) && !penalties.contains(address(256), NOW));
        assert_eq!(count(&mut (256..u16::MAX).step_by(256)), 21, "the next after four times the limit, in a /48");
        let other = IpAddr::from([0x2001, 0xdb8, 1, 0, 0, 0, 0, 1]);
        assert!(penalties.contains(address(65535), NOW) && !penalties.contains(other, NOW));
    }
}
