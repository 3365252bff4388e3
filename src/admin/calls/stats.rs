//! `/admin/v1/stats`: what the gateway did in the last seconds.
//!
//! | request | response |
//! |---|---|
//! | `GET /admin/v1/stats` | 200, `{"seconds": […], "limitsHit": {…}}`, the newest second first |
//! | `GET /admin/v1/stats/stream` | 200, an event stream: the same with one second, once a second; 429 |

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use serde::Serialize;

use super::query::Query;
use crate::admin::access::sessions::Caller;
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::telemetry::snapshots::{self, Snapshot, Snapshots};
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/stats";
pub(crate) const STREAM_PATH: &str = "/admin/v1/stats/stream";

/// How many seconds are listed if the call does not say it.
const DEFAULT_SECONDS: usize = 60;

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    seconds: Vec<Second>,
    /// In the last hour, by the key in `gateway.toml`. Only those that were hit.
    limits_hit: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Second {
    /// RFC 3339.
    time: String,
    /// In seconds.
    interval: f64,
    requests: Requests,
    /// By reason. Only those that occurred.
    rejections: BTreeMap<&'static str, u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_seconds: Option<f64>,
    requests_in_flight: u64,
    open_streams: u64,
    open_connections: u64,
    tokens_known: u64,
    servers: Servers,
    log_lines_dropped: u32,
}

/// By status class.
#[derive(Serialize)]
struct Requests {
    #[serde(rename = "1xx")]
    informational: u32,
    #[serde(rename = "2xx")]
    successful: u32,
    #[serde(rename = "3xx")]
    redirected: u32,
    #[serde(rename = "4xx")]
    client_error: u32,
    #[serde(rename = "5xx")]
    server_error: u32,
    #[serde(rename = "clientClosed")]
    client_closed: u32,
}

#[derive(Serialize)]
struct Servers {
    r#in: u32,
    returning: u32,
    ejected: u32,
    unhealthy: u32,
}

pub(crate) fn handle(admin: &Admin, method: &Method, uri: &Uri, caller: &Caller) -> Result<Response<Body>, Reject> {
    if *method != Method::GET {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD"));
    }
    let mut query = Query::read(uri)?;
    if uri.path() == STREAM_PATH {
        query.finish()?;
        return stream(admin, caller);
    }
    let seconds = query.number("seconds", DEFAULT_SECONDS, snapshots::KEPT)?;
    query.finish()?;
    Ok(respond::json(StatusCode::OK, &Stats::of(&admin.snapshots, seconds)))
}

/// It ends within a second after the session of its operator.
fn stream(admin: &Admin, caller: &Caller) -> Result<Response<Body>, Reject> {
    let sessions = admin.sessions.clone();
    let clock = admin.clock.clone();
    let session = caller.session;
    let next = move |snapshots: &Snapshots| {
        let may_read = session.is_none_or(|session| sessions.is_live(&session, clock.uptime()));
        may_read.then(|| event(snapshots))
    };
    let body = admin.stats_streams.open(&admin.snapshots, next)?;
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, EVENT_STREAM);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    Ok(response)
}

/// An event has one line of data: JSON has no line breaks.
fn event(snapshots: &Snapshots) -> Bytes {
    let data = serde_json::to_string(&Stats::of(snapshots, 1)).unwrap_or_else(|_| "{}".to_owned());
    Bytes::from(format!("data: {data}\n\n"))
}

impl Stats {
    fn of(snapshots: &Snapshots, seconds: usize) -> Self {
        let seconds = snapshots.newest(seconds).iter().map(Second::of).collect();
        Stats { seconds, limits_hit: snapshots.limits_hit().into_iter().collect() }
    }
}

impl Second {
    fn of(snapshot: &Snapshot) -> Self {
        let [client_closed, informational, successful, redirected, client_error, server_error] = snapshot.requests;
        let snapshots::Servers { serving, returning, ejected, unhealthy } = snapshot.servers;
        Second {
            time: snapshot.time.to_string(),
            interval: snapshot.interval.as_secs_f64(),
            requests: Requests { informational, successful, redirected, client_error, server_error, client_closed },
            rejections: snapshot.rejections().map(|(reason, count)| (reason.code(), count)).collect(),
            p50_seconds: snapshot.p50.map(|p50| p50.as_secs_f64()),
            p99_seconds: snapshot.p99.map(|p99| p99.as_secs_f64()),
            requests_in_flight: snapshot.requests_in_flight,
            open_streams: snapshot.open_streams,
            open_connections: snapshot.open_connections,
            tokens_known: snapshot.tokens_known,
            servers: Servers { r#in: serving, returning, ejected, unhealthy },
            log_lines_dropped: snapshot.log_lines_dropped,
        }
    }
}
