//! The growth of the access log that a client can cause with few bytes of its own.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::frames::{self, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, frame};
use crate::support::program::{GatewayProcess, bearward};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream, Wire};

/// Responses in a flood. A multiple of every batch, which is below `limits.http2_concurrent_streams`.
const REQUESTS: u32 = 6_000;

/// The flag of a PING that responds to another one.
const ACK: u8 = 1;

#[tokio::test]
async fn every_text_of_a_client_is_cut_in_both_formats() {
    let upstream = Upstream::start();
    let long = |text: &[u8]| text.repeat(3_000 / text.len());
    let requests = [
        [b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: ", &*long(b"\xff\xfea\""), b"\r\n\r\n"].concat(),
        [b"GET /", &*long(b"\"%41"), b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat(),
        [b"GET / HTTP/1.1\r\nHost: ", &*long(b"a"), b"\r\n\r\n"].concat(),
        [&*long(b"M"), b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(),
    ];
    for format in ["json", "text"] {
        let gateway = Gateway::public_with_log_format(upstream.address, format);
        for (sent, request) in requests.iter().enumerate() {
            let mut client = Wire::connect(gateway.address()).await;
            client.send(request).await;
            client.read_until("\r\n").await;
            drop(client);
            let text = gateway.log_text(sent + 1).await;
            let line = text.lines().last().expect("a line");
            assert!(line.len() < 1_000, "{} bytes: {line}", line.len());
            // Such a long Host is not recorded at all, and the text format has no User-Agent.
            let has_text = sent != 2 && (format == "json" || sent > 0);
            assert!(!has_text || line.contains('…'), "not marked as cut: {line}");
        }
    }
}

#[tokio::test]
async fn a_configured_field_size_applies() {
    let upstream = Upstream::start();
    let file = "file = \"access.log\"";
    let text = Gateway::public_config(upstream.address, "");
    let gateway = Gateway::from_text(text.replace(file, &format!("{file}\nmax_field_size = \"64B\"")));
    let (exact, longer) = ("a".repeat(63), "a".repeat(64));
    gateway.client().get(&format!("/{exact}")).await;
    gateway.client().get(&format!("/{longer}")).await;
    let lines = gateway.log_lines(2).await;
    let mut paths: Vec<_> = lines.iter().map(|line| line["path"].as_str().unwrap_or_default()).collect();
    paths.sort();
    assert_eq!(paths, [format!("/{exact}"), format!("/{exact}…")]);
}

#[tokio::test]
async fn rejections_beyond_the_limit_are_counted_only() {
    let upstream = Upstream::start();
    let file = "file = \"access.log\"";
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace(file, &format!("{file}\nrejections_per_second = 4")));
    let pair = gateway.issue("alice", "").await;
    let mut client = Wire::connect(gateway.address()).await;
    const REJECTED: usize = 300;
    for _ in 0..REJECTED {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.read_response().await.status, 401);
    }
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    gateway.log_line(|line| line["status"] == 200).await;
    let lines = gateway.log_lines(1).await;
    let rejected = lines.iter().filter(|line| line["reason"] == "no_token").count();
    // 10 seconds of one line per second, and one for each second that the requests took.
    assert!((10..REJECTED / 2).contains(&rejected), "{rejected} lines");
    let left_out = (REJECTED - rejected) as u64;
    gateway.wait_for_metric("access_log_rejections_left_out_total", left_out).await;
    gateway.wait_for_metric("rejections_total{reason=\"no_token\"}", REJECTED as u64).await;
    gateway.wait_for_metric("access_log_dropped_total", 0).await;
}

