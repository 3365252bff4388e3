//! `/healthz`, `/readyz` and `/metrics`: open, because probes and scrapers have no token. They name no subject.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use serde_json::json;

use super::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;

const OPENMETRICS: &str = "application/openmetrics-text";
const CLASSIC: &str = "text/plain";

/// How long a scrape waits for a store that hangs. The timeout of Prometheus is 10 seconds by default.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn health() -> Response<Body> {
    respond::json(StatusCode::OK, &json!({ "status": "alive" }))
}

/// 200 if a request would be served now and a revocation would be durable. The state of backends does not count: if one
/// backend is down, a load balancer must not remove every gateway and with it the requests for the others.
///
/// Gateways that share a store lose it together. A balancer that removed all of them would end the requests with
/// tokens, too, which need no store: with `?exclude=store`, it does not count whether the store can be written.
pub(super) async fn readiness(admin: &Admin, uri: &Uri) -> Response<Body> {
    // As with the Kubernetes API server, other parameters change nothing.
    let mut parameters = uri.query().into_iter().flat_map(|query| query.split('&'));
    let excludes_store = parameters.any(|parameter| parameter == "exclude=store");
    let reason = if excludes_store { not_serving(admin) } else { not_ready(admin).await };
    match reason {
        None => respond::json(StatusCode::OK, &json!({ "status": "ready" })),
        Some(reason) => {
            respond::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "not ready", "reason": reason }))
        }
    }
}

/// The reason why a request with a token would be rejected.
fn not_serving(admin: &Admin) -> Option<String> {
    if !admin.serving.load(Ordering::Acquire) {
        return Some("starting or draining".to_owned());
    }
    if let Some(reason) = admin.broker.keyring.not_ready(admin.clock.uptime()) {
        return Some(reason);
    }
    admin.broker.store.freshness().and_then(|freshness| freshness.not_ready())
}

/// The reason why the gateway is not ready.
async fn not_ready(admin: &Admin) -> Option<String> {
    if let Some(reason) = not_serving(admin) {
        return Some(reason);
    }
    let broker = admin.broker.clone();
    let check = async move {
        let checked = broker.with_timeout(broker.store.probe()).await;
        checked.err().map(|error| format!("store: {error}"))
    };
    admin.readiness.result(check).await
}

/// In the OpenMetrics format if the scraper reads it, as Prometheus does.
pub(super) async fn metrics(admin: &Admin, headers: &HeaderMap) -> Response<Body> {
    let checked = tokio::time::timeout(READY_TIMEOUT, not_ready(admin)).await;
    admin.readiness.set(matches!(checked, Ok(None)));
    let (page, format) = if reads_openmetrics(headers) {
        (admin.metrics.render(), "application/openmetrics-text; version=1.0.0; charset=utf-8")
    } else {
        (admin.metrics.render_classic(), "text/plain; version=0.0.4; charset=utf-8")
    };
    let mut response = Response::new(Body::full(page));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// Returns true if the scraper accepts OpenMetrics, and prefers no other format to it.
fn reads_openmetrics(headers: &HeaderMap) -> bool {
    let quality = quality_of(headers, OPENMETRICS);
    quality > 0.0 && quality >= quality_of(headers, CLASSIC)
}

/// The largest `q` with which `Accept` names the media type; 0 if it does not (RFC 9110 section 12.5.1).
fn quality_of(headers: &HeaderMap, media_type: &str) -> f32 {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let qualities = values.flat_map(|value| value.split(',')).filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next()?.eq_ignore_ascii_case(media_type);
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_named.then(|| quality.map_or(1.0, |text| text.parse().unwrap_or(0.0)))
    });
    qualities.fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_scrapers_that_prefer_it() {
        for (accept, expected) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            ("Application/OpenMetrics-Text; version=1.0.0", true),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", true),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.9", true),
            ("text/plain;q=0.9, application/openmetrics-text;q=0.8", false),
            ("application/openmetrics-text;q=0, text/plain", false),
            ("application/openmetrics-text;q=x", false),
            ("application/openmetrics-texts", false),
        ] {
            let value = HeaderValue::from_str(accept).expect("a value");
            let headers = HeaderMap::from_iter([(header::ACCEPT, value)]);
            assert_eq!(reads_openmetrics(&headers), expected, "{accept:?}");
        }
        assert!(!reads_openmetrics(&HeaderMap::new()));
    }
}
