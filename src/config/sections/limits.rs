//! `[timeouts]` and `[limits]`.

use std::time::Duration;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::document::units::format_size;
use crate::config::settings;
use crate::limits::limiter::Rate;
use crate::limits::pace::MinRate;
use crate::limits::penalty::PenaltySettings;
use crate::server::{ConnectionSettings, FloodSettings, LingerSettings};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// A timeout of zero would end each request, or none.
pub(super) const MIN_TIMEOUT: Duration = Duration::from_millis(1);
pub(super) const MAX_TIMEOUT: Duration = Duration::from_hours(24);

const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
const MAX_PENALTY: Duration = Duration::from_hours(1);

/// No limit. The value can be added to any time without overflow.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(super) struct Timeouts {
    tls_handshake: Duration,
    request_header: Duration,
    body_idle: Duration,
    token_call_body: Duration,
    http2_idle: Duration,
    write: Duration,
    rate_window: Duration,
    max_connection_age: Duration,
    request: Duration,
    lingering_close: Duration,
    drain: Duration,
    pub(super) store: Duration,
    /// Default of `upstream.connect_timeout`.
    pub(super) upstream_connect: Duration,
    pub(super) upstream_response: Duration,
}

pub(super) fn timeouts(table: &mut Table<'_>) -> Timeouts {
    let mut timeout = |key, seconds| table.duration(key, Duration::from_secs(seconds), MIN_TIMEOUT..=MAX_TIMEOUT);
    Timeouts {
        tls_handshake: timeout("tls_handshake", 10),
        request_header: timeout("request_header", 30),
        body_idle: timeout("body_idle", 60),
        token_call_body: timeout("token_call_body", 5),
        http2_idle: timeout("http2_idle", 60),
        write: timeout("write", 30),
        rate_window: timeout("rate_window", 30),
        store: timeout("store", 5),
        upstream_connect: timeout("upstream_connect", 5),
        upstream_response: timeout("upstream_response", 60),
        // These may be zero.
        max_connection_age: table.duration("max_connection_age", Duration::ZERO, Duration::ZERO..=7 * MAX_TIMEOUT),
        request: table.duration("request", Duration::ZERO, Duration::ZERO..=MAX_TIMEOUT),
        lingering_close: table.duration("lingering_close", Duration::from_secs(30), Duration::ZERO..=MAX_TIMEOUT),
        drain: table.duration("drain", Duration::from_secs(30), Duration::ZERO..=MAX_TIMEOUT),
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
    discarded_body_size: usize,
    http2_concurrent_streams: u32,
    flood: FloodSettings,
    penalty: PenaltySettings,
    retry_delay: Duration,
    pub(super) sessions_per_subject: usize,
    pub(super) others: settings::Limits,
}

pub(super) fn limits(table: &mut Table<'_>) -> Limits {
    let limits = Limits {
        connections: table.integer("connections", 10_000, 1..=10_000_000),
        connections_per_address: table.integer("connections_per_address", 1_000, 0..=10_000_000),
        requests_per_connection: table.integer("requests_per_connection", 0, 0..=1_000_000_000),
        concurrent_requests: table.integer("concurrent_requests", 20_000, 0..=10_000_000),
        reserve_percent: table.integer("reserve_percent", 25, 0..=90),
        // The read buffer of hyper for a head is at least 8 KiB.
        request_header_size: table.size("request_header_size", 16 * KIB, 8 * KIB..=MIB),
        request_header_count: table.integer("request_header_count", 100, 10..=1000),
        // The `http` crate accepts URIs of up to almost 64 KiB.
        uri_size: table.size("uri_size", 8 * KIB, 256..=63 * KIB),
        body_size: body_size(table),
        discarded_body_size: table.size("discarded_body_size", 64 * MIB, 0..=GIB),
        // The default of Kestrel. The slowest links in use are ten times faster.
        min_upload_rate: table.size("min_upload_rate", 240, 0..=MIB),
        min_download_rate: table.size("min_download_rate", 240, 0..=MIB),
        http2_concurrent_streams: u32::try_from(table.integer("http2_concurrent_streams", 200, 1..=10_000))
            .unwrap_or(u32::MAX),
        flood: FloodSettings {
            http2_control_frames: count(table, "http2_control_frames", 1_000),
            http2_resets: count(table, "http2_resets", 200),
        },
        retry_delay: table.duration("retry_delay", Duration::from_millis(100), Duration::ZERO..=MAX_RETRY_DELAY),
        penalty: penalty(table),
        sessions_per_subject: table.integer("sessions_per_subject", 100, 1..=10_000),
        others: settings::Limits {
            token_size: table.size("token_size", 8 * KIB, 512..=MIB),
            token_cache_size: table.size("token_cache_size", 64 * MIB, MIB..=64 * GIB),
            used_proofs: table.integer("used_proofs", 1_000_000, 1_000..=100_000_000),
            bad_signatures: bad_signatures(table, "bad_signatures", 100, 10_000),
            introspected_bad_signatures: bad_signatures(table, "introspected_bad_signatures", 10_000, 1_000_000),
        },
    };
    check_fits_header(table, "uri_size", limits.uri_size, limits.request_header_size);
    check_fits_header(table, "token_size", limits.others.token_size, limits.request_header_size);
    limits
}

fn penalty(table: &mut Table<'_>) -> PenaltySettings {
    PenaltySettings {
        duration: table.duration("penalty_duration", Duration::from_secs(10), Duration::ZERO..=MAX_PENALTY),
        failed_handshakes: count(table, "failed_handshakes", 100),
        malformed_requests: count(table, "malformed_requests", 1_000),
        rejected_bodies: count(table, "rejected_bodies", 1_000),
    }
}

/// 0: no limit.
fn count(table: &mut Table<'_>, key: &'static str, default: usize) -> u32 {
    u32::try_from(table.integer(key, default, 0..=1_000_000)).unwrap_or(u32::MAX)
}

/// The key is the burst. The full burst is available again after ten seconds.
fn bad_signatures(table: &mut Table<'_>, key: &'static str, default: usize, max: usize) -> Rate {
    let burst = u32::try_from(table.integer(key, default, 1..=max)).unwrap_or(u32::MAX);
    Rate { burst, interval: Duration::from_secs(10) / burst }
}

fn body_size(table: &mut Table<'_>) -> Option<u64> {
    let word = Shape::Choice(vec!["unlimited".to_owned()]);
    let value = table.take("body_size", Shape::Any(vec![word, Shape::Size(0..=usize::MAX)]));
    table.default("body_size", "unlimited");
    let value = value?;
    match value.is_string().then(|| value.string()).flatten() {
        Some("unlimited") => None,
        _ => value.size(0..=usize::MAX).and_then(|size| u64::try_from(size).ok()),
    }
}

/// A part of the head cannot be larger than the head. A larger limit would have no effect, and the operator would not
/// know why.
fn check_fits_header(table: &Table<'_>, key: &str, size: usize, head_size: usize) {
    if size > head_size {
        let error = ConfigError::new(
            format!("{key} ({}) is larger than request_header_size", format_size(size)),
            format!("expected at most {}, which is request_header_size", format_size(head_size)),
        );
        let place = if table.has(key) { key } else { "request_header_size" };
        table.reject(place, error.help(format!("lower {key} or raise request_header_size")));
    }
}

/// The settings of client connections, from both tables.
pub(super) fn connection(limits: &Limits, timeouts: &Timeouts) -> ConnectionSettings {
    let least = |rate| MinRate { bytes_per_second: rate as u64, window: timeouts.rate_window };
    ConnectionSettings {
        tls_handshake: timeouts.tls_handshake,
        request_header: timeouts.request_header,
        http2_idle: timeouts.http2_idle,
        write: timeouts.write,
        body_idle: timeouts.body_idle,
        token_call_body: timeouts.token_call_body,
        max_connection_age: if timeouts.max_connection_age.is_zero() { FOREVER } else { timeouts.max_connection_age },
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
        linger: LingerSettings { max_bytes: limits.discarded_body_size, max_time: timeouts.lingering_close },
        http2_concurrent_streams: limits.http2_concurrent_streams,
        flood: limits.flood,
        penalty: limits.penalty,
        retry_delay: limits.retry_delay,
    }
}
