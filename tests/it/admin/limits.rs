//! The admin address: wrong tokens, connections, probes and the Host header.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::certificates::Authority;
use crate::support::client::send_raw;
use crate::support::clock::ManualClock;
use crate::support::program::GatewayProcess;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, Upstream};

/// The configuration of a gateway with these keys of `[admin]`.
fn text(upstream: &Upstream, keys: &str) -> String {
    Gateway::config_text(&upstream.address.to_string(), "").replace("[admin]\n", &format!("[admin]\n{keys}\n"))
}

fn admin(address: SocketAddr) -> Client {
    Client::http1(address).host("localhost")
}

/// The status of the response to a request from another address of this machine.
fn status_from(source: &str, address: SocketAddr, token: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "--output", "/dev/null", "--write-out", "%{http_code}", "--interface", source]);
    command.args(["-H", &format!("Authorization: Bearer {token}"), &format!("http://{address}/admin/v1/keys")]);
    String::from_utf8(command.output().expect("curl is there").stdout).expect("UTF-8")
}

#[tokio::test]
async fn wrong_tokens_are_logged_counted_and_limited() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), text(&upstream, "wrong_tokens = 3")).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    for number in 0..3 {
        let answer = admin(served.admin).bearer(&format!("attempt-{number}")).get("/admin/v1/keys").await;
        answer.assert_rejected(401, "unauthorized");
    }
    // Right or wrong, so that a guess learns nothing.
    for client in [admin(served.admin).bearer("attempt"), served.admin_client()] {
        let answer = client.get("/admin/v1/keys").await;
        answer.assert_rejected(429, "rate_limited");
        let wait: u64 = answer.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
        assert!((1..=20).contains(&wait), "{answer:?}");
    }
    let token = std::fs::read_to_string(folder.path().join("admin.token")).expect("created");
    assert_eq!(status_from("127.0.0.2", served.admin, token.trim()), "200", "another address is not affected");
    let metrics = admin(served.admin).get("/metrics").await.text();
    for line in ["{reason=\"admin_token_wrong\"} 3", "{reason=\"admin_limited\"} 2"] {
        assert!(metrics.contains(&format!("bearward_rejections_total{line}")), "{line}:\n{metrics}");
    }
    let log = served.program.wait_for_stderr("more wrong admin tokens");
    assert!(log.contains("a wrong admin token address=127.0.0.1") && !log.contains("attempt"), "{log}");
    // A slow machine may need two messages for them.
    let counted = |name: &str| -> u64 {
        let others = log.lines().filter(|line| line.contains("more wrong admin tokens"));
        let numbers =
            others.filter_map(|line| line.split_once(&format!(" {name}="))?.1.split(' ').next()?.parse::<u64>().ok());
        numbers.sum()
    };
    let wrong = counted("wrong_tokens");
    let limited = counted("unchecked_calls");
    assert!((1..=2).contains(&wrong) || limited > 0, "{log}");
}

#[tokio::test]
async fn an_address_may_try_again_after_a_minute() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "wrong_tokens = 2"));
    let wrong = admin(gateway.admin_address()).bearer("wrong");
    for expected in [401, 401, 429] {
        assert_eq!(wrong.get("/admin/v1/keys").await.status, expected);
    }
    assert_eq!(gateway.admin_client().get("/admin/v1/keys").await.status, 429);
    gateway.advance(Duration::from_secs(30));
    assert_eq!(gateway.admin_client().get("/admin/v1/keys").await.status, 200);
    // A request without a token guesses nothing.
    for _ in 0..5 {
        admin(gateway.admin_address()).get("/admin/v1/keys").await.assert_rejected(401, "unauthorized");
    }
    assert_eq!(gateway.admin_client().get("/admin/v1/keys").await.status, 200);
}

/// Operators behind a forwarded port have the same address, and so has every process there.
#[tokio::test]
async fn a_session_goes_on_while_guesses_are_limited() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "wrong_tokens = 2"));
    let session = gateway.admin_client().post("/admin/v1/sessions", &json!({})).await.json();
    let session = admin(gateway.admin_address()).bearer(session["token"].as_str().expect("a token"));
    let wrong = admin(gateway.admin_address()).bearer("wrong");
    for expected in [401, 401, 429] {
        assert_eq!(wrong.get("/admin/v1/keys").await.status, expected);
    }
    assert_eq!(gateway.admin_client().get("/admin/v1/keys").await.status, 429);
    assert_eq!(session.get("/admin/v1/keys").await.status, 200);
}

