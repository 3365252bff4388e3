//! `/healthz`, `/readyz` and `/metrics`: open, because probes and scrapers have no token. They name no subject.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;

/// In `Accept`.
const OPENMETRICS: &[u8] = b"application/openmetrics-text";

/// How long a scrape waits for a store that hangs. The timeout of Prometheus is 10 seconds by default.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn health() -> Response<Body> {
    respond::json(StatusCode::OK, &json!({ "status": "alive" }))
}

/// 200 if a request would be served now and a revocation would be durable. The state of backends does not count: if one
/// backend is down, a load balancer must not remove every gateway and with it the requests for the others.
pub(super) async fn readiness(admin: &Admin) -> Response<Body> {
    match not_ready(admin).await {
        None => respond::json(StatusCode::OK, &json!({ "status": "ready" })),
        Some(reason) => {
            respond::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "not ready", "reason": reason }))
        }
    }
}

/// The reason why the gateway is not ready.
async fn not_ready(admin: &Admin) -> Option<String> {
    if !admin.serving.load(Ordering::Acquire) {
        return Some("starting or draining".to_owned());
    }
    if let Some(reason) = admin.broker.keyring.not_ready(admin.clock.uptime()) {
        return Some(reason);
    }
    if let Some(reason) = admin.broker.store.freshness().and_then(|freshness| freshness.not_ready()) {
        return Some(reason);
    }
    let broker = admin.broker.clone();
    let check = async move {
        let checked = broker.with_timeout(broker.store.check()).await;
        checked.err().map(|error| format!("store: {error}"))
    };
    admin.readiness.result(check).await
}

/// In the OpenMetrics format if the scraper reads it, as Prometheus does.
pub(super) async fn metrics(admin: &Admin, headers: &HeaderMap) -> Response<Body> {
    let checked = tokio::time::timeout(READY_TIMEOUT, not_ready(admin)).await;
    admin.readiness.set(matches!(checked, Ok(None)));
    let accepts = |value: &HeaderValue| value.as_bytes().windows(OPENMETRICS.len()).any(|part| part == OPENMETRICS);
    let (page, format) = match headers.get_all(header::ACCEPT).iter().any(accepts) {
        true => (admin.metrics.render(), "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        false => (admin.metrics.render_classic(), "text/plain; version=0.0.4; charset=utf-8"),
    };
    let mut response = Response::new(Body::full(page));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}
