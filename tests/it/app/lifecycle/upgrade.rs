//! One process takes over from another on the same addresses and store, under load. No request is rejected or lost.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use http::Version;
use rusqlite::Connection;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tempfile::TempDir;

use super::load::{Current, Load, Transport};
use super::write;
use crate::support::connection::{self, HttpConnection};
use crate::support::ports::free_address;
use crate::support::postgres::PostgresServer;
use crate::support::program::{GatewayProcess, Program, bearward};
use crate::support::repetitions::repetitions;
use crate::support::sockets::assert_kept_alive;
use crate::support::{TokenPair, Upstream, Wire};

/// A configuration with one cleartext listener.
pub(super) fn text(upstream: &Upstream, listener: SocketAddr, admin: &str, more: &str) -> String {
    format!(
        "workers = 2\n[[listener]]\naddress = \"{listener}\"\ntls = \"off\"\n[admin]\naddress = \"{admin}\"\n\
         [tokens]\nissuer = \"https://gateway.example\"\n[https]\nhosts = [\"gateway.test\"]\n[access_log]\nfile = \"access.log\"\n\
         [throttle]\nrefreshes = 0\ncalls = 0\nfailures = 0\n\
         [[upstream]]\nservers = [\"http://{}\"]\n[[route]]\npath = \"/\"\npublic = true\n[[route]]\npath = \"/private\"\n{more}",
        upstream.address
    )
}

/// The first gateway, its folder and its addresses.
pub(super) struct FirstGateway {
    pub(super) folder: TempDir,
    pub(super) address: SocketAddr,
    admin: SocketAddr,
    pub(super) served: GatewayProcess,
}

impl FirstGateway {
    async fn running(upstream: &Upstream, more: &str) -> FirstGateway {
        FirstGateway::with(upstream, "", more).await
    }

    /// `tokens`: more keys of its table. `more`: more tables.
    pub(super) async fn with(upstream: &Upstream, tokens: &str, more: &str) -> FirstGateway {
        let folder = TempDir::new().expect("a folder");
        let (address, admin) = (free_address(), free_address());
        let text = text(upstream, address, &admin.to_string(), more);
        write(folder.path(), &text.replace("[tokens]\n", &format!("[tokens]\n{tokens}")));
        let served = wait_until_serving(Program::start(folder.path(), &["serve"]), folder.path()).await;
        FirstGateway { folder, address, admin, served }
    }
}

/// Starts the next gateway, which takes over.
pub(super) async fn take_over(folder: &Path) -> GatewayProcess {
    wait_until_serving(Program::start(folder, &["serve", "--take-over"]), folder).await
}

async fn issue(served: &GatewayProcess, subject: &str) -> TokenPair {
    TokenPair::from_json(&served.admin_client().post("/admin/v1/tokens", &json!({ "sub": subject })).await.json())
}

pub(super) async fn wait_for_exit(program: Program) -> String {
    let (status, _, said) = tokio::task::spawn_blocking(|| program.wait()).await.expect("no panic");
    assert!(status.success(), "{said}");
    said
}

async fn wait_until_serving(program: Program, folder: &Path) -> GatewayProcess {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || GatewayProcess::wait_for(program, &folder)).await.expect("no panic")
}

#[tokio::test]
async fn a_take_over_under_load_disturbs_no_client() {
    take_over_under_load("", "the store is closed; the next gateway opens it", "bearward.db.take-over").await;
}

/// Both processes have the database open at once.
#[tokio::test]
async fn a_take_over_with_postgresql_disturbs_no_client() {
    take_over_under_load(&store_in_postgres(), "drained", "bearward.take-over").await;
}

pub(super) fn store_in_postgres() -> String {
    format!("[store]\n{}", PostgresServer::shared().store_keys())
}

