//! The limit of lines about rejected requests: `access_log.rejections_per_second`.
//!
//! A rejection costs a client as little as 14 bytes over HTTP/2, and no token. Without this limit, one connection could
//! fill a disk. The metrics count every rejection. The same limit applies to the other requests that need no token and
//! reach no backend (`Record::is_free`).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::Uptime;

/// A burst is as many lines as this many seconds allow, so that a short failure is logged completely.
const BURST_SECONDS: u32 = 10;
/// One address may use one line in four. A flood from one address leaves room for the lines of all others.
const SHARE_OF_ADDRESS: u32 = 4;
/// The key of the limit that all requests share.
const ALL: u128 = 0;

/// Shared by all workers. Only requests that need no token use it.
pub(super) struct RejectionLimit {
    /// `None`: no limit.
    limiters: ArcSwapOption<Limiters>,
    /// The limits count from here. A clock that is set back does not matter.
    started: Instant,
}

struct Limiters {
    per_second: u32,
    of_address: Limiter,
    of_all: Limiter,
}

impl RejectionLimit {
    /// `per_second` 0: no limit.
    pub(super) fn new(per_second: u32) -> Self {
        RejectionLimit { limiters: ArcSwapOption::new(limiters(per_second)), started: Instant::now() }
    }

    /// A limit that has changed starts with its full burst.
    pub(super) fn reload(&self, per_second: u32) {
        let current = self.limiters.load().as_ref().map_or(0, |limiters| limiters.per_second);
        if current != per_second {
            self.limiters.store(limiters(per_second));
        }
    }

    /// Takes one line. Returns true if it may be written.
    pub(super) fn take(&self, client: Option<IpAddr>, now: Instant) -> bool {
        let limiters = self.limiters.load();
        let Some(limiters) = limiters.as_ref() else { return true };
        let elapsed = now.saturating_duration_since(self.started);
        let now = Uptime::default() + elapsed;
        let of_address = client.is_none_or(|client| limiters.of_address.try_take(client, now).is_ok());
        of_address && limiters.of_all.try_take(ALL, now).is_ok()
    }
}

fn limiters(per_second: u32) -> Option<Arc<Limiters>> {
    let rate = |per_second: u32| Rate {
        burst: per_second.saturating_mul(BURST_SECONDS),
        interval: Duration::from_secs(1) / per_second.max(1),
    };
    (per_second > 0).then(|| {
        Arc::new(Limiters {
            per_second,
            of_address: Limiter::new(rate((per_second / SHARE_OF_ADDRESS).max(1))),
            of_all: Limiter::with_capacity(rate(per_second), 1),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOD: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));

    fn taken(limit: &RejectionLimit, client: impl Fn(u32) -> Option<IpAddr>, at: Instant) -> usize {
        (0..10_000).filter(|number| limit.take(client(*number), at)).count()
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let limit = RejectionLimit::new(100);
        let start = limit.started;
        assert_eq!(taken(&limit, |_| FLOOD, start), 250);
        assert_eq!(taken(&limit, |_| FLOOD, start + Duration::from_secs(1)), 25);
        let others = |number: u32| Some(IpAddr::from(number.to_be_bytes()));
        assert_eq!(taken(&limit, others, start + Duration::from_secs(1)), 1_000 - 250 + 100 - 25);
        assert_eq!(taken(&limit, others, start + Duration::from_secs(2)), 100);
        assert_eq!(taken(&limit, |_| None, start + Duration::from_secs(3)), 100, "without an address");
    }

    #[test]
    fn zero_is_no_limit() {
        let limit = RejectionLimit::new(0);
        assert_eq!(taken(&limit, |_| FLOOD, limit.started), 10_000);
    }

    #[test]
    fn the_smallest_limit_still_allows_lines() {
        let limit = RejectionLimit::new(1);
        assert_eq!(taken(&limit, |_| FLOOD, limit.started), 10);
    }
}
