//! One process after another on the same addresses and the same store, under load: nobody is refused, nothing is lost.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use http::Version;
use rusqlite::Connection;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tempfile::TempDir;

use super::load::{Load, Way};
use super::write;
use crate::support::program::{Program, Served, bearward};
use crate::support::rounds::rounds;
use crate::support::session::{self, Session};
use crate::support::{Pair, Upstream, Wire};

/// Nobody else's tests use it, so that a free port stays free.
const HOST: &str = "127.0.0.77:0";

fn free_address() -> SocketAddr {
    TcpListener::bind(HOST).expect("a free port").local_addr().expect("an address")
}

/// One cleartext listener, and no others.
fn text(upstream: &Upstream, listener: SocketAddr, admin: &str, more: &str) -> String {
    format!(
        "workers = 2\n[[listener]]\naddress = \"{listener}\"\ntls = \"off\"\n[admin]\naddress = \"{admin}\"\n\
         [tokens]\nissuer = \"https://gateway.example\"\n[access_log]\nfile = \"access.log\"\n\
         [throttle]\nrefreshes = 0\ncalls = 0\nfailures = 0\n\
         [[upstream]]\nservers = [\"http://{}\"]\n[[route]]\npath = \"/\"\npublic = true\n[[route]]\npath = \"/private\"\n{more}",
        upstream.address
    )
}

/// A gateway that runs, and where.
struct Before {
    folder: TempDir,
    address: SocketAddr,
    admin: SocketAddr,
    served: Served,
}

impl Before {
    async fn running(upstream: &Upstream, more: &str) -> Before {
        let folder = TempDir::new().expect("a folder");
        let (address, admin) = (free_address(), free_address());
        write(folder.path(), &text(upstream, address, &admin.to_string(), more));
        let served = serving(Program::start(folder.path(), &["serve"]), folder.path()).await;
        Before { folder, address, admin, served }
    }
}

/// The one after it.
async fn taking_over(folder: &Path) -> Served {
    serving(Program::start(folder, &["serve", "--take-over"]), folder).await
}

async fn issue(served: &Served, subject: &str) -> Pair {
    Pair::of(&served.admin_client().post("/admin/v1/tokens", &json!({ "sub": subject })).await.json())
}

async fn ended(program: Program) -> String {
    let (status, _, said) = tokio::task::spawn_blocking(|| program.wait()).await.expect("no panic");
    assert!(status.success(), "{said}");
    said
}

async fn serving(program: Program, folder: &Path) -> Served {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || Served::of(program, &folder)).await.expect("no panic")
}

#[tokio::test]
async fn a_process_that_takes_over_is_noticed_by_nobody() {
    let upstream = Upstream::start();
    let secure = free_address();
    let more = format!("[[listener]]\naddress = \"{secure}\"\n");
    let Before { folder, address, admin, mut served } = Before::running(&upstream, &more).await;
    let mut pair = issue(&served, "alice").await;
    let trusted = CertificateDer::from_pem_file(folder.path().join("tls/self-signed.pem")).expect("made at the start");
    let mut load = Load::begin();
    for way in [Way::Cleartext(address), Way::Tls(secure, trusted)] {
        load = load.newcomers(way.clone(), 2);
        load = load.regulars(way.clone(), Version::HTTP_11, 2).regulars(way, Version::HTTP_2, 2);
    }
    for round in 0..rounds(4) {
        load.goes_on_for(50).await;
        let next = taking_over(folder.path()).await;
        assert_eq!((next.addresses.as_slice(), next.admin), ([address, secure].as_slice(), admin));
        let said = ended(std::mem::replace(&mut served, next).program).await;
        assert!(
            said.contains("draining signal=\"take-over\"")
                && said.contains("the store is closed; the next gateway opens it"),
            "{said}"
        );
        // Whatever the old one gave out is good, and goes on here.
        let refresh = json!({ "refreshToken": pair.refresh });
        let answer = served.client().bearer(&pair.access).post("/user/refresh", &refresh).await;
        assert_eq!(answer.status, 200, "round {round}: {answer:?}");
        pair = Pair::of(&answer.json());
        assert_eq!(served.admin_client().get("/readyz").await.status, 200);
    }
    load.goes_on_for(50).await;
    let (answered, longest) = load.end().await;
    eprintln!("{answered} answers, the slowest newcomer waited {longest:?}");
    let asked_at = folder.path().join("bearward.db.take-over");
    assert!(asked_at.exists(), "the next one could ask");
    served.program.signal("TERM");
    ended(served.program).await;
    assert!(!asked_at.exists(), "nothing is left behind");
    let lines = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    assert!(!lines.contains("\"status\":5"), "of {answered} answers:\n{lines}");
}