/// `store`: the table of the configuration; `says`: what each replaced gateway logs; `socket`: in its folder.
async fn take_over_under_load(store: &str, says: &str, socket: &str) {
    let upstream = Upstream::start();
    let tls_address = free_address();
    let more = format!("[[listener]]\naddress = \"{tls_address}\"\n{store}");
    let FirstGateway { folder, address, admin, mut served } = FirstGateway::running(&upstream, &more).await;
    let mut pair = issue(&served, "alice").await;
    let trusted = CertificateDer::from_pem_file(folder.path().join("tls/self-signed.pem")).expect("created at startup");
    let mut load = Load::begin();
    for transport in [Transport::Cleartext(address), Transport::Tls(tls_address, trusted)] {
        load = load.new_connections(transport.clone(), 2);
        load = load.kept_connections(transport.clone(), Version::HTTP_11, 2).kept_connections(
            transport,
            Version::HTTP_2,
            2,
        );
    }
    for round in 0..repetitions(4) {
        load.goes_on_for(50).await;
        let next = take_over(folder.path()).await;
        assert_eq!((next.addresses.as_slice(), next.admin), ([address, tls_address].as_slice(), admin));
        let said = wait_for_exit(std::mem::replace(&mut served, next).program).await;
        assert!(said.contains("draining signal=\"take-over\"") && said.contains(says), "{said}");
        // Tokens of the old process are valid here, and this process can refresh them.
        let refresh = json!({ "refreshToken": pair.refresh });
        let answer = served.client().bearer(&pair.access).post("/user/refresh", &refresh).await;
        assert_eq!(answer.status, 200, "round {round}: {answer:?}");
        pair = TokenPair::from_json(&answer.json());
        assert_eq!(served.admin_client().get("/readyz").await.status, 200);
    }
    load.goes_on_for(50).await;
    let (responses, longest) = load.end().await;
    eprintln!("{responses} responses, the slowest new connection waited {longest:?}");
    let take_over_socket = folder.path().join(socket);
    assert!(take_over_socket.exists(), "the next process could ask for a take-over");
    served.program.signal("TERM");
    wait_for_exit(served.program).await;
    assert!(!take_over_socket.exists(), "the socket is removed");
    let lines = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    assert!(!lines.contains("\"status\":5"), "of {responses} responses:\n{lines}");
}

/// The old process serves the request without the store. A request that needs the store must be retried.
#[tokio::test]
async fn a_long_request_does_not_delay_a_take_over() {
    let upstream = Upstream::start();
    let FirstGateway { folder, address, served: old, .. } = FirstGateway::running(&upstream, "").await;
    let pair = issue(&old, "alice").await;
    let (pieces, body) = connection::streamed();
    let connection = HttpConnection::http1(address).await;
    let sending = connection.sender().send(http::Request::post("/mirror").body(body).expect("a request"));
    let (answer, ()) = tokio::join!(sending, pieces.send("first"));
    let mut answer = answer.expect("an answer").into_body();
    assert!(connection::next_chunk(&mut answer).await.is_some());
    // Half of a refresh request.
    let content = json!({ "refreshToken": pair.refresh }).to_string();
    let mut late_client = Wire::connect(address).await;
    late_client
        .send(format!(
            "POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\n\r\n{}",
            pair.access,
            content.len(),
            &content[..9]
        ))
        .await;

    let began = Instant::now();
    let new = take_over(folder.path()).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    late_client.send(&content[9..]).await;
    let response = late_client.read_response().await;
    assert_eq!((response.status, response.header("retry-after").is_some()), (503, true), "{response:?}");
    let refresh = json!({ "refreshToken": pair.refresh });
    assert_eq!(new.client().bearer(&pair.access).post("/user/refresh", &refresh).await.status, 200);
    pieces.send("more").await;
    assert_eq!(connection::next_chunk(&mut answer).await.as_deref(), Some(&b"more"[..]));
    drop(pieces);
    assert!(connection::next_chunk(&mut answer).await.is_none());
    wait_for_exit(old.program).await;
    assert_eq!(new.client().get("/").await.status, 200);
}

/// Streams of the old process use tokens that only the new process can revoke.
#[tokio::test]
async fn a_revocation_after_a_take_over_ends_streams_of_before() {
    revocation_after_a_take_over("").await;
}

#[tokio::test]
async fn a_revocation_in_postgresql_ends_streams_of_before() {
    revocation_after_a_take_over(&store_in_postgres()).await;
}

