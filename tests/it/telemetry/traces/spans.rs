//! The spans of a request, as a decoder reads them that is not ours.

use std::time::{Duration, SystemTime};

use http::Method;
use serde_json::{Value, json};

use super::collector::{Collector, gateway, process, section, sent};
use crate::support::ports::ClosedPort;
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

/// The spans of one kind, in the order of their begin.
fn of_kind(spans: &[Value], kind: &str) -> Vec<Value> {
    let kind = format!("SPAN_KIND_{kind}");
    let mut spans: Vec<_> = spans.iter().filter(|span| span["kind"] == kind.as_str()).cloned().collect();
    spans.sort_by_key(|span| span["start"].as_u64());
    spans
}

/// Trace id, span id and flags of a `traceparent`.
fn fields(traceparent: &str) -> [String; 3] {
    let [version, trace, span, flags] = traceparent.split('-').collect::<Vec<_>>()[..] else { panic!("{traceparent}") };
    assert_eq!((version, trace.len(), span.len()), ("00", 32, 16), "{traceparent}");
    [trace, span, flags].map(str::to_owned)
}

#[tokio::test]
async fn a_request_has_a_span_of_the_server_and_one_of_the_client() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let route = "[[route]]\nname = \"orders\"\npath = \"/orders/\"\n";
    let gateway = Gateway::with_config(&upstream, &format!("{}{route}", section(&collector, "sample = \"100%\"")));
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        let client = client.bearer(&pair.access).header("traceparent", "00-1-2-3").host("gateway.test:8443");
        let response = client.get(&format!("/orders/1/{}?secret=1", pair.access)).await;
        assert_eq!(response.status, 200);
    }
    let spans = collector.wait_for(8).await;
    let text = serde_json::to_string(&spans).expect("JSON");
    assert!(!text.contains("secret") && !text.contains("alice") && !text.contains(&pair.access), "{text}");
    let seen: Vec<_> = upstream.seen().iter().map(|seen| fields(seen.header("traceparent").expect("set"))).collect();
    let lines = gateway.log_lines(4).await;
    for server in of_kind(&spans, "SERVER") {
        let is_child = |span: &&Value| span["parentSpanId"] == server["spanId"];
        let client = spans.iter().find(is_child).unwrap_or_else(|| panic!("no child of {server} in {spans:#?}"));
        assert_eq!((client["kind"].as_str(), &client["traceId"]), (Some("SPAN_KIND_CLIENT"), &server["traceId"]));
        let sent = [&client["traceId"], &client["spanId"]].map(|id| id.as_str().expect("text").to_owned());
        assert!(
            seen.iter().any(|[trace, span, flags]| [trace, span] == [&sent[0], &sent[1]] && flags == "03"),
            "{seen:?}"
        );
        let id = &server["attributes"]["bearward.request_id"];
        let line = lines.iter().find(|line| line["request_id"] == *id).expect("its line");
        assert_eq!(line["trace_id"], server["traceId"]);
        let version = if line["protocol"] == "HTTP/2" { "2" } else { "1.1" };
        let scheme = if line.get("tls").is_some() { "https" } else { "http" };
        let expected = json!({
            "http.request.method": "GET", "http.route": "/orders/", "bearward.route": "orders",
            "url.path": "/orders/1/[token]", "url.scheme": scheme, "server.address": "gateway.test",
            "server.port": 8443, "client.address": "127.0.0.1",
            "network.protocol.name": "http", "network.protocol.version": version,
            "bearward.request_id": id, "http.response.status_code": 200,
        });
        assert_eq!(server["attributes"], expected);
        assert_eq!((&server["name"], &server["parentSpanId"]), (&json!("GET /orders/"), &json!("")));
        assert_eq!(server["resource"]["service.name"], "bearward");
        let address = upstream.address;
        let expected = json!({
            "http.request.method": "GET", "url.path": "/orders/1/[token]", "bearward.upstream": "backend",
            "url.full": format!("http://{address}/orders/1/[token]"),
            "server.address": address.ip().to_string(), "server.port": address.port(),
            "http.response.status_code": 200,
        });
        assert_eq!(client["attributes"], expected);
        let times = [&server["start"], &client["start"], &client["end"], &server["end"]].map(|time| time.as_u64());
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!([&server["status"], &client["status"]], ["STATUS_CODE_UNSET"; 2]);
    }
    let request = &collector.requests()[0];
    assert_eq!((&request["path"], &request["contentType"]), (&json!("/v1/traces"), &json!("application/x-protobuf")));
    assert_eq!(request["authorization"], Value::Null);
    sent(&gateway, 4.0).await;
}