/// An operator looks for the requests of customers that a broken backend has failed. The limit is for strangers.
#[tokio::test]
async fn requests_with_a_token_or_to_a_backend_are_always_logged() {
    const EACH: usize = 60;
    let upstream = Upstream::start();
    let closed = crate::support::ports::free_address();
    let routes = "[[route]]\npath = \"/public\"\npublic = true\nupstream = \"closed\"\n\
                  [[route]]\npath = \"/scoped\"\nscopes = [\"admin\"]\nupstream = \"backend\"\n\
                  [[route]]\npath = \"/\"\nupstream = \"closed\"\n";
    let closed = format!("[[upstream]]\nname = \"closed\"\nservers = [\"http://{closed}\"]\n");
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{closed}{routes}"));
    let file = "file = \"access.log\"";
    let gateway = Gateway::from_text(text.replace(file, &format!("{file}\nrejections_per_second = 4")));
    let token = gateway.issue("alice", "").await.access;
    let mut client = Wire::connect(gateway.address()).await;
    for (path, field, status) in [
        ("/", format!("Authorization: Bearer {token}\r\n"), 502),
        ("/scoped", format!("Authorization: Bearer {token}\r\n"), 403),
        ("/public", String::new(), 502),
    ] {
        for _ in 0..EACH {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n")).await;
            assert_eq!(client.read_response().await.status, status, "{path}");
        }
    }
    gateway.log_lines(3 * EACH).await;
    gateway.wait_for_metric("access_log_rejections_left_out_total", 0).await;
}

/// They need no token, and `[[rate]]` does not count them.
#[tokio::test]
async fn public_documents_count_for_the_limit_of_the_log() {
    const EACH: usize = 40;
    let upstream = Upstream::start();
    let file = "file = \"access.log\"";
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace(file, &format!("{file}\nrejections_per_second = 4")));
    let keys = "/.well-known/jwks.json HTTP/1.1\r\nHost: a\r\n";
    let preflight = format!("OPTIONS {keys}Origin: https://a\r\nAccess-Control-Request-Method: GET\r\n");
    let metadata = "GET /.well-known/oauth-authorization-server HTTP/1.1\r\nHost: a\r\n";
    let heads = [format!("GET {keys}"), preflight, metadata.to_owned()];
    let mut client = Wire::connect(gateway.address()).await;
    for head in &heads {
        for _ in 0..EACH {
            client.send(format!("{head}\r\n")).await;
            assert!(client.read_response().await.status < 300);
        }
    }
    let log = logged(&gateway, (EACH * heads.len()) as u32).await;
    assert!((10..EACH).contains(&log.lines().count()), "{log}");
}

/// Requests without a token that reach no backend: one that is rejected, and one for a public document.
#[tokio::test]
async fn a_flood_over_hpack_logs_few_bytes_per_byte() {
    for path in ["/", "/.well-known/jwks.json"] {
        let upstream = Upstream::start();
        let gateway = Gateway::start(&upstream);
        let sent = send_flood(&gateway, 50, |number| request(2 * number + 1, path)).await;
        assert_few_bytes(sent, &logged(&gateway, REQUESTS).await);
    }
}

/// A client that resets its stream before it gets the response does not avoid the limit. Every second request is reset:
/// `limits.http2_resets` allows half of them. Few at once, because h2 ends a connection after 20 such streams.
#[tokio::test]
async fn reset_requests_do_not_avoid_the_limit_of_the_log() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = |number| {
        let (answered, reset) = (4 * number + 1, 4 * number + 3);
        let cancel = frame(RST_STREAM, 0, reset, &8_u32.to_be_bytes());
        [request(answered, "/"), request(reset, "/"), cancel].concat()
    };
    let sent = send_flood(&gateway, 8, pair).await;
    gateway.wait_for_metric("rejections_total{reason=\"no_token\"}", 2 * u64::from(REQUESTS)).await;
    assert_few_bytes(sent, &logged(&gateway, 2 * REQUESTS).await);
}

/// h2 warns of each acknowledgement of a PING that it has not sent. Such a warning must not take the place of a message
/// of the gateway.
#[tokio::test]
async fn a_client_cannot_keep_the_gateways_own_messages_out_of_its_log() {
    const RELOADS: usize = 10;
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let text = Gateway::public_config(upstream.address, "");
    std::fs::write(&file, &text).expect("written");
    let gateway = GatewayProcess::start(folder.path());
    let _floods = [(); 3].map(|()| Flood::start(gateway.addresses[0]));
    gateway.program.wait_for_stderr(" messages of libraries: there were too many");
    let path = folder.path().to_owned();
    let failing = (0..RELOADS).map(|number| {
        std::fs::write(&file, format!("{text}no_such_table_{number} = 1\n")).expect("written");
        !bearward(&path, &["reload"]).status.success()
    });
    assert!(failing.collect::<Vec<_>>().into_iter().all(|failed| failed));
    for number in 0..RELOADS {
        let log = gateway.program.wait_for_stderr(&format!("no_such_table_{number}"));
        assert!(log.contains("ERROR bearward::app::reload_thread: not reloaded"), "{log}");
    }
}