async fn revocation_after_a_take_over(store: &str) {
    let upstream = Upstream::start();
    let before = FirstGateway::running(&upstream, &format!("[[route]]\npath = \"/mirror\"\n{store}")).await;
    let FirstGateway { folder, address, served: old, .. } = before;
    let mut streams = Vec::new();
    for subject in ["alice", "bob"] {
        let pair = issue(&old, subject).await;
        let mut wire = Wire::connect(address).await;
        let head = format!("POST /mirror HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n", pair.access);
        wire.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")).await;
        wire.read_until("first\r\n").await;
        streams.push((pair, wire));
    }
    let new = take_over(folder.path()).await;
    let admin = new.admin_client();
    let [(alice, mut of_alice), (_, mut of_bob)] = <[_; 2]>::try_from(streams).ok().expect("two");
    let began = Instant::now();
    assert_eq!(admin.delete(&format!("/admin/v1/tokens/{}", alice.token_id)).await.status, 200);
    of_alice.assert_closed().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    of_bob.send("6\r\nsecond\r\n").await;
    of_bob.read_until("second\r\n").await;

    let keys = admin.get("/admin/v1/keys").await.json();
    let active =
        keys["keys"].as_array().expect("a list").iter().find(|key| key["state"] == "active").expect("one key signs");
    let kid = active["kid"].as_str().expect("a name");
    let began = Instant::now();
    assert_eq!(admin.post(&format!("/admin/v1/keys/{kid}/revoke"), &json!({})).await.status, 200);
    of_bob.assert_closed().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    wait_for_exit(old.program).await;
    let lines = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    for reason in ["revoked", "key_revoked"] {
        assert!(lines.contains(&format!("\"ended\":\"{reason}\"")), "{reason}: {lines}");
    }
}

#[tokio::test]
async fn a_failed_take_over_leaves_the_running_gateway_alone() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let good = text(&upstream, free_address(), &free_address().to_string(), "");
    write(folder.path(), &good);
    // Without a running gateway, it starts as usual.
    let served = take_over(folder.path()).await;
    write(folder.path(), &good.replace("workers = 2", "wrokers = 2"));
    assert_eq!(bearward(folder.path(), &["serve", "--take-over"]).status.code(), Some(2));
    write(folder.path(), &good);
    let token = std::fs::read(folder.path().join("admin.token")).expect("made");
    std::fs::write(folder.path().join("admin.token"), "short").expect("written");
    assert_eq!(bearward(folder.path(), &["serve", "--take-over"]).status.code(), Some(1));
    std::fs::write(folder.path().join("admin.token"), token).expect("written");
    // The running gateway is newer.
    let database = Connection::open(folder.path().join("bearward.db")).expect("opened");
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).expect("read");
    database.pragma_update(None, "user_version", 99).expect("written");
    let older = bearward(folder.path(), &["serve", "--take-over"]);
    let said = String::from_utf8_lossy(&older.stderr);
    assert!(older.status.code() == Some(1) && said.contains("newer version"), "{said}");
    database.pragma_update(None, "user_version", version).expect("written");
    // Another program has the address of a new listener.
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let used = other.local_addr().expect("an address");
    write(folder.path(), &format!("{good}[[listener]]\naddress = \"{used}\"\ntls = \"off\"\n"));
    let failed = bearward(folder.path(), &["serve", "--take-over"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && said.contains(&used.to_string()), "{said}");
    let warning = served.program.wait_for_stderr("cannot hand over the listening sockets");
    assert!(warning.contains("this one goes on"), "{warning}");
    assert_eq!(served.client().get("/").await.status, 200);
    // A log that cannot be opened: it is a link into a folder that does not exist.
    std::os::unix::fs::symlink("missing/log", folder.path().join("link")).expect("created");
    let without_log = good.replace("\"access.log\"", "\"link\"");
    assert_ne!(without_log, good);
    for text in [without_log, format!("{good}[audit]\nfile = \"link\"\n")] {
        write(folder.path(), &text);
        let failed = bearward(folder.path(), &["serve", "--take-over"]);
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(failed.status.code() == Some(1) && said.contains("No such file"), "{said}");
        assert_eq!(served.client().get("/").await.status, 200);
    }
    write(folder.path(), &good);
    // Without --take-over, a second gateway does not start.
    assert_eq!(bearward(folder.path(), &["serve"]).status.code(), Some(2), "the addresses are in use");
    assert_eq!(served.client().get("/").await.status, 200);
    assert_eq!(served.admin_client().get("/readyz").await.status, 200);
    // When the address is free, the same configuration takes over.
    drop(other);
    write(folder.path(), &format!("{good}[[listener]]\naddress = \"{used}\"\ntls = \"off\"\n"));
    let next = take_over(folder.path()).await;
    assert!(next.addresses.contains(&used), "{:?}", next.addresses);
    wait_for_exit(served.program).await;
    assert_eq!(next.client().get("/").await.status, 200);
}