#[tokio::test]
async fn a_clock_that_is_set_gives_no_further_guesses() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "wrong_tokens = 2"));
    let wrong = admin(gateway.admin_address()).bearer("wrong");
    for expected in [401, 401, 429] {
        assert_eq!(wrong.get("/admin/v1/keys").await.status, expected);
    }
    let hour = Duration::from_secs(3600);
    for step in [ManualClock::set_forward, ManualClock::set_back, ManualClock::set_back] {
        step(&gateway.clock, hour);
        assert_eq!(wrong.get("/admin/v1/keys").await.status, 429);
    }
    gateway.advance(Duration::from_secs(30));
    assert_eq!(gateway.admin_client().get("/admin/v1/keys").await.status, 200, "and no longer than without");
}

async fn connect_from(source: &str, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{source}:0").parse().expect("an address")).expect("bound");
    socket.connect(address).await.expect("connected")
}

async fn is_open(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(Duration::from_millis(20), stream.read_u8()).await.is_err()
}

/// An idle one that the gateway serves would last 10 seconds.
async fn assert_closed_at_once(stream: &mut TcpStream) {
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_u8()).await;
    assert!(read.expect("closed at once").is_err());
}

/// By the Unix socket, which has slots of its own.
fn metrics_by_socket(gateway: &Gateway) -> String {
    let socket = gateway.path().join("bearward.db.admin");
    let output =
        Command::new("curl").args(["-sS", "--fail", "--unix-socket"]).arg(socket).arg("http://a/metrics").output();
    String::from_utf8(output.expect("curl is there").stdout).expect("UTF-8")
}

#[tokio::test]
async fn connections_are_limited_by_address_and_in_total() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "connections = 3\nconnections_per_address = 2"));
    let address = gateway.admin_address();
    let mut first = connect_from("127.0.0.1", address).await;
    let mut second = connect_from("127.0.0.1", address).await;
    let mut third = connect_from("127.0.0.1", address).await;
    assert_closed_at_once(&mut first).await;
    let mut other = connect_from("127.0.0.2", address).await;
    let mut last = connect_from("127.0.0.3", address).await;
    assert_closed_at_once(&mut second).await;
    for stream in [&mut third, &mut other, &mut last] {
        assert!(is_open(stream).await, "only the longest idle one of the fullest address is closed");
    }
    let metrics = metrics_by_socket(&gateway);
    assert!(metrics.contains("bearward_idle_connections_closed_total 2\n"), "{metrics}");
}

/// Begins a call that waits for its body.
async fn begin_call(source: &str, address: SocketAddr, token: &str) -> TcpStream {
    let mut stream = connect_from(source, address).await;
    let head = format!(
        "POST /admin/v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut line = [0; 25];
    stream.read_exact(&mut line).await.expect("the body is read now");
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

#[tokio::test]
async fn calls_in_progress_are_not_closed_for_new_connections() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "connections = 3\nconnections_per_address = 2"));
    let (address, token) = (gateway.admin_address(), gateway.file("admin.token"));
    let mut calls = Vec::new();
    for source in ["127.0.0.1", "127.0.0.1", "127.0.0.2"] {
        calls.push(begin_call(source, address, token.trim()).await);
    }
    for source in ["127.0.0.1", "127.0.0.3"] {
        assert_closed_at_once(&mut connect_from(source, address).await).await;
    }
    for call in &mut calls {
        assert!(is_open(call).await);
    }
    let metrics = metrics_by_socket(&gateway);
    for line in ["connections_rejected_total 1", "address_connections_rejected_total 1"] {
        assert!(metrics.contains(&format!("bearward_{line}")), "{line}:\n{metrics}");
    }
    drop(calls);
    eventually_ok("a closed connection frees its slot", async || {
        admin(address)
            .try_send(http::Method::GET, "/healthz", bytes::Bytes::new())
            .await
            .map_err(|error| error.to_string())
    })
    .await;
}

