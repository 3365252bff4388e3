//! gRPC with the standard client and server: TLS at the listener, HTTP/2 to the backend.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::ports::ClosedPort;
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream};

/// The interpreter for which Debian packages the gRPC module, whichever python3 comes first in PATH.
const PYTHON: &str = "/usr/bin/python3";
const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/grpc_peer.py");

/// Longer than any access token lives, clock skew included.
const LIFE: Duration = Duration::from_mins(16);

/// `grpc_peer.py serve`. Dropping this ends the process.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let mut command = Command::new(PYTHON);
        let command = command.args([PEER, "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 is there");
        let mut port = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut port).expect("its port");
        let port = port.trim().parse().expect("a port: is python3-grpcio installed?");
        Server { child, address: ([127, 0, 0, 1], port).into() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a client that makes these calls.
fn client(gateway: &Gateway, token: &str, names: &[&str]) -> Child {
    let mut command = Command::new(PYTHON);
    command.args([PEER, "call", &gateway.tls_address().port().to_string()]).arg(gateway.certificate()).arg(token);
    command.args(names).stdout(Stdio::piped()).spawn().expect("python3 is there")
}

/// Makes these calls, and returns their outcomes.
async fn calls(gateway: &Gateway, token: &str, names: &[&str]) -> Vec<Value> {
    let mut child = client(gateway, token, names);
    let mut stdout = child.stdout.take().expect("piped");
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("text");
        assert!(child.wait().expect("it is our child").success(), "the client failed after {text}");
        text
    });
    let text = reading.await.expect("it ends");
    let outcomes: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let named: Vec<&str> = outcomes.iter().filter_map(|call| call[0].as_str()).collect();
    assert_eq!(named, names);
    outcomes.into_iter().map(|mut call| call[1].take()).collect()
}

async fn call(gateway: &Gateway, token: &str, name: &str) -> Value {
    calls(gateway, token, &[name]).await.remove(0)
}

async fn last_line(gateway: &Gateway) -> Value {
    gateway.log_lines(1).await.pop().expect("a line")
}

fn before(server: SocketAddr, more: &str) -> Gateway {
    Gateway::from_text(Gateway::config_text(&server.to_string(), &format!("protocol = \"h2\"\n{more}")))
}

#[tokio::test]
async fn calls_of_all_four_kinds_are_forwarded() {
    let server = Server::start();
    let gateway = before(server.address, "");
    let pair = gateway.issue("alice", "").await;
    let bytes: String = (0..=255).map(|byte| format!("{byte:02x}")).collect();
    for (name, answer) in [
        ("unary", json!(["0062656172ff", "of keepers", bytes, "OK"])),
        ("large", json!(true)),
        ("empty", json!("")),
        ("count_down", json!(["5", "4", "3", "2", "1"])),
        ("total", json!("2000000")),
        ("converse", json!(["re: one", "re: two", "re: three"])),
        ("many", json!(true)),
    ] {
        assert_eq!(call(&gateway, &pair.access, name).await, answer, "{name}");
    }
}

/// The client gets the status, message and metadata of the server, not those of the gateway.
#[tokio::test]
async fn the_status_of_a_call_reaches_the_client() {
    let server = Server::start();
    let gateway = before(server.address, "");
    let pair = gateway.issue("alice", "").await;
    let names = ["denied", "missing", "fail_midway", "deadline"];
    let outcomes = calls(&gateway, &pair.access, &names).await;
    let statuses: Vec<_> = outcomes.iter().map(|call| (call["status"].as_str(), call["says"].as_str())).collect();
    assert_eq!(statuses[0], (Some("NOT_FOUND"), Some("no such bear: 100 % sure, Bär")));
    // Status, message and metadata arrive in one header block. The gateway adds the date that each response needs.
    let metadata = outcomes[0]["metadata"].as_array().expect("pairs");
    assert_eq!(metadata[0], json!(["which", "7"]));
    assert!(metadata[1..].iter().all(|pair| pair[0] == "date"), "{metadata:?}");
    assert_eq!(statuses[1], (Some("UNIMPLEMENTED"), Some("Method not found!")));
    assert_eq!(statuses[2], (Some("DATA_LOSS"), Some("no further")));
    assert_eq!(statuses[3].0, Some("DEADLINE_EXCEEDED"));
}

#[tokio::test]
async fn a_call_that_its_client_cancels_is_cancelled_at_the_server() {
    let server = Server::start();
    let gateway = before(server.address, "");
    let pair = gateway.issue("alice", "").await;
    assert_eq!(call(&gateway, &pair.access, "cancel").await, "yes");
}

