//! Programs that read the access log: goaccess reads the combined format, and a validator of JSON Schema each line of
//! JSON.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::Method;
use serde_json::Value;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::ports::ClosedPort;
use crate::support::source;
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream, Wire};

const SCHEMA: &str = "deploy/access-log.schema.json";

/// Checks these lines. Returns what the validator printed, and whether all lines are valid.
fn validate(lines: &str) -> (String, bool) {
    let script = source::root().join("tests/it/telemetry/access_log_schema.py");
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script).arg(source::root().join(SCHEMA)).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("tests/run installs python3-jsonschema");
    // The validator ends at the first invalid line.
    let _ = child.stdin.take().expect("a pipe").write_all(lines.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    (String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(), output.status.success())
}

/// Requests with a token, without one, over TLS and HTTP/2, of the gateway's own calls, and one that gets no response.
async fn common_lines() -> String {
    let upstream = Upstream::start();
    let observing = "[[route]]\nname = \"trial\"\npath = \"/trial/\"\nenforce = false\n[[route]]\npath = \"/\"\n";
    let gateway = Gateway::with_config(&upstream, observing);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        let client = client.bearer(&pair.access).header("user-agent", "\"odd\"\\ \u{e9}");
        assert_eq!(client.send(Method::POST, "/orders", Bytes::from("body")).await.status, 200);
    }
    gateway.client().get("/orders?secret=1").await.assert_rejected(401, "unauthorized");
    gateway.client().get("/trial/1").await;
    gateway.refresh(&pair.access, "x").await.assert_rejected(400, "invalid_grant");
    let mut malformed = Wire::connect(gateway.address()).await;
    malformed.send("GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n").await;
    malformed.read_to_end().await;
    let mut leaving = Wire::connect(gateway.address()).await;
    leaving.send(format!("GET /hang HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", pair.access)).await;
    eventually("the backend has the request", || upstream.in_flight() == 1).await;
    drop(leaving);
    for path in ["/status/600", "/status/999"] {
        gateway.client().bearer(&pair.access).get(path).await;
    }
    gateway.client().get("/x%3Fy%23%0A-eyJsecret").await.assert_rejected(400, "invalid_request");
    gateway.log_text(12).await
}

/// A WebSocket that ends with its token, and a gRPC call.
async fn stream_lines() -> String {
    let (upstream, grpc) = (Upstream::start(), Upstream::start_http2());
    let more = format!(
        "[[upstream]]\nname = \"grpc\"\nservers = [\"http://{}\"]\nprotocol = \"h2\"\n\
         [[route]]\npath = \"/service/\"\nupstream = \"grpc\"\npublic = true\n\
         [[route]]\npath = \"/\"\nupstream = \"backend\"\n",
        grpc.address
    );
    let gateway = Gateway::with_config(&upstream, &more);
    let pair = gateway.issue("alice", "").await;
    let mut request = format!("ws://{}/socket", gateway.address()).into_client_request().expect("a request");
    let bearer = format!("Bearer {}", pair.access).parse().expect("a value");
    request.headers_mut().insert("authorization", bearer);
    let stream = tokio::net::TcpStream::connect(gateway.address()).await.expect("a connection");
    let (mut socket, _) = client_async(request, stream).await.expect("a WebSocket");
    socket.send(Message::text("hello")).await.expect("sent");
    socket.next().await.expect("an echo").expect("a message");
    gateway.revoke(&pair.access, &pair.token_id).await;
    let [_, http2, ..] = gateway.clients();
    let call = http2.header("content-type", "application/grpc+proto").header("te", "trailers");
    call.send(Method::POST, "/service/Method", Bytes::from_static(&[0; 5])).await;
    gateway.log_text(3).await
}

async fn retried_line() -> String {
    let (closed, upstream) = (ClosedPort::new(), Upstream::start());
    let servers = format!("{}\", \"http://{}", closed.address, upstream.address);
    let more = format!(
        "[upstream.ejection]\nconsecutive_failures = 0\n[trace]\nendpoint = \"http://{}/\"\n[[route]]\npath = \"/\"\n\
         public = true\n",
        closed.address
    );
    let gateway = Gateway::from_text(Gateway::config_text(&servers, &more).replace("workers = 2", "workers = 1"));
    for _ in 0..2 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    gateway.log_text(2).await
}