/// With the default limits, another user of the machine holds as many connections as an address may have, and opens a
/// new one for each that the gateway closes.
#[tokio::test]
async fn probes_get_through_while_a_local_user_holds_connections() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let address = gateway.admin_address();
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(connect_from("127.0.0.1", address).await);
    }
    for round in 0..40 {
        for path in ["/healthz", "/readyz", "/metrics"] {
            let response = admin(address).try_send(http::Method::GET, path, bytes::Bytes::new()).await;
            let response = response.unwrap_or_else(|error| panic!("round {round}: {path}: {error}"));
            assert_eq!(response.status, 200, "{path}");
        }
        for _ in 0..4 {
            held.push(connect_from("127.0.0.1", address).await);
        }
    }
    assert_eq!(gateway.metric("bearward_address_connections_rejected_total").await, 0.0);
    drop(held);
}

/// A check of the store is a commit.
#[tokio::test]
async fn many_probes_share_a_check_of_the_store() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let checks = || -> i64 {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let database = Connection::open_with_flags(gateway.path().join("bearward.db"), flags).expect("opened");
        database.query_row("select value from meta where name = 'checks'", [], |row| row.get(0)).expect("read")
    };
    let (before, started) = (checks(), std::time::Instant::now());
    let client = admin(gateway.admin_address());
    for _ in 0..100 {
        assert_eq!(client.get("/readyz").await.status, 200);
    }
    let most = i64::try_from(started.elapsed().as_secs() + 1).expect("small");
    let made = checks() - before;
    assert!((1..=most).contains(&made), "{made} checks in {:?}", started.elapsed());
}

/// DNS rebinding: a web page reaches the loopback address under the name of its own site.
#[tokio::test]
async fn only_own_names_in_host_are_served() {
    let upstream = Upstream::start();
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let authority = Authority::new();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    authority.sign("gateway.example").write(folder.path(), "admin");
    let keys = "tls = { certificate = \"admin.pem\", key = \"admin.key\" }\nhosts = [\"Metrics.internal\"]";
    let gateway = Gateway::in_folder(text(&upstream, keys), folder, Arc::new(ManualClock::new()));
    let client = |host: &str| {
        let client = Client::http1(gateway.admin_address()).over_tls(&gateway.path().join("ca.pem"));
        client.server_name("gateway.example").host(host)
    };
    let port = gateway.admin_address().port();
    for host in [
        "localhost".to_owned(),
        format!("127.0.0.1:{port}"),
        "[::1]".into(),
        "gateway.example:9443".into(),
        "metrics.internal".into(),
    ] {
        assert_eq!(client(&host).get("/metrics").await.status, 200, "{host}");
    }
    let token = gateway.file("admin.token");
    for host in ["attacker.example", "localhost.attacker.example", "metrics.internal.attacker.example"] {
        for path in ["/metrics", "/healthz", "/readyz", "/admin/v1/keys"] {
            let answer = client(host).bearer(token.trim()).get(path).await;
            answer.assert_rejected(421, "invalid_request");
            let says = answer.json()["error_description"].as_str().expect("text").to_owned();
            assert!(says.contains("add the name to admin.hosts") && !says.contains(host), "{says}");
        }
    }
    let metrics = client("localhost").get("/metrics").await.text();
    assert!(metrics.contains("bearward_rejections_total{reason=\"admin_host\"} 12"), "{metrics}");
}

#[tokio::test]
async fn plain_http_to_the_tls_port_gets_a_400_that_names_https() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "tls = \"self-signed\""));
    for request in ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "get / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let response = send_raw(gateway.admin_address(), request.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 400 ") && response.ends_with("Use an https URL."), "{response}");
    }
}

/// curl offers HTTP/2 and HTTP/1.1.
#[tokio::test]
async fn a_client_that_prefers_http2_is_served_over_tls() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(text(&upstream, "tls = \"self-signed\""));
    let port = gateway.admin_address().port();
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail", "--cacert", "tls/self-signed.pem"]).current_dir(gateway.path());
    command.args(["-H", &format!("Authorization: Bearer {}", gateway.file("admin.token").trim())]);
    command.args([
        "--resolve",
        &format!("localhost:{port}:127.0.0.1"),
        &format!("https://localhost:{port}/admin/v1/keys"),
    ]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("curl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