#[tokio::test]
async fn each_attempt_has_a_span_that_its_server_knows() {
    let (closed, upstream, collector) = (ClosedPort::new(), Upstream::start(), Collector::start(&[]));
    let trace = section(&collector, "sample = \"100%\"");
    let servers = format!("{}\", \"http://{}", closed.address, upstream.address);
    let more =
        format!("[upstream.ejection]\nconsecutive_failures = 0\n{trace}[[route]]\npath = \"/\"\npublic = true\n");
    let gateway = Gateway::from_text(Gateway::config_text(&servers, &more).replace("workers = 2", "workers = 1"));
    for _ in 0..2 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    let spans = collector.wait_for(5).await;
    let failed = spans.iter().find(|span| span["attributes"]["error.type"] == "upstream_connect").expect("a failure");
    let attempts = of_kind(&spans, "CLIENT");
    let of_retried: Vec<_> = attempts.iter().filter(|span| span["traceId"] == failed["traceId"]).collect();
    let [first, second] = of_retried[..] else { panic!("{of_retried:?}") };
    assert_eq!((first, &first["status"]), (failed, &json!("STATUS_CODE_ERROR")));
    assert_eq!(first["attributes"]["server.port"], closed.address.port());
    assert!(first["attributes"].get("http.response.status_code").is_none(), "{first}");
    assert_eq!(second["attributes"]["server.port"], upstream.address.port());
    assert_eq!(second["attributes"]["http.request.resend_count"], 1);
    assert_eq!((&first["parentSpanId"], &first["traceId"]), (&second["parentSpanId"], &second["traceId"]));
    assert!(first["spanId"] != second["spanId"] && first["end"].as_u64() <= second["start"].as_u64());
    let sent: Vec<_> = upstream.seen().iter().map(|seen| fields(seen.header("traceparent").expect("set"))).collect();
    assert!(sent.iter().any(|[_, span, _]| second["spanId"] == span.as_str()), "{sent:?}");
}

#[tokio::test]
async fn failures_are_errors_and_rejections_of_clients_are_none() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    gateway.client().send(Method::from_bytes(b"INVENTED").expect("a token"), "/status/503", Default::default()).await;
    gateway.client().get("/a/%00").await.assert_rejected(400, "invalid_request");
    gateway.client().get("/status/404").await;
    gateway.client().get("/close").await.assert_rejected(502, "bad_gateway");
    let spans = collector.wait_for(7).await;
    let server = |path: &str| {
        let is_it = |span: &&Value| span["attributes"]["url.path"] == path && span["kind"] == "SPAN_KIND_SERVER";
        spans.iter().find(is_it).unwrap_or_else(|| panic!("{path} in {spans:#?}"))
    };
    for (path, status, code, kind, reason) in [
        ("/status/503", "STATUS_CODE_ERROR", 503, Some("503"), None),
        ("/a/%00", "STATUS_CODE_UNSET", 400, None, Some("bad_path")),
        ("/status/404", "STATUS_CODE_UNSET", 404, None, None),
        ("/close", "STATUS_CODE_ERROR", 502, Some("upstream_broken"), Some("upstream_broken")),
    ] {
        let span = server(path);
        assert_eq!((&span["status"], &span["attributes"]["http.response.status_code"]), (&json!(status), &json!(code)));
        assert_eq!(span["attributes"]["error.type"].as_str(), kind, "{span}");
        assert_eq!(span["attributes"]["bearward.reason"].as_str(), reason, "{span}");
    }
    let invented = server("/status/503");
    assert_eq!(
        (&invented["name"], &invented["attributes"]["http.request.method"]),
        (&json!("HTTP /"), &json!("_OTHER"))
    );
    let of_backend = |path: &str| {
        let parent = &server(path)["spanId"];
        spans.iter().find(|span| span["parentSpanId"] == *parent).expect("an attempt")
    };
    for (path, kind) in [("/status/404", "404"), ("/close", "upstream_broken")] {
        let span = of_backend(path);
        assert_eq!((&span["status"], &span["attributes"]["error.type"]), (&json!("STATUS_CODE_ERROR"), &json!(kind)));
    }
}

