//! gRPC, with the client and the server that everybody uses: TLS at the listener, HTTP/2 to the backend.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::support::session::eventually;
use crate::support::{Gateway, Upstream};

/// For which Debian packages modules, whatever else is called python3 here.
const PYTHON: &str = "/usr/bin/python3";
const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/grpc_peer.py");

/// Longer than any access token lives, clock skew included.
const LIFE: Duration = Duration::from_mins(16);

/// `grpc_peer.py serve`. Ends when this is dropped.
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
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that makes these calls.
fn client(gateway: &Gateway, token: &str, names: &[&str]) -> Child {
    let mut command = Command::new(PYTHON);
    command.args([PEER, "call", &gateway.tls_address().port().to_string()]).arg(gateway.certificate()).arg(token);
    command.args(names).stdout(Stdio::piped()).spawn().expect("python3 is there")
}

/// What became of these calls.
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
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let named: Vec<&str> = told.iter().filter_map(|call| call[0].as_str()).collect();
    assert_eq!(named, names);
    told.into_iter().map(|mut call| call[1].take()).collect()
}

async fn call(gateway: &Gateway, token: &str, name: &str) -> Value {
    calls(gateway, token, &[name]).await.remove(0)
}

async fn last_line(gateway: &Gateway) -> Value {
    gateway.log_lines(1).await.pop().expect("a line")
}

fn before(server: SocketAddr, more: &str) -> Gateway {
    Gateway::from_text(Gateway::text(&server.to_string(), &format!("protocol = \"h2\"\n{more}")))
}

#[tokio::test]
async fn calls_of_all_four_kinds_pass_as_if_nobody_stood_between() {
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

/// The status of the server's, its message and its metadata; not one of the gateway's making.
#[tokio::test]
async fn the_status_of_a_call_arrives() {
    let server = Server::start();
    let gateway = before(server.address, "");
    let pair = gateway.issue("alice", "").await;
    let names = ["denied", "missing", "fail_midway", "deadline"];
    let told = calls(&gateway, &pair.access, &names).await;
    let statuses: Vec<_> = told.iter().map(|call| (call["status"].as_str(), call["says"].as_str())).collect();
    assert_eq!(statuses[0], (Some("NOT_FOUND"), Some("no such bear: 100 % sure, Bär")));
    // Its status, message and metadata came in one head, to which the gateway adds the date that each answer needs.
    let metadata = told[0]["metadata"].as_array().expect("pairs");
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

/// In the words of gRPC, and in the log and the metrics as any other refusal.
#[tokio::test]
async fn a_refused_call_is_told_its_status_and_why() {
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
            "the token lacks a scope that is needed here",
            (403, "insufficient_scope"),
        ),
    ] {
        let refused = call(&gateway, token, kind).await;
        assert_eq!(refused["status"], status, "{refused}");
        eventually("it is in the log", || gateway.file("access.log").contains(logged.1)).await;
        let line = last_line(&gateway).await;
        assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(logged.0), Some(logged.1)), "{line}");
        let id = line["request_id"].as_str().expect("an id");
        assert_eq!(refused["says"], format!("{says} (request {id})"));
    }
    assert_eq!(call(&gateway, &bob.access, "empty").await, "", "one with that scope passes");
    gateway.counts("rejections_total{reason=\"revoked\"}", 1).await;
    gateway.counts("requests_total{status=\"4xx\"}", 4).await;
}

#[tokio::test]
async fn a_call_to_a_backend_that_is_down_is_unavailable() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let gateway = before(nobody, "[[route]]\npath = \"/\"\npublic = true");
    let refused = call(&gateway, "", "unary").await;
    assert_eq!(refused["status"], "UNAVAILABLE", "{refused}");
    let says = refused["says"].as_str().expect("a message");
    assert!(says.starts_with("the service behind the gateway cannot be reached (request "), "{says}");

    let line = last_line(&gateway).await;
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(502), Some("upstream_connect")), "{line}");
    gateway.counts("requests_total{status=\"5xx\"}", 1).await;
}

/// What becomes of a call that has had an answer and waits for more, when this happens.
async fn midway(gateway: &Gateway, token: &str, happens: impl Future<Output = ()>) -> Value {
    let mut child = client(gateway, token, &["endure"]);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut told = move || -> Value {
        let line = lines.next().expect("it tells more").expect("text");
        serde_json::from_str::<[Value; 2]>(&line).map(|[_, told]| told).expect("JSON")
    };
    let (begun, begins) = oneshot::channel();
    let reading = tokio::task::spawn_blocking(move || {
        // Whoever waited for it may have given up.
        let _ = begun.send(told());
        let outcome = told();
        assert!(child.wait().expect("it is our child").success(), "the client failed after {outcome}");
        outcome
    });
    assert_eq!(begins.await.expect("it begins"), "begun");
    happens.await;
    reading.await.expect("it ends")
}

/// To its client that is an end like any other, for which it has code, and no broken connection.
#[tokio::test]
async fn a_call_whose_token_ends_is_told_in_the_middle_that_it_is_unauthenticated() {
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
        let told = midway(&gateway, &pair.access, ending).await;
        assert_eq!((told["status"].as_str(), without_request(&told)), (Some("UNAUTHENTICATED"), says), "{told}");
        gateway.counts(&format!("streams_ended_total{{reason=\"{reason}\"}}"), 1).await;
        let other = gateway.issue("bob", "").await;
        assert_eq!(call(&gateway, &other.access, "was_cancelled").await, "yes", "the server is told as well");
    }
}

/// What it says, but not of which request.
fn without_request(told: &Value) -> &str {
    let says = told["says"].as_str().expect("a message");
    says.split_once(" (request ").map_or(says, |(says, _)| says)
}

/// Over HTTP/1.1 there is no gRPC, and gRPC-Web is another protocol: both are told HTTP's status.
#[tokio::test]
async fn only_grpc_is_refused_in_its_form() {
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
