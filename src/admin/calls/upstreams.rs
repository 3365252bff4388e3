//! `GET /admin/v1/upstreams`: the state of the servers of every upstream.

use http::{Method, Response, StatusCode};
use serde::Serialize;

use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::types::reject::{Reason, Reject};
use crate::upstream::{Report, Upstream};

pub(crate) const PATH: &str = "/admin/v1/upstreams";

#[derive(Serialize)]
struct List {
    upstreams: Vec<UpstreamEntry>,
}

#[derive(Serialize)]
struct UpstreamEntry {
    name: String,
    servers: Vec<Server>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    server: String,
    /// See [`Report::state`].
    state: &'static str,
    share: f64,
    in_flight: usize,
    ejections: u64,
    retries: u64,
    failed_checks: u64,
    broken_responses: u64,
    /// The addresses from the last DNS lookup.
    addresses: Vec<String>,
}

pub(crate) fn handle(admin: &Admin, method: &Method) -> Result<Response<Body>, Reject> {
    if *method != Method::GET {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD"));
    }
    let upstreams = admin.upstreams.load();
    let list = List { upstreams: upstreams.iter().map(|upstream| UpstreamEntry::of(upstream)).collect() };
    Ok(respond::json(StatusCode::OK, &list))
}

impl UpstreamEntry {
    fn of(upstream: &Upstream) -> Self {
        UpstreamEntry {
            name: upstream.name.to_string(),
            servers: upstream.report().into_iter().map(Server::of).collect(),
        }
    }
}

impl Server {
    fn of(report: Report) -> Self {
        Server {
            server: report.server,
            state: report.state,
            share: report.share,
            in_flight: report.in_flight,
            ejections: report.ejections,
            retries: report.retries,
            failed_checks: report.failed_checks,
            broken_responses: report.broken_responses,
            addresses: report.addresses.iter().map(ToString::to_string).collect(),
        }
    }
}
