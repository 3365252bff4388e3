//! The newest rejections, in memory: why a request was rejected, or why its response broke off, by the id that its
//! client has.
//!
//! Each worker has a list of its own, so that no two of them wait for each other. A flood of rejections from one
//! address does not displace those of others: beyond its share, an address has a place in a smaller list, for all such
//! addresses together.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::access_log::{OAuthRequest, Record, cut, is_cut_from, without_tokens};
use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::{UnixTime, Uptime};
use crate::types::ids::{RequestId, TokenId};
use crate::types::reject::Reason;

/// An address may use one entry in four at once.
const SHARE_OF_ADDRESS: usize = 4;
/// How long until an address has its share again.
const SHARE_TIME: Duration = Duration::from_secs(10);
/// The entries for addresses beyond their share: one for each four others.
const EXCESS: usize = 4;

/// A rejected request, or one with a response that broke off. No token, no query, and every text at most as long as in
/// the access log.
#[derive(Clone, Debug)]
pub struct Rejection {
    pub request_id: RequestId,
    pub time: UnixTime,
    pub reason: Reason,
    /// If true, the request was forwarded: its route has `enforce = false`.
    pub is_observed: bool,
    /// If true, the request was forwarded, and its response broke off.
    pub is_broken: bool,
    pub status: u16,
    pub detail: Option<Box<str>>,
    pub client: Option<IpAddr>,
    pub method: Box<str>,
    pub host: Option<Box<str>>,
    pub path: Box<str>,
    pub route: Option<Arc<str>>,
    /// Of a token with a valid signature.
    pub subject: Option<Box<str>>,
    pub token_id: Option<TokenId>,
    /// Of a client that asks a user, or redeems a code. Boxed because it is rare.
    pub oauth: Option<Box<OAuthRequest>>,
}

impl Rejection {
    /// `None` if the request was not rejected, and its response did not break off.
    fn of(record: &Record, max_field: usize) -> Option<Self> {
        let reject = record.failure().or(record.observed.as_deref())?;
        let short = |text: &str| Box::from(cut(text, max_field));
        Some(Rejection {
            request_id: record.request_id,
            time: record.time,
            reason: reject.reason,
            is_observed: record.failure().is_none(),
            is_broken: record.rejected.is_none() && record.broken.is_some(),
            status: record.status,
            detail: record.detail().map(short),
            client: record.client.map(|client| client.to_canonical()),
            method: short(record.method.as_str()),
            host: record.host().map(short),
            path: short(&without_tokens(record.path())),
            route: record.route.clone(),
            subject: record.token().map(|token| short(&token.subject)),
            token_id: record.token_id.or_else(|| record.token().and_then(|token| token.family)),
            oauth: record.oauth.as_ref().map(|asked| Box::new(asked.cut(max_field))),
        })
    }
}

/// Which rejections to list. The default is all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    pub reason: Option<Reason>,
    pub client: Option<IpAddr>,
    pub subject: Option<String>,
    pub route: Option<String>,
}

impl Filter {
    fn admits(&self, rejection: &Rejection) -> bool {
        self.reason.is_none_or(|reason| rejection.reason == reason)
            && self.client.is_none_or(|client| rejection.client == Some(client.to_canonical()))
            && self
                .subject
                .as_ref()
                .is_none_or(|subject| rejection.subject.as_deref().is_some_and(|kept| is_cut_from(kept, subject)))
            && self.route.as_ref().is_none_or(|route| rejection.route.as_deref() == Some(route))
    }
}

/// Those of all workers.
pub struct RecentRejections(Vec<Arc<WorkerRejections>>);

impl RecentRejections {
    /// `capacity`: of each worker. `max_field`: the maximum bytes of a text.
    pub fn new(workers: usize, capacity: usize, max_field: usize) -> Self {
        let share = u32::try_from(capacity / SHARE_OF_ADDRESS).unwrap_or(u32::MAX).max(1);
        let shares = Arc::new(Limiter::new(Rate { burst: share, interval: SHARE_TIME / share }));
        let started = Instant::now();
        let worker = |_| {
            let lists = Mutex::default();
            let shares = shares.clone();
            Arc::new(WorkerRejections { capacity, max_field: max_field.into(), lists, shares, started })
        };
        RecentRejections((0..workers).map(worker).collect())
    }

    /// Changes the maximum bytes of a text.
    pub fn set_max_field(&self, max_field: usize) {
        self.0.iter().for_each(|worker| worker.max_field.store(max_field, Ordering::Relaxed));
    }

    /// `None` if there are none to keep.
    pub fn worker(&self, number: usize) -> Option<Arc<WorkerRejections>> {
        self.0.get(number).filter(|worker| worker.capacity > 0).cloned()
    }

    /// The rejection of this request, if it is one of the newest.
    pub fn find(&self, request_id: &str) -> Option<Rejection> {
        self.0.iter().find_map(|worker| {
            let lists = worker.lists.lock();
            let mut all = lists.recent.iter().chain(&lists.excess);
            all.find(|rejection| rejection.request_id.as_hex() == *request_id.as_bytes()).cloned()
        })
    }

    /// The newest first, at most `limit`.
    pub fn newest(&self, filter: &Filter, limit: usize) -> Vec<Rejection> {
        let mut found = Vec::new();
        for worker in &self.0 {
            let lists = worker.lists.lock();
            // Only what may be in the result is copied, because a rejected request waits for the lock.
            for list in [&lists.recent, &lists.excess] {
                found.extend(list.iter().rev().filter(|rejection| filter.admits(rejection)).take(limit).cloned());
            }
        }
        found.sort_by_key(|rejection| std::cmp::Reverse(rejection.time));
        found.truncate(limit);
        found
    }
}

