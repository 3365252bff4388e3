//! Addresses that flooded us a moment ago, and are not let in again at once.
//!
//! Ending a flood costs its sender one new connection, and us a handshake and the first second's worth of frames. Asked once a
//! connection, before TLS. Several honest people may share an address, so a pause is short, keeps no open connection from going
//! on, and can be turned off; whoever brings the connections of others is never paused.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::UnixTime;
use crate::limiter::{Limiter, Rate};

/// Of 65,536 to 131,072 addresses the pause is remembered; forgetting errs on the side of letting in.
const ROOM: usize = 65_536;

pub struct Paused {
    /// How long; zero: never.
    time: Duration,
    /// The end of the last pause, in milliseconds. After it nobody is paused, and nothing is looked up.
    until: AtomicU64,
    /// Each has one in so much time, and a flood takes it.
    floods: Limiter,
}

impl Paused {
    /// `limits.flood_pause`
    pub fn for_a(time: Duration) -> Self {
        Paused { time, until: AtomicU64::new(0), floods: Limiter::with_room(Rate { burst: 1, every: time }, ROOM) }
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

    #[test]
    fn a_pause_is_of_one_address_and_ends() {
        let paused = Paused::for_a(PAUSE);
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
        let paused = Paused::for_a(Duration::ZERO);
        paused.pause([192, 0, 2, 1].into(), NOW);
        assert!(!paused.has([192, 0, 2, 1].into(), NOW));
    }
}
