//! `/healthz`, `/readyz` and `/metrics`: open, because probes and scrapers have no token. They name no subject.

use std::sync::atomic::Ordering;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;

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
    admin.store_readiness.result(check).await
}

pub(super) fn metrics(admin: &Admin) -> Response<Body> {
    let mut response = Response::new(Body::full(admin.metrics.render()));
    let format = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, format);
    response
}