/// Passes the listening socket to each process, as systemd does. The socket outlives every process.
#[tokio::test]
async fn a_socket_of_systemd_outlives_restarts_under_load() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("an address");
    write(folder.path(), &text(&upstream, address, "127.0.0.1:0", ""));
    let start = || Program::start_with_socket(&socket, folder.path(), &["serve"]);
    let mut served = wait_until_serving(start(), folder.path()).await;
    assert_eq!(served.addresses, [address]);
    let load = Load::begin().new_connections(address, 4);
    let load = load.kept_connections(address, Version::HTTP_11, 2).kept_connections(address, Version::HTTP_2, 2);
    for _ in 0..repetitions(4) {
        load.goes_on_for(50).await;
        served.program.signal("TERM");
        wait_for_exit(served.program).await;
        served = wait_until_serving(start(), folder.path()).await;
    }
    load.goes_on_for(50).await;
    // systemd has set no options of its connections.
    assert_kept_alive(&tokio::net::TcpStream::connect(address).await.expect("connected")).await;
    let (responses, longest) = load.end().await;
    eprintln!("{responses} responses, the slowest new connection waited {longest:?}");

    // A socket that no listener in gateway.toml uses.
    served.program.signal("TERM");
    wait_for_exit(served.program).await;
    write(folder.path(), &text(&upstream, free_address(), "127.0.0.1:0", ""));
    let (status, _, said) = start().wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("systemd listens on {address}")) && said.contains("ListenStream="), "{said}");
}

/// Requests that arrive during a restart wait in the socket of systemd. The next process serves them from the sessions
/// and revocations in PostgreSQL.
#[tokio::test]
async fn restarts_behind_a_socket_keep_what_postgresql_has() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("an address");
    write(folder.path(), &text(&upstream, address, "127.0.0.1:0", &store_in_postgres()));
    let start = || Program::start_with_socket(&socket, folder.path(), &["serve"]);
    let mut served = wait_until_serving(start(), folder.path()).await;
    assert_eq!(served.addresses, [address]);
    let mut alice = issue(&served, "alice").await;
    let current = Current::new(&alice.access);
    let mut load = Load::begin().new_connections(address, 2).refreshes(address, issue(&served, "bob").await);
    load = load.bearers(address, Version::HTTP_11, 2, &current).bearers(address, Version::HTTP_2, 2, &current);
    for round in 0..repetitions(4) {
        let revoked = issue(&served, "carol").await;
        let path = format!("/admin/v1/tokens/{}", revoked.token_id);
        assert_eq!(served.admin_client().delete(&path).await.status, 200);
        load = load.rejected(address, &revoked.access);
        load.goes_on_for(50).await;
        served.program.signal("TERM");
        wait_for_exit(served.program).await;
        served = wait_until_serving(start(), folder.path()).await;
        let refresh = json!({ "refreshToken": alice.refresh });
        let response = served.client().bearer(&alice.access).post("/user/refresh", &refresh).await;
        assert_eq!(response.status, 200, "round {round}: {response:?}");
        alice = TokenPair::from_json(&response.json());
        current.becomes(&alice.access).await;
    }
    load.goes_on_for(50).await;
    let (responses, longest) = load.end().await;
    eprintln!("{responses} responses, the slowest new connection waited {longest:?}");
    served.program.signal("TERM");
    wait_for_exit(served.program).await;
    let lines = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    assert!(!lines.contains("\"status\":5"), "of {responses} responses:\n{lines}");
}