/// Those of one worker. Only a request that is kept touches it.
pub struct WorkerRejections {
    capacity: usize,
    max_field: AtomicUsize,
    lists: Mutex<Lists>,
    /// Shared by all workers.
    shares: Arc<Limiter>,
    started: Instant,
}

#[derive(Default)]
struct Lists {
    recent: VecDeque<Rejection>,
    /// Of addresses beyond their share.
    excess: VecDeque<Rejection>,
}

impl WorkerRejections {
    /// Keeps the request if it was rejected, or if its response broke off.
    pub fn push(&self, record: &Record) {
        self.push_at(record, Uptime::default() + self.started.elapsed());
    }

    fn push_at(&self, record: &Record, now: Uptime) {
        let Some(rejection) = Rejection::of(record, self.max_field.load(Ordering::Relaxed)) else { return };
        let is_excess = rejection.client.is_some_and(|client| self.shares.try_take(client, now).is_err());
        let mut lists = self.lists.lock();
        let (list, capacity) = if is_excess {
            (&mut lists.excess, (self.capacity / EXCESS).max(1))
        } else {
            (&mut lists.recent, self.capacity)
        };
        let displaced = if list.len() >= capacity { list.pop_front() } else { None };
        list.push_back(rejection);
        // Its memory is freed after the lock.
        drop(lists);
        drop(displaced);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::types::ids::RequestIds;
    use crate::types::reject::Reject;

    const FLOOD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    fn rejected(ids: &RequestIds, client: IpAddr, at: u64) -> Record {
        Record {
            request_id: ids.next(),
            time: UnixTime::from_millis(at),
            client: Some(client),
            status: 401,
            rejected: Some(Reject::new(Reason::Expired, "too late")),
            ..Record::default()
        }
    }

    #[test]
    fn a_flood_from_one_address_displaces_no_other() {
        let all = RecentRejections::new(1, 100, 256);
        let ids = RequestIds::new();
        let worker = all.worker(0).expect("it keeps some");
        let honest = rejected(&ids, OTHER, 0);
        worker.push(&honest);
        let mut last = honest.request_id;
        for at in 1..=10_000 {
            let record = rejected(&ids, FLOOD, at);
            last = record.request_id;
            worker.push_at(&record, Uptime::default());
        }
        for id in [honest.request_id, last] {
            assert_eq!(all.find(&id.to_string()).map(|found| found.request_id), Some(id));
        }
        let kept = all.newest(&Filter::default(), 1_000);
        assert!((50..=51).contains(&kept.len()), "{}: the share, the excess and the other one", kept.len());
        assert_eq!(kept[0].request_id, last, "the newest first");
    }

    #[test]
    fn the_oldest_is_displaced() {
        let all = RecentRejections::new(2, 4, 256);
        let ids = RequestIds::new();
        let records: Vec<_> = (0..5).map(|at| rejected(&ids, IpAddr::from([10, 0, 0, at as u8]), at)).collect();
        let worker = all.worker(1).expect("it keeps some");
        records.iter().for_each(|record| worker.push(record));
        let found: Vec<_> = records.iter().map(|record| all.find(&record.request_id.to_string()).is_some()).collect();
        assert_eq!(found, [false, true, true, true, true]);
        assert_eq!(all.newest(&Filter::default(), 2).len(), 2);
    }

    #[test]
    fn only_rejected_and_observed_requests_are_kept() {
        let all = RecentRejections::new(1, 4, 3);
        let ids = RequestIds::new();
        let worker = all.worker(0).expect("it keeps some");
        let observed = Some(Arc::new(Reject::new(Reason::Revoked, "")));
        worker.push(&Record { rejected: None, ..rejected(&ids, FLOOD, 1) });
        worker.push(&Record { rejected: None, observed, status: 200, ..rejected(&ids, FLOOD, 2) });
        worker.push(&rejected(&ids, OTHER, 3));
        let kept = all.newest(&Filter::default(), 10);
        let [expired, revoked] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!((expired.detail.as_deref(), expired.is_observed), (Some("too…"), false), "as short as configured");
        assert_eq!((revoked.detail.as_deref(), revoked.is_observed, revoked.status), (None, true, 200));
        assert!(RecentRejections::new(1, 0, 256).worker(0).is_none(), "0 keeps none");
    }

    #[test]
    fn a_filter_names_each_property() {
        let all = RecentRejections::new(1, 10, 256);
        let ids = RequestIds::new();
        let worker = all.worker(0).expect("it keeps some");
        worker.push(&Record { route: Some("api".into()), ..rejected(&ids, FLOOD, 1) });
        worker.push(&Record { rejected: Some(Reason::NoToken.into()), ..rejected(&ids, OTHER, 2) });
        for (filter, expected) in [
            (Filter::default(), 2),
            (Filter { reason: Some(Reason::NoToken), ..Filter::default() }, 1),
            (Filter { reason: Some(Reason::Revoked), ..Filter::default() }, 0),
            (Filter { client: "::ffff:192.0.2.1".parse().ok(), ..Filter::default() }, 1),
            (Filter { route: Some("api".into()), ..Filter::default() }, 1),
            (Filter { route: Some("ap".into()), ..Filter::default() }, 0),
            (Filter { subject: Some("alice".into()), ..Filter::default() }, 0),
        ] {
            assert_eq!(all.newest(&filter, 10).len(), expected, "{filter:?}");
        }
    }
}
