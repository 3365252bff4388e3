//! Counts of hits of each limit of `gateway.toml`, from the counters.
//!
//! Absent are limits that the gateway cannot see, or that are hit all the time; `deploy/monitoring.md` names them.

use super::worker::WorkerMetrics;
use crate::types::limit::Limit;
use crate::types::reject::Reason;

type ReadHits = fn(&WorkerMetrics) -> u64;

/// How many limits are counted.
pub(super) const COUNT: usize = OF_CLIENTS.len() + OF_ADMIN.len();

/// The name of each limit. Its hits have the same place in [`hits`].
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OF_CLIENTS.iter().chain(OF_ADMIN).map(|(name, _)| *name)
}

/// `admin`: the counters of the thread that serves the admin listener.
pub(super) fn hits(workers: &[impl AsRef<WorkerMetrics>], admin: Option<&WorkerMetrics>) -> [u64; COUNT] {
    let sum = |read: &ReadHits| workers.iter().map(|worker| read(worker.as_ref())).sum();
    let mut hits = [0; COUNT];
    let (of_clients, of_admin) = hits.split_at_mut(OF_CLIENTS.len());
    of_clients.iter_mut().zip(OF_CLIENTS).for_each(|(hits, (_, read))| *hits = sum(read));
    of_admin.iter_mut().zip(OF_ADMIN).for_each(|(hits, (_, read))| *hits = admin.map_or(0, read));
    hits
}

const OF_CLIENTS: &[(&str, ReadHits)] = &[
    ("limits.connections", |worker| worker.connections_rejected.get() + worker.idle_connections_closed.get()),
    ("limits.connections_per_address", |worker| worker.address_connections_rejected.get()),
    ("limits.penalty_duration", |worker| worker.penalized_connections_rejected.get()),
    ("limits.min_download_rate", |worker| worker.hits_of(Limit::MinDownloadRate)),
    ("limits.concurrent_requests", |worker| others(worker, Reason::Overloaded, Limit::ReservePercent)),
    ("limits.reserve_percent", |worker| worker.hits_of(Limit::ReservePercent)),
    ("limits.request_header_size", |worker| others(worker, Reason::HeadTooLarge, Limit::RequestHeaderCount)),
    ("limits.request_header_count", |worker| worker.hits_of(Limit::RequestHeaderCount)),
    ("limits.uri_size", |worker| worker.rejections_for(Reason::UriTooLong)),
    ("limits.body_size", |worker| worker.hits_of(Limit::BodySize)),
    ("limits.min_upload_rate", |worker| worker.rejections_for(Reason::BodyTooSlow)),
    ("limits.http2_control_frames", |worker| others(worker, Reason::Http2Flood, Limit::Http2Resets)),
    ("limits.http2_resets", |worker| worker.hits_of(Limit::Http2Resets)),
    ("limits.requests_per_connection", |worker| worker.hits_of(Limit::RequestsPerConnection)),
    ("limits.discarded_body_size", |worker| worker.hits_of(Limit::DiscardedBodySize)),
    ("limits.failed_handshakes", |worker| worker.hits_of(Limit::FailedHandshakes)),
    ("limits.malformed_requests", |worker| worker.hits_of(Limit::MalformedRequests)),
    ("limits.rejected_bodies", |worker| worker.hits_of(Limit::RejectedBodies)),
    ("limits.retry_delay", |worker| worker.hits_of(Limit::RetryDelay)),
    ("limits.token_size", |worker| worker.rejections_for(Reason::TokenTooLarge)),
    ("limits.used_proofs", |worker| worker.rejections_for(Reason::ProofsFull)),
    ("limits.bad_signatures", |worker| others(worker, Reason::RateLimited, Limit::IntrospectedBadSignatures)),
    ("limits.introspected_bad_signatures", |worker| worker.hits_of(Limit::IntrospectedBadSignatures)),
    ("rate", |worker| worker.rejections_for(Reason::QuotaExceeded)),
    ("throttle.refreshes", |worker| worker.rejections_for(Reason::FamilyLimited)),
    ("throttle.calls", |worker| worker.rejections_for(Reason::AddressLimited)),
    ("throttle.failures", |worker| worker.rejections_for(Reason::FailuresLimited)),
    ("upstream.max_concurrent_requests", |worker| worker.rejections_for(Reason::UpstreamBusy)),
];

/// Of the thread that serves the admin listener, and orders certificates.
const OF_ADMIN: &[(&str, ReadHits)] = &[
    ("acme.orders_per_hour", |admin| admin.hits_of(Limit::AcmeOrders)),
    ("admin.connections", |admin| admin.connections_rejected.get() + admin.idle_connections_closed.get()),
    ("admin.connections_per_address", |admin| admin.address_connections_rejected.get()),
    ("admin.streams", |admin| admin.rejections_for(Reason::StreamsLimited)),
    ("admin.wrong_tokens", |admin| admin.rejections_for(Reason::AdminLimited)),
];

/// The rejections for a reason that two limits share, less those of the other limit.
fn others(worker: &WorkerMetrics, reason: Reason, other: Limit) -> u64 {
    worker.rejections_for(reason).saturating_sub(worker.hits_of(other))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_listener_counts_for_its_own_limits() {
        let [first, second, admin] = [(); 3].map(|()| Arc::new(WorkerMetrics::default()));
        first.connections_rejected.add(2);
        second.idle_connections_closed.add(3);
        admin.connections_rejected.add(7);
        second.rejected(Reason::Overloaded);
        admin.rejected(Reason::AdminLimited);
        let hits = hits(&[first, second], Some(&admin));
        let hit: Vec<_> = names().zip(hits).filter(|(_, hits)| *hits > 0).collect();
        let expected = [
            ("limits.connections", 5),
            ("limits.concurrent_requests", 1),
            ("admin.connections", 7),
            ("admin.wrong_tokens", 1),
        ];
        assert_eq!(hit, expected);
    }
}