/// Kept by `errors`, although its status is 200.
#[tokio::test]
async fn a_response_that_breaks_off_is_an_error() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhe").await;
    });
    let collector = Collector::start(&[]);
    let gateway = Gateway::public_single_worker(backend.address, &section(&collector, "sample = \"0%\""));
    let mut wire = Wire::connect(gateway.address()).await;
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(wire.read_to_end().await.ends_with("he"));
    for span in collector.wait_for(2).await {
        let attributes = &span["attributes"];
        assert_eq!(
            (&span["status"], &attributes["error.type"]),
            (&json!("STATUS_CODE_ERROR"), &json!("upstream_broken"))
        );
        assert_eq!(attributes["http.response.status_code"], 200, "{span}");
    }
}

#[tokio::test]
async fn a_request_that_its_client_leaves_is_an_error_on_both_sides() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let gateway = gateway(&upstream, &collector, "sample = \"100%\"", "");
    let mut leaving = Wire::connect(gateway.address()).await;
    leaving.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
    eventually("the backend has the request", || upstream.in_flight() == 1).await;
    drop(leaving);
    let spans = collector.wait_for(2).await;
    for span in &spans {
        let attributes = &span["attributes"];
        assert_eq!(
            (&span["status"], &attributes["error.type"]),
            (&json!("STATUS_CODE_ERROR"), &json!("client_closed"))
        );
        assert!(attributes.get("http.response.status_code").is_none(), "{span}");
    }
    let [server, client] = ["SERVER", "CLIENT"].map(|kind| of_kind(&spans, kind).remove(0));
    assert!(client["end"].as_u64() <= server["end"].as_u64(), "{spans:#?}");
}

/// A span of a trusted proxy on this machine must not begin after it.
#[tokio::test]
async fn a_span_begins_at_its_microsecond() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let (_folder, gateway) = process(&upstream, &collector);
    let mut before = Vec::new();
    for _ in 0..20 {
        before.push(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970"));
        gateway.client().get("/").await;
    }
    let servers = of_kind(&collector.wait_for(40).await, "SERVER");
    for (server, before) in servers.iter().zip(before) {
        assert!(server["start"].as_u64().map(Duration::from_nanos) >= Some(before), "{server} before {before:?}");
    }
}

#[tokio::test]
async fn the_collector_gets_the_secret_of_a_file() {
    let (upstream, collector) = (Upstream::start(), Collector::start(&[]));
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a folder"));
    let file = folder.path().join("authorization");
    std::fs::write(&file, "Bearer of-collector\n").expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let keys = format!("sample = \"100%\"\nauthorization_file = \"{}\"", file.display());
    let gateway = gateway(&upstream, &collector, &keys, "");
    gateway.client().get("/").await;
    collector.wait_for(2).await;
    assert_eq!(collector.requests()[0]["authorization"], "Bearer of-collector");
}