/// It is served to its end, without the store. What asks the store for something then has to ask again.
#[tokio::test]
async fn a_long_request_holds_up_no_take_over() {
    let upstream = Upstream::start();
    let Before { folder, address, served: old, .. } = Before::running(&upstream, "").await;
    let pair = issue(&old, "alice").await;
    let (pieces, body) = session::streamed();
    let session = Session::http1(address).await;
    let sending = session.sender().send(http::Request::post("/mirror").body(body).expect("a request"));
    let (answer, ()) = tokio::join!(sending, pieces.send("first"));
    let mut answer = answer.expect("an answer").into_body();
    assert!(session::next_piece(&mut answer).await.is_some());
    // A refresh of which half is sent.
    let content = json!({ "refreshToken": pair.refresh }).to_string();
    let mut late = Wire::connect(address).await;
    late.say(format!(
        "POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\n\r\n{}",
        pair.access,
        content.len(),
        &content[..9]
    ))
    .await;

    let began = Instant::now();
    let new = taking_over(folder.path()).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    late.say(&content[9..]).await;
    let refused = late.answer().await;
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (503, true), "{refused:?}");
    let refresh = json!({ "refreshToken": pair.refresh });
    assert_eq!(new.client().bearer(&pair.access).post("/user/refresh", &refresh).await.status, 200);
    pieces.send("more").await;
    assert_eq!(session::next_piece(&mut answer).await.as_deref(), Some(&b"more"[..]));
    drop(pieces);
    assert!(session::next_piece(&mut answer).await.is_none());
    ended(old.program).await;
    assert_eq!(new.client().get("/").await.status, 200);
}

/// What still runs in the old process stands on tokens that only the new one can revoke.
#[tokio::test]
async fn what_is_revoked_after_a_take_over_ends_streams_of_before() {
    let upstream = Upstream::start();
    let before = Before::running(&upstream, "[[route]]\npath = \"/mirror\"\n").await;
    let Before { folder, address, served: old, .. } = before;
    let mut streams = Vec::new();
    for subject in ["alice", "bob"] {
        let pair = issue(&old, subject).await;
        let mut wire = Wire::connect(address).await;
        let head = format!("POST /mirror HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n", pair.access);
        wire.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")).await;
        wire.hear_until("first\r\n").await;
        streams.push((pair, wire));
    }
    let new = taking_over(folder.path()).await;
    let admin = new.admin_client();
    let [(alice, mut of_alice), (_, mut of_bob)] = <[_; 2]>::try_from(streams).ok().expect("two");
    let began = Instant::now();
    assert_eq!(admin.delete(&format!("/admin/v1/tokens/{}", alice.token_id)).await.status, 200);
    of_alice.is_closed().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    of_bob.say("6\r\nsecond\r\n").await;
    of_bob.hear_until("second\r\n").await;

    let keys = admin.get("/admin/v1/keys").await.json();
    let active =
        keys["keys"].as_array().expect("a list").iter().find(|key| key["state"] == "active").expect("one signs");
    let kid = active["kid"].as_str().expect("a name");
    let began = Instant::now();
    assert_eq!(admin.post(&format!("/admin/v1/keys/{kid}/revoke"), &json!({})).await.status, 200);
    of_bob.is_closed().await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    ended(old.program).await;
    let lines = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    for reason in ["revoked", "key_revoked"] {
        assert!(lines.contains(&format!("\"ended\":\"{reason}\"")), "{reason}: {lines}");
    }
}

