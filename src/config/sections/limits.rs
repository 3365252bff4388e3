//! `[timeouts]` and `[limits]`.

use std::time::Duration;

use crate::config;
use crate::config::document::error::Fault;
use crate::config::document::table::Table;
use crate::config::document::units::spell_size;
use crate::limits::limiter::Rate;
use crate::limits::pace::MinRate;
use crate::limits::penalty::PenaltySettings;
use crate::server::{ConnectionSettings, FloodSettings};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// Zero would end every request, or none: a timeout is at least this long.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);
pub(super) const LONGEST: Duration = Duration::from_hours(24);

/// Longer than a machine runs, and short enough to be added to any time.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(super) struct Timeouts {
    tls_handshake: Duration,
    request_header: Duration,
    body_idle: Duration,
    http2_idle: Duration,
    write: Duration,
    rate_window: Duration,
    max_connection_age: Duration,
    request: Duration,
    drain: Duration,
    pub(super) store: Duration,
    /// Unless the upstream says otherwise.
    pub(super) upstream_connect: Duration,
    pub(super) upstream_response: Duration,
}

pub(super) fn timeouts(table: &mut Table<'_>) -> Timeouts {
    let mut timeout = |key, seconds| table.duration(key, Duration::from_secs(seconds), SHORTEST..=LONGEST);
    Timeouts {
        tls_handshake: timeout("tls_handshake", 10),
        request_header: timeout("request_header", 30),
        body_idle: timeout("body_idle", 60),
        http2_idle: timeout("http2_idle", 60),
        write: timeout("write", 30),
        rate_window: timeout("rate_window", 30),
        store: timeout("store", 5),
        upstream_connect: timeout("upstream_connect", 5),
        upstream_response: timeout("upstream_response", 60),
        // The one that may be zero: then SIGTERM ends everything at once.
        max_connection_age: table.duration("max_connection_age", Duration::ZERO, Duration::ZERO..=7 * LONGEST),
        request: table.duration("request", Duration::ZERO, Duration::ZERO..=LONGEST),
        drain: table.duration("drain", Duration::from_secs(30), Duration::ZERO..=LONGEST),
    }
}

pub(super) struct Limits {
    connections: usize,
    connections_per_address: usize,
    concurrent_requests: usize,
    reserve_percent: usize,
    requests_per_connection: usize,
    request_header_size: usize,
    request_header_count: usize,
    uri_size: usize,
    min_upload_rate: usize,
    min_download_rate: usize,
    body_size: Option<u64>,
    http2_concurrent_streams: u32,
    flood: FloodSettings,
    penalty: PenaltySettings,
    retry_delay: Duration,
    pub(super) sessions_per_subject: usize,
    pub(super) others: config::Limits,
}

pub(super) fn limits(table: &mut Table<'_>) -> Limits {
    let limits = Limits {
        connections: table.whole("connections", 10_000, 1..=10_000_000),
        connections_per_address: table.whole("connections_per_address", 1_000, 0..=10_000_000),
        requests_per_connection: table.whole("requests_per_connection", 0, 0..=1_000_000_000),
        concurrent_requests: table.whole("concurrent_requests", 20_000, 0..=10_000_000),
        reserve_percent: table.whole("reserve_percent", 25, 0..=90),
        // hyper's read buffer for a head is never below 8 KiB.
        request_header_size: table.size("request_header_size", 16 * KIB, 8 * KIB..=MIB),
        request_header_count: table.whole("request_header_count", 100, 10..=1000),
        // The most the `http` crate takes as a URI is a little below 64 KiB.
        uri_size: table.size("uri_size", 8 * KIB, 256..=63 * KIB),
        body_size: body_size(table),
        // What Kestrel asks of its clients by default. The slowest link that anybody uses is ten times as fast.
        min_upload_rate: table.size("min_upload_rate", 240, 0..=MIB),
        min_download_rate: table.size("min_download_rate", 240, 0..=MIB),
        http2_concurrent_streams: u32::try_from(table.whole("http2_concurrent_streams", 200, 1..=10_000))
            .unwrap_or(u32::MAX),
        flood: FloodSettings {
            http2_control_frames: count(table, "http2_control_frames", 1_000),
            http2_resets: count(table, "http2_resets", 200),
        },
        retry_delay: table.duration(
            "retry_delay",
            Duration::from_millis(100),
            Duration::ZERO..=Duration::from_secs(10),
        ),
        penalty: PenaltySettings {
            duration: table.duration(
                "penalty_duration",
                Duration::from_secs(10),
                Duration::ZERO..=Duration::from_hours(1),
            ),
            failed_handshakes: count(table, "failed_handshakes", 100),
            malformed_requests: count(table, "malformed_requests", 1_000),
            rejected_bodies: count(table, "rejected_bodies", 1_000),
        },
        sessions_per_subject: table.whole("sessions_per_subject", 100, 1..=10_000),
        others: config::Limits {
            token_size: table.size("token_size", 8 * KIB, 512..=MIB),
            token_cache_size: table.size("token_cache_size", 64 * MIB, MIB..=64 * GIB),
            bad_signatures: bad_signatures(table),
        },
    };
    fits_the_head(table, "uri_size", limits.uri_size, limits.request_header_size);
    fits_the_head(table, "token_size", limits.others.token_size, limits.request_header_size);
    limits
}

