//! The spans of a request, as a decoder reads them that is not ours.

use http::Method;
use serde_json::{Value, json};

use super::collector::{Collector, gateway, section, sent};
use crate::support::ports::ClosedPort;
use crate::support::{Gateway, Upstream};

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
        let client = client.bearer(&pair.access).header("traceparent", "00-1-2-3");
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
            seen.iter().any(|[trace, span, flags]| [trace, span] == [&sent[0], &sent[1]] && flags == "01"),
            "{seen:?}"
        );
        let id = &server["attributes"]["bearward.request_id"];
        let line = lines.iter().find(|line| line["request_id"] == *id).expect("its line");
        assert_eq!(line["trace_id"], server["traceId"]);
        let version = if line["protocol"] == "HTTP/2" { "2" } else { "1.1" };
        let scheme = if line.get("tls").is_some() { "https" } else { "http" };
        let expected = json!({
            "http.request.method": "GET", "http.route": "orders", "url.path": "/orders/1/[token]",
            "url.scheme": scheme, "server.address": "gateway.test", "client.address": "127.0.0.1",
            "network.protocol.name": "http", "network.protocol.version": version,
            "bearward.request_id": id, "http.response.status_code": 200,
        });
        assert_eq!(server["attributes"], expected);
        assert_eq!((&server["name"], &server["parentSpanId"]), (&json!("GET orders"), &json!("")));
        assert_eq!(server["resource"]["service.name"], "bearward");
        let address = upstream.address;
        let expected = json!({
            "http.request.method": "GET", "url.path": "/orders/1/[token]", "bearward.upstream": "backend",
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
    for (path, status, code, kind) in [
        ("/status/503", "STATUS_CODE_ERROR", 503, Some("503")),
        ("/a/%00", "STATUS_CODE_UNSET", 400, Some("bad_path")),
        ("/status/404", "STATUS_CODE_UNSET", 404, None),
        ("/close", "STATUS_CODE_ERROR", 502, Some("upstream_broken")),
    ] {
        let span = server(path);
        assert_eq!((&span["status"], &span["attributes"]["http.response.status_code"]), (&json!(status), &json!(code)));
        assert_eq!(span["attributes"]["error.type"].as_str(), kind, "{span}");
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