#[tokio::test]
async fn what_cannot_take_over_leaves_the_gateway_that_runs_alone() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let good = text(&upstream, free_address(), &free_address().to_string(), "");
    write(folder.path(), &good);
    // Without anybody there, it starts as usual.
    let served = taking_over(folder.path()).await;
    write(folder.path(), &good.replace("workers = 2", "wrokers = 2"));
    assert_eq!(bearward(folder.path(), &["serve", "--take-over"]).status.code(), Some(2));
    write(folder.path(), &good);
    let token = std::fs::read(folder.path().join("admin.token")).expect("made");
    std::fs::write(folder.path().join("admin.token"), "short").expect("written");
    assert_eq!(bearward(folder.path(), &["serve", "--take-over"]).status.code(), Some(1));
    std::fs::write(folder.path().join("admin.token"), token).expect("written");
    // It is a newer program that runs.
    let database = Connection::open(folder.path().join("bearward.db")).expect("opened");
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).expect("read");
    database.pragma_update(None, "user_version", 99).expect("written");
    let older = bearward(folder.path(), &["serve", "--take-over"]);
    let said = String::from_utf8_lossy(&older.stderr);
    assert!(older.status.code() == Some(1) && said.contains("newer version"), "{said}");
    database.pragma_update(None, "user_version", version).expect("written");
    // Whoever does not ask for it does not get it.
    assert_eq!(bearward(folder.path(), &["serve"]).status.code(), Some(2), "the addresses are in use");
    assert_eq!(served.client().get("/").await.status, 200);
    assert_eq!(served.admin_client().get("/readyz").await.status, 200);
}

/// As systemd does it: the socket is passed on, and outlives every process.
#[tokio::test]
async fn a_socket_of_systemd_outlives_restarts_at_load() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let socket = TcpListener::bind(HOST).expect("a free port");
    let address = socket.local_addr().expect("an address");
    write(folder.path(), &text(&upstream, address, "127.0.0.1:0", ""));
    let start = || Program::start_on(&socket, folder.path(), &["serve"]);
    let mut served = serving(start(), folder.path()).await;
    assert_eq!(served.addresses, [address]);
    let load = Load::begin().newcomers(address, 4);
    let load = load.regulars(address, Version::HTTP_11, 2).regulars(address, Version::HTTP_2, 2);
    for _ in 0..rounds(4) {
        load.goes_on_for(50).await;
        served.program.signal("TERM");
        ended(served.program).await;
        served = serving(start(), folder.path()).await;
    }
    load.goes_on_for(50).await;
    let (answered, longest) = load.end().await;
    eprintln!("{answered} answers, the slowest newcomer waited {longest:?}");

    // A socket that nobody would serve.
    served.program.signal("TERM");
    ended(served.program).await;
    write(folder.path(), &text(&upstream, free_address(), "127.0.0.1:0", ""));
    let (status, _, said) = start().wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("systemd listens on {address}")) && said.contains("ListenStream="), "{said}");
}

/// `Type=notify`: systemd is told when it is ready, when it reloads, and when it ends.
#[test]
fn systemd_is_told_of_the_start_each_reload_and_the_end() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    write(folder.path(), &text(&upstream, free_address(), "127.0.0.1:0", ""));
    let path = folder.path().join("notify");
    let told = std::os::unix::net::UnixDatagram::bind(&path).expect("bound");
    told.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let next = || {
        let mut message = [0; 256];
        let length = told.recv(&mut message).expect("it is told");
        String::from_utf8(message[..length].to_vec()).expect("UTF-8")
    };
    let program = Program::start_with(("NOTIFY_SOCKET", path.as_os_str()), folder.path(), &["serve"]);
    assert_eq!(next().trim(), "READY=1");
    program.signal("HUP");
    let reloading = next();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert_eq!(next().trim(), "READY=1");
    program.signal("TERM");
    assert_eq!(next().trim(), "STOPPING=1");
    assert!(program.wait().0.success());
}
