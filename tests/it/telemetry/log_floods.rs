//! What a client can make the access log grow by, with few bytes of its own.

use serde_json::Value;

use crate::support::frames::{self, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, frame};
use crate::support::{Gateway, Upstream, Wire};

/// Frames that are sent before the responses are read, below `limits.http2_concurrent_streams`.
const BATCH: u32 = 50;

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
    assert_eq!(lines[0]["path"], format!("/{exact}"));
    assert_eq!(lines[1]["path"], format!("/{exact}…"));
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

/// HPACK: the first request names a long User-Agent and puts it into the table. Each further request names it again
/// with one byte.
#[tokio::test]
async fn a_flood_over_hpack_logs_few_bytes_per_byte() {
    const REQUESTS: u32 = 6_000;
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let mut wire = frames::connect(gateway.address(), &[frames::connection_preface_with_max_windows()]).await;
    let mut sent = 0;
    for batch in 0..REQUESTS / BATCH {
        let request = |number| request(2 * (batch * BATCH + number) + 1);
        let bytes: Vec<u8> = (0..BATCH).flat_map(request).collect();
        sent += bytes.len();
        wire.send(bytes).await;
        for _ in 0..BATCH {
            let answered = frames::next(&mut wire, &[HEADERS, RST_STREAM]).await;
            assert_eq!(answered.kind, HEADERS, "{answered:?}");
        }
    }
    gateway.wait_for_metric("rejections_total{reason=\"no_token\"}", REQUESTS.into()).await;
    let lines = gateway.log_text(1).await;
    let line: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["user_agent"].as_str().map(str::len), Some(256 + '…'.len_utf8()));
    let ratio = lines.len() as f64 / sent as f64;
    eprintln!("{sent} bytes received, {} bytes logged: {ratio:.2} per byte", lines.len());
    assert!(ratio <= 4.0, "{ratio}");
}

/// A request of 14 bytes, or the first one, with a User-Agent of 3,900 bytes.
fn request(stream: u32) -> Vec<u8> {
    // RFC 7541: fields of the static table, and the first entry of the dynamic table.
    const GET: u8 = 0x80 | 2;
    const ROOT: u8 = 0x80 | 4;
    const HTTP: u8 = 0x80 | 6;
    const USER_AGENT: u8 = 0x80 | 62;
    const AUTHORITY: u8 = 0x80 | 63;
    let block = match stream {
        1 => {
            // With incremental indexing (section 6.2.1): `:authority: a`, then `user-agent`. Lengths have a prefix of
            // seven bits (section 5.1): 3,900 is 127 + 61 + 29 * 128.
            let fields = [&[GET, ROOT, HTTP, 0x40 | 1, 1, b'a', 0x40 | 58, 127, 0x80 | 61, 29][..], &[b'x'; 3_900]];
            fields.concat()
        }
        _ => vec![GET, ROOT, HTTP, AUTHORITY, USER_AGENT],
    };
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
}
