//! The rests of many rejected uploads at once: each client has its share, and none takes it from another.
//!
//! An honest client begins when no attacker waits for a slot any more. From then on no client takes its slot, also if
//! the machine stops it for a while. The unit tests of `src/server/linger_slots.rs` say which client loses its slot.

use std::iter;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::task::JoinSet;

use super::rejected_uploads::{PEER, assert_401, run};
use crate::support::wait::eventually_within;
use crate::support::{Gateway, Upstream, Wire};

/// What a worker has.
const SLOTS: u8 = 64;
/// More than a worker has slots.
const UPLOADS: u8 = 80;
/// More than is discarded without a slot.
const FIRST: usize = 100_000;
/// An upload that needs a slot: more than the buffers of both sockets hold.
const UPLOAD: &str = "12000000";

const ATTACKER: IpAddr = attacker(0);

/// One of many addresses of attackers.
const fn attacker(number: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 1, number + 1))
}

/// A connection from each of these addresses with two uploads, each of which sends a byte now and then. Prints a line
/// when all are rejected, and uploads go on at no more connections than there are slots.
const HTTP2: &str = r#"
const [url, slots, ...addresses] = process.argv.slice(1);
let [rejected, going, ready] = [0, addresses.length, false];
const check = () => {
    if (ready || rejected < 2 * addresses.length || going > slots) return;
    ready = true;
    console.log("ready");
};
for (const localAddress of addresses) {
    const client = require("http2").connect(url, { rejectUnauthorized: false, localAddress });
    client.on("error", () => {});
    let open = 2;
    for (let i = 0; i < 2; i++) {
        const stream = client.request({ ":method": "POST", ":path": "/private", authorization: "Bearer not-a-token" });
        stream.on("error", () => {});
        stream.on("data", () => {});
        stream.on("response", () => { rejected++; check(); });
        stream.on("close", () => { if (--open === 0) { going--; check(); } });
        stream.write(Buffer.alloc(100000));
        setInterval(() => { if (!stream.destroyed) stream.write("x"); }, 200);
    }
}
"#;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has time for all uploads of a story, also beside a compiler.
fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::start();
    let more = "[[route]]\npath = \"/private\"\n[timeouts]\nlingering_close = \"10m\"";
    let gateway = Gateway::public_single_worker(upstream.address, more);
    (upstream, gateway)
}

/// Starts [`UPLOADS`] uploads that go on, by this number of bytes five times a second, until the set is dropped. Waits
/// until those that are left have all slots.
async fn upload_slowly(gateway: &Gateway, clients: impl Iterator<Item = IpAddr>, bytes: usize) -> JoinSet<()> {
    let mut uploads = JoinSet::new();
    for client in clients {
        let mut wire = Wire::connect_from(client, gateway.address()).await;
        wire.send("POST /private HTTP/1.1\r\nHost: a\r\nContent-Length: 900000000\r\n\r\n").await;
        assert_eq!(wire.read_response().await.status, 401);
        uploads.spawn(async move {
            let mut sent = wire.try_send(vec![0; FIRST]).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
                sent = wire.try_send(vec![0; bytes]).await;
            }
            // The gateway reads no more of this one.
            std::future::pending::<()>().await;
        });
    }
    // An upload without a slot either gets one of another upload, or none in time. The gateway closes the one that has
    // none.
    eventually_within(Duration::from_secs(120), "no upload waits for a slot", async || {
        let closed = gateway.metric("bearward_connections_closed_total").await;
        if closed >= f64::from(UPLOADS - SLOTS) { Ok(()) } else { Err(format!("{closed} are closed")) }
    })
    .await;
    uploads
}

/// With each kind of connection.
async fn assert_others_get_401(gateway: &Gateway) {
    let [tls, plain] = [format!("https://{}", gateway.tls_address()), format!("http://{}", gateway.address())];
    let uploading = tokio::task::spawn_blocking(move || {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(3_000_000).expect("grown");
        let data = format!("@{}", file.path().display());
        for base in [tls, plain] {
            let url = format!("{base}/private");
            assert_401("requests", &url, &run("/usr/bin/python3", &[PEER, "requests", &url, UPLOAD]));
            let version = if base.starts_with("https") { "--http2" } else { "--http2-prior-knowledge" };
            let output = ["-sS", "-k", version, "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", &data, &url];
            assert_401(version, &url, &run("curl", &output));
        }
    });
    uploading.await.expect("no panic");
}

/// Each connection has a slot, so that no client has more of them than another.
#[tokio::test]
async fn http2_uploads_that_dribble_lose_their_slots_to_others() {
    let (_upstream, gateway) = gateway();
    let mut command = Command::new("node");
    let url = format!("https://{}", gateway.tls_address());
    command.args(["-e", HTTP2, &url, &SLOTS.to_string()]).stdout(Stdio::piped());
    command.args((0..UPLOADS).map(|number| attacker(number).to_string()));
    let mut node = Killed(command.spawn().expect("node is there"));
    let mut printed = std::io::BufReader::new(node.0.stdout.take().expect("piped"));
    let reading = move || std::io::BufRead::read_line(&mut printed, &mut String::new());
    assert_ne!(tokio::task::spawn_blocking(reading).await.expect("no panic").expect("read"), 0, "a line");
    assert_others_get_401(&gateway).await;
}

#[tokio::test]
async fn uploads_that_dribble_from_many_addresses_delay_no_other() {
    let (_upstream, gateway) = gateway();
    let _uploads = upload_slowly(&gateway, (0..UPLOADS).map(attacker), 1).await;
    assert_others_get_401(&gateway).await;
}

#[tokio::test]
async fn a_client_with_many_uploads_leaves_slots_to_others() {
    let (_upstream, gateway) = gateway();
    let _uploads = upload_slowly(&gateway, iter::repeat_n(ATTACKER, UPLOADS.into()), 8_000).await;
    assert_others_get_401(&gateway).await;
}

#[test]
fn many_uploads_on_one_http2_connection_are_all_rejected() {
    let (_upstream, gateway) = gateway();
    for (count, size) in [(60, 100_000), (60, 1_000_000)] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(size).expect("grown");
        let data = format!("@{}", file.path().display());
        let url = format!("https://{}/private?[1-{count}]", gateway.tls_address());
        let parallel = ["-sS", "-k", "-Z", "--parallel-max", "60", "--http2", "-o", "/dev/null"];
        let output = run("curl", &[&parallel[..], &["-w", "%{http_code}\n", "--data-binary", &data, &url]].concat());
        let statuses = String::from_utf8_lossy(&output.stdout);
        let rejected = statuses.lines().filter(|status| *status == "401").count();
        assert_eq!(rejected, count, "of {size} bytes: {output:?}");
    }
}