/// A connection that acknowledges PINGs that it never got, 600 in a second: `limits.http2_control_frames` allows 1,000.
struct Flood(Arc<AtomicBool>);

impl Flood {
    fn start(address: SocketAddr) -> Flood {
        let is_over = Arc::<AtomicBool>::default();
        let ends = is_over.clone();
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("the gateway listens");
            stream.write_all(&frames::connection_preface()).expect("written");
            while !ends.load(Ordering::Relaxed) && stream.write_all(&frame(PING, ACK, 0, &[7; 8]).repeat(60)).is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Flood(is_over)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests, each of which has one response, `batch` at a time. Returns how many bytes they had.
async fn send_flood(gateway: &Gateway, batch: u32, request: impl Fn(u32) -> Vec<u8>) -> usize {
    let mut wire = frames::connect(gateway.address(), &[frames::connection_preface_with_max_windows()]).await;
    let mut sent = 0;
    for first in (0..REQUESTS).step_by(batch as usize) {
        let bytes: Vec<u8> = (first..first + batch).flat_map(&request).collect();
        sent += bytes.len();
        wire.send(bytes).await;
        for _ in 0..batch {
            let answered = frames::next(&mut wire, &[HEADERS, RST_STREAM, GOAWAY]).await;
            assert_eq!(answered.kind, HEADERS, "{answered:?}");
        }
    }
    sent
}

/// The log, as soon as each of these requests has a line or is counted as left out.
async fn logged(gateway: &Gateway, requests: u32) -> String {
    eventually_ok("every request is logged or left out", async || {
        let left_out = gateway.metric("bearward_access_log_rejections_left_out_total").await as usize;
        let log = gateway.log_text(1).await;
        match log.lines().count() + left_out {
            counted if counted == requests as usize => Ok(log),
            counted => Err(format!("{counted} of {requests}")),
        }
    })
    .await
}

#[track_caller]
fn assert_few_bytes(sent: usize, log: &str) {
    let line: Value = serde_json::from_str(log.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["user_agent"].as_str().map(str::len), Some(256 + '…'.len_utf8()));
    let ratio = log.len() as f64 / sent as f64;
    eprintln!("{sent} bytes received, {} bytes logged: {ratio:.2} per byte", log.len());
    assert!(ratio <= 4.0, "{ratio}");
}

/// A request of 14 bytes, or the first one, with a User-Agent of 3,900 bytes. HPACK: the first request puts its fields
/// into the table, and each further request names them again with one byte.
fn request(stream: u32, path: &str) -> Vec<u8> {
    // RFC 7541: fields of the static table, and those that the first request adds.
    const GET: u8 = 0x80 | 2;
    const HTTP: u8 = 0x80 | 6;
    const USER_AGENT: u8 = 0x80 | 62;
    const AUTHORITY: u8 = 0x80 | 63;
    const PATH: u8 = 0x80 | 64;
    let block = match stream {
        1 => {
            // With incremental indexing (section 6.2.1). Lengths have a prefix of seven bits (section 5.1): 3,900 is
            // 127 + 61 + 29 * 128.
            let length = u8::try_from(path.len()).expect("short");
            let path = [&[GET, HTTP, 0x40 | 4, length][..], path.as_bytes()].concat();
            let others = [&[0x40 | 1, 1, b'a', 0x40 | 58, 127, 0x80 | 61, 29][..], &[b'x'; 3_900]].concat();
            [path, others].concat()
        }
        _ => vec![GET, HTTP, PATH, AUTHORITY, USER_AGENT],
    };
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}