/// The schema describes what the gateway writes: no line has a member that it lacks, and it has no member that no line
/// has.
#[tokio::test]
async fn lines_of_json_follow_the_published_schema() {
    let of_client = crate::gateway::authorization::logged_request().await;
    let lines = common_lines().await + &stream_lines().await + &retried_line().await + &of_client;
    let (printed, is_valid) = validate(&lines);
    assert!(is_valid, "{printed}");
    let schema: Value = serde_json::from_str(&source::read(SCHEMA)).expect("JSON");
    let properties: Vec<_> = schema["properties"].as_object().expect("an object").keys().collect();
    let mut seen: Vec<_> = printed.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, properties, "in\n{lines}");
}

/// Otherwise the test above could not fail.
#[test]
fn the_schema_rejects_lines_that_the_gateway_never_writes() {
    let line = r#"{"time":"2026-11-20T23:05:21.042Z","request_id":"00112233445566778899aabbccddeeff","method":"GET",
        "path":"/a","protocol":"HTTP/1.1","status":200,"duration_us":1,"sent":0,"complete":true}"#;
    let line = line.replace('\n', " ");
    assert!(validate(&line).1, "{}", validate(&line).0);
    for (part, other) in [
        ("\"status\":200", "\"status\":\"200\""),
        ("\"status\":200", "\"status\":200,\"unknown\":1"),
        ("\"status\":200", "\"status\":200,\"tls\":\"TLSv1.3\""),
        ("\"status\":200", "\"status\":200,\"client\":\"a.example\""),
        ("\"status\":200", "\"status\":99"),
        ("\"status\":200", "\"status\":1000"),
        ("\"path\":\"/a\"", "\"path\":\"/a?token=1\""),
        ("\"sent\":0,", ""),
    ] {
        let (printed, is_valid) = validate(&line.replace(part, other));
        assert!(!is_valid, "{other} is accepted: {printed}");
    }
}

/// What goaccess finds in a log.
fn goaccess(log: &std::path::Path, format: &str) -> Value {
    let report = log.with_extension("report.json");
    let mut command = Command::new("goaccess");
    command.arg(log).args(["--no-global-config", "--log-format", format, "--no-progress", "-o"]).arg(&report);
    if format != "COMBINED" {
        command.args(["--date-format", "%d/%b/%Y", "--time-format", "%T"]);
    }
    let output = command.stdin(Stdio::null()).output().expect("tests/run installs goaccess");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&fs::read_to_string(report).expect("a report")).expect("JSON")
}

#[tokio::test]
async fn goaccess_reads_the_combined_format() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_with_log_format(upstream.address, "combined");
    for agent in ["curl/8.5.0", "a\"b\" 200 1 \"-\" \"Evil/1\\", "caf\u{e9} \u{1f600}\t"] {
        assert_eq!(gateway.client().header("user-agent", agent).get("/orders/1?secret=1").await.status, 200);
    }
    gateway.client().get("/caf%C3%A9/%22").await;
    gateway.client().get("/%00").await.assert_rejected(400, "invalid_request");
    let text = gateway.log_text(5).await;
    assert!(text.lines().count() == 5 && !text.contains("secret"), "{text}");
    assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{text}");

    let log = gateway.folder.path().join("access.log");
    let described = r#"%h %^ %e [%d:%t %^] "%r" %s %b "%R" "%u" %^ %T"#;
    for format in ["COMBINED", described] {
        let report = goaccess(&log, format);
        let general = &report["general"];
        assert_eq!(
            (general["valid_requests"].as_u64(), general["failed_requests"].as_u64()),
            (Some(5), Some(0)),
            "{text}"
        );
        let requests = report["requests"]["data"].as_array().expect("a list");
        let orders = requests.iter().find(|request| request["data"] == "/orders/1").expect("its path");
        assert_eq!(orders["hits"]["count"], 3, "{orders}");
        assert_eq!(report["hosts"]["data"][0]["data"], "127.0.0.1");
    }
    let page = source::read("deploy/monitoring.md");
    assert!(page.contains(described), "the page describes the format for goaccess");
}