/// The client gets a gRPC status. The log and the metrics have the same reason as for any other rejection.
#[tokio::test]
async fn a_rejected_call_gets_a_grpc_status_and_message() {
    let server = Server::start();
    let scoped = "[[route]]\npath = \"/\"\nscopes = [\"bears:keep\"]";
    let gateway = before(server.address, scoped);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "bears:keep").await);
    let gone = gateway.issue("carol", "bears:keep").await;
    assert_eq!(gateway.revoke(&gone.access, &gone.token_id).await.status, 200);
    for (token, kind, status, says, logged) in [
        ("", "unary", "UNAUTHENTICATED", "a Bearer token is required", (401, "no_token")),
        ("made.up", "count_down", "UNAUTHENTICATED", "the token is malformed", (401, "malformed_token")),
        (&gone.access, "total", "UNAUTHENTICATED", "the token was revoked", (401, "revoked")),
        (
            &alice.access,
            "converse",
            "PERMISSION_DENIED",
            "the token lacks a required scope",
            (403, "insufficient_scope"),
        ),
    ] {
        let rejected = call(&gateway, token, kind).await;
        assert_eq!(rejected["status"], status, "{rejected}");
        eventually("the log has the reason", || gateway.file("access.log").contains(logged.1)).await;
        let line = last_line(&gateway).await;
        assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(logged.0), Some(logged.1)), "{line}");
        let id = line["request_id"].as_str().expect("an id");
        assert_eq!(rejected["says"], format!("{says} (request {id})"));
    }
    assert_eq!(call(&gateway, &bob.access, "empty").await, "", "a token with the scope is accepted");
    gateway.wait_for_metric("rejections_total{reason=\"revoked\"}", 1).await;
    gateway.wait_for_metric("requests_total{status=\"4xx\"}", 4).await;
}

#[tokio::test]
async fn a_call_to_a_backend_that_is_down_is_unavailable() {
    let closed = ClosedPort::new();
    let gateway = before(closed.address, "[[route]]\npath = \"/\"\npublic = true");
    let rejected = call(&gateway, "", "unary").await;
    assert_eq!(rejected["status"], "UNAVAILABLE", "{rejected}");
    let says = rejected["says"].as_str().expect("a message");
    assert!(says.starts_with("the backend cannot be reached (request "), "{says}");

    let line = last_line(&gateway).await;
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(502), Some("upstream_connect")), "{line}");
    gateway.wait_for_metric("requests_total{status=\"5xx\"}", 1).await;
}

/// Starts a call, awaits `happens` after its first message, and returns the outcome of the call.
async fn midway(gateway: &Gateway, token: &str, happens: impl Future<Output = ()>) -> Value {
    let mut child = client(gateway, token, &["endure"]);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut outcomes = move || -> Value {
        let line = lines.next().expect("another line").expect("text");
        serde_json::from_str::<[Value; 2]>(&line).map(|[_, outcomes]| outcomes).expect("JSON")
    };
    let (begun, begins) = oneshot::channel();
    let reading = tokio::task::spawn_blocking(move || {
        // The test may have failed already.
        let _ = begun.send(outcomes());
        let outcome = outcomes();
        assert!(child.wait().expect("it is our child").success(), "the client failed after {outcome}");
        outcome
    });
    assert_eq!(begins.await.expect("the call begins"), "begun");
    happens.await;
    reading.await.expect("it ends")
}

/// The client gets a gRPC status that it can handle, instead of a broken connection.
#[tokio::test]
async fn a_call_ends_with_unauthenticated_when_its_token_ends() {
    for (reason, says) in [("revoked", "the token was revoked"), ("expired", "the token expired")] {
        let server = Server::start();
        let gateway = before(server.address, "");
        let pair = gateway.issue("alice", "").await;
        let ending = async {
            match reason {
                "revoked" => assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200),
                _ => gateway.advance(LIFE),
            }
        };
        let outcomes = midway(&gateway, &pair.access, ending).await;
        assert_eq!(
            (outcomes["status"].as_str(), without_request(&outcomes)),
            (Some("UNAUTHENTICATED"), says),
            "{outcomes}"
        );
        gateway.wait_for_metric(&format!("streams_ended_total{{reason=\"{reason}\"}}"), 1).await;
        let other = gateway.issue("bob", "").await;
        assert_eq!(call(&gateway, &other.access, "was_cancelled").await, "yes", "the call is cancelled at the server");
    }
}

/// Returns the message without the request id.
fn without_request(outcomes: &Value) -> &str {
    let says = outcomes["says"].as_str().expect("a message");
    says.split_once(" (request ").map_or(says, |(says, _)| says)
}

/// HTTP/1.1 has no gRPC, and gRPC-Web is another protocol. Both get an HTTP status.
#[tokio::test]
async fn only_grpc_requests_get_a_grpc_status() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for (client, kind, http_status) in gateway.clients().into_iter().flat_map(|client| {
        let is_http2 = client.version() == http::Version::HTTP_2;
        [
            (client.clone(), "application/grpc", if is_http2 { 200 } else { 401 }),
            (client.clone(), "application/grpc+proto", if is_http2 { 200 } else { 401 }),
            (client, "application/grpc-web+proto", 401),
        ]
    }) {
        let client = client.header("content-type", kind);
        let answer = client.send(http::Method::POST, "/bears.Kept/Unary", "message".into()).await;
        assert_eq!(answer.status, http_status, "{kind}: {answer:?}");
        let code = (http_status == 200).then_some("16");
        assert_eq!(answer.header("grpc-status"), code, "{answer:?}");
        assert_eq!(answer.body.is_empty(), http_status == 200);
    }
    assert!(upstream.seen().is_empty());
}
