//! `GET /admin/v1/certificates`: the active certificates of every listener.

use std::net::SocketAddr;

use http::{Method, Response, StatusCode};
use serde::Serialize;

use crate::admin::state::{Admin, ListenerTls};
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::protocols::tls::{AcmeNames, AcmeState, Description};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

pub(crate) const PATH: &str = "/admin/v1/certificates";

const DAY: i64 = 24 * 60 * 60;

#[derive(Serialize)]
struct List {
    listeners: Vec<Listener>,
}

#[derive(Serialize)]
struct Listener {
    address: SocketAddr,
    admin: bool,
    tls: bool,
    certificates: Vec<Certificate>,
    acme: Vec<AcmeName>,
}

/// A name that an ACME server certifies.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AcmeName {
    name: String,
    /// Whether there is a certificate.
    issued: bool,
    /// RFC 3339. Missing while an order is in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_order: Option<String>,
    /// Failed orders in a row.
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Certificate {
    file: String,
    names: Vec<String>,
    issuer: String,
    /// RFC 3339.
    not_after: String,
    /// Whole days. Negative after it has expired.
    days_left: i64,
}

pub(crate) fn handle(admin: &Admin, method: &Method, now: UnixTime) -> Result<Response<Body>, Reject> {
    if *method != Method::GET {
        return Err(Reject::from(Reason::MethodNotAllowed).allows("GET, HEAD"));
    }
    let listeners = admin.listeners.iter().map(|listener| Listener::of(listener, now)).collect();
    Ok(respond::json(StatusCode::OK, &List { listeners }))
}

impl Listener {
    fn of(listener: &ListenerTls, now: UnixTime) -> Self {
        let active = listener.tls.as_ref().map(|tls| tls.load_full());
        let certificates = active.iter().flat_map(|tls| &tls.certificates);
        Listener {
            address: listener.address,
            admin: listener.is_admin,
            tls: active.is_some(),
            certificates: certificates.map(|certificate| Certificate::of(certificate, now)).collect(),
            acme: active.iter().flat_map(|tls| &tls.acme).flat_map(AcmeName::all).collect(),
        }
    }
}

impl AcmeName {
    fn all(listener: &AcmeNames) -> impl Iterator<Item = Self> {
        listener.names.iter().map(|name| {
            let known = listener.certificates.name(name).unwrap_or_default();
            let AcmeState { next_order, failures, error } = known.state.clone();
            let next_order = next_order.map(|time| time.to_string());
            AcmeName { name: name.clone(), issued: known.issued.is_some(), next_order, failures, error }
        })
    }
}

impl Certificate {
    fn of(certificate: &Description, now: UnixTime) -> Self {
        Certificate {
            file: certificate.file.display().to_string(),
            names: certificate.names.clone(),
            issuer: certificate.issuer.clone(),
            not_after: UnixTime::from_secs(certificate.not_after).to_string(),
            days_left: days_left(certificate.not_after, now),
        }
    }
}

/// Rounded down: on its last day 0, and -1 as soon as it has expired.
pub(super) fn days_left(not_after: u64, now: UnixTime) -> i64 {
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    (seconds(not_after).saturating_sub(seconds(now.as_secs()))).div_euclid(DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_rounded_down_on_both_sides_of_the_end() {
        const END: u64 = 1_000 * DAY as u64;
        for (now, expected) in
            [(END - 2 * DAY as u64, 2), (END - DAY as u64 + 1, 0), (END, 0), (END + 1, -1), (2 * END, -1_000)]
        {
            assert_eq!(days_left(END, UnixTime::from_secs(now)), expected, "{now}");
        }
        assert!(days_left(u64::MAX, UnixTime::default()) > 0);
    }
}