/// 0 for any number.
fn count(table: &mut Table<'_>, key: &'static str, default: usize) -> u32 {
    u32::try_from(table.whole(key, default, 0..=1_000_000)).unwrap_or(u32::MAX)
}

/// The key is the burst. What was used up is back after ten seconds.
fn bad_signatures(table: &mut Table<'_>) -> Rate {
    let burst = u32::try_from(table.whole("bad_signatures", 100, 1..=10_000)).unwrap_or(u32::MAX);
    Rate { burst, every: Duration::from_secs(10) / burst }
}

fn body_size(table: &mut Table<'_>) -> Option<u64> {
    let value = table.take("body_size")?;
    match value.is_text().then(|| value.text()).flatten() {
        Some("unlimited") => None,
        _ => value.size(0..=usize::MAX).and_then(|size| u64::try_from(size).ok()),
    }
}

/// What arrives within the head cannot be larger than the head: the limit would never be reached, and whoever raised it
/// would wonder why.
fn fits_the_head(table: &Table<'_>, key: &str, size: usize, head_size: usize) {
    if size > head_size {
        let fault = Fault::new(
            format!("{} do not fit into a request head", spell_size(size)),
            format!("expected at most {}, which is request_header_size", spell_size(head_size)),
        );
        let place = if table.has(key) { key } else { "request_header_size" };
        table.wrong(place, fault.help(format!("raise request_header_size, or lower {key}")));
    }
}

/// The client's side of both tables.
pub(super) fn connection(limits: &Limits, timeouts: &Timeouts) -> ConnectionSettings {
    let least = |rate| MinRate { rate: rate as u64, over: timeouts.rate_window };
    ConnectionSettings {
        tls_handshake: timeouts.tls_handshake,
        request_header: timeouts.request_header,
        http2_idle: timeouts.http2_idle,
        write: timeouts.write,
        body_idle: timeouts.body_idle,
        max_connection_age: if timeouts.max_connection_age.is_zero() { FOR_EVER } else { timeouts.max_connection_age },
        requests_per_connection: match limits.requests_per_connection {
            0 => u64::MAX,
            requests => requests as u64,
        },
        request: Some(timeouts.request).filter(|time| !time.is_zero()),
        drain: timeouts.drain,
        min_upload_rate: least(limits.min_upload_rate),
        min_download_rate: least(limits.min_download_rate),
        connections: limits.connections,
        connections_per_address: limits.connections_per_address,
        concurrent_requests: limits.concurrent_requests,
        reserve_percent: limits.reserve_percent,
        request_header_size: limits.request_header_size,
        request_header_count: limits.request_header_count,
        uri_size: limits.uri_size,
        body_size: limits.body_size,
        http2_concurrent_streams: limits.http2_concurrent_streams,
        flood: limits.flood,
        penalty: limits.penalty,
        retry_delay: limits.retry_delay,
    }
}
