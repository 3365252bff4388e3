//! A large upload is rejected while its client is still sending. Each of these programs must see the response.

use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::frames::{self, DATA, END_HEADERS, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE};
use crate::support::{Gateway, ScriptedBackend, Upstream};

pub(super) const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/upload_peer.py");
const BODY: u64 = 50_000_000;

/// Prints the status of the response.
const NODE: &str = r#"
const url = new URL(process.argv[1]);
const options = { method: "POST", rejectUnauthorized: false,
    headers: { authorization: "Bearer not-a-token", "content-length": 50000000 } };
const client = require(url.protocol === "https:" ? "https" : "http");
const request = client.request(url, options, response => {
    response.resume();
    response.on("end", () => { console.log(response.statusCode); process.exit(0); });
});
request.on("error", error => { console.log(error.code); process.exit(1); });
request.end(Buffer.alloc(50000000));
"#;

pub(super) fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub(super) fn assert_401(client: &str, url: &str, output: &Output) {
    let [out, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(out.trim() == "401", "{client} to {url}: {out}\n{errors}");
}

fn gateway() -> (Upstream, Gateway) {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[[route]]\npath = \"/private\"");
    (upstream, gateway)
}

/// Calls `test` with a URL over TLS, and one in cleartext.
fn for_each_listener(test: impl Fn(&str)) {
    let (upstream, gateway) = gateway();
    test(&format!("https://{}/private", gateway.tls_address()));
    test(&format!("http://{}/private", gateway.address()));
    assert!(upstream.seen().is_empty());
}

fn body() -> (TempDir, String) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("body");
    std::fs::File::create(&path).and_then(|file| file.set_len(BODY)).expect("written");
    let path = path.to_str().expect("text").to_owned();
    (folder, path)
}

fn assert_python_gets_401(client: &str) {
    for_each_listener(|url| assert_401(client, url, &run("/usr/bin/python3", &[PEER, client, url])));
}

#[test]
fn requests_gets_the_response_to_a_rejected_upload() {
    assert_python_gets_401("requests");
}

#[test]
fn httpx_gets_the_response_to_a_rejected_upload() {
    assert_python_gets_401("httpx");
}

#[test]
fn a_blocking_client_gets_the_response_to_a_rejected_upload() {
    assert_python_gets_401("blocking");
}

/// As long as nginx waits by default.
#[test]
fn a_client_that_pauses_gets_the_response() {
    let (upstream, gateway) = gateway();
    let urls = [("https", gateway.tls_address()), ("http", gateway.address())];
    // All at once, because they spend their time in pauses.
    std::thread::scope(|scope| {
        for client in ["requests-pausing", "httpx-pausing", "head-first"] {
            for (scheme, address) in urls {
                let url = format!("{scheme}://{address}/private");
                scope.spawn(move || assert_401(client, &url, &run("/usr/bin/python3", &[PEER, client, &url])));
            }
        }
    });
    assert!(upstream.seen().is_empty());
}

#[test]
fn node_gets_the_response_to_a_rejected_upload() {
    for_each_listener(|url| assert_401("node", url, &run("node", &["-e", NODE, url])));
}

#[test]
fn wget_gets_the_response_to_a_rejected_upload() {
    let (_folder, body) = body();
    for_each_listener(|url| {
        let file = format!("--post-file={body}");
        let output = run("wget", &["-S", "--tries=1", "--no-check-certificate", "-O", "/dev/null", &file, url]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("HTTP/1.1 401"), "wget to {url}: {errors}");
    });
}

#[test]
fn curl_gets_the_response_to_a_rejected_upload() {
    let (_folder, body) = body();
    let file = format!("@{body}");
    for version in ["--http1.1", "--http2"] {
        for_each_listener(|url| {
            let version =
                if version == "--http2" && url.starts_with("http:") { "--http2-prior-knowledge" } else { version };
            let more = ["-sS", "-k", version, "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", &file, url];
            assert_401(version, url, &run("curl", &more));
        });
    }
}

/// The length of the upload is unknown, so the gateway has begun to forward it when it rejects it, or the backend has.
#[tokio::test]
async fn curl_gets_the_response_to_a_forwarded_upload() {
    let early = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").await;
    });
    let upstream = Upstream::start();
    let (_folder, body) = body();
    for (backend, more) in [(upstream.address, "[limits]\nbody_size = \"1MiB\""), (early.address, "")] {
        let gateway = Gateway::public(backend, more);
        for (version, url) in [
            ("--http1.1", format!("https://{}/", gateway.tls_address())),
            ("--http1.1", format!("http://{}/", gateway.address())),
            ("--http2", format!("https://{}/", gateway.tls_address())),
            ("--http2-prior-knowledge", format!("http://{}/", gateway.address())),
        ] {
            let body = body.clone();
            let chunked = move || {
                let upload = ["-H", "Transfer-Encoding: chunked", "-H", "Expect:", "-X", "POST", "-T", &body];
                let output = ["-sS", "-k", version, "-o", "/dev/null", "-w", "%{http_code}", &url];
                (run("curl", &[&upload[..], &output].concat()), url)
            };
            let (output, url) = tokio::task::spawn_blocking(chunked).await.expect("no panic");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "413", "{version} to {url} {more}: {output:?}");
        }
    }
}

/// Over HTTP/2 the stream stays open behind the response, and its window too, until the client has sent everything.
#[tokio::test]
async fn a_rejected_http2_upload_may_be_completed() {
    const PIECE: i64 = 16_000;
    const PIECES: usize = 200;
    let (_upstream, gateway) = gateway();
    let head = frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/private"));
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), head]).await;
    // The windows of the connection and of the stream (RFC 9113 section 6.9.2).
    let (mut windows, mut was_rejected) = ([65_535; 2], false);
    for piece in 1..=PIECES {
        while windows.iter().any(|window| *window < PIECE) {
            let frame = frames::next(&mut client, &[HEADERS, WINDOW_UPDATE, RST_STREAM, GOAWAY]).await;
            was_rejected |= frame.kind == HEADERS;
            if frame.kind != HEADERS {
                assert_eq!(frame.kind, WINDOW_UPDATE, "{frame:?}");
                let increment: [u8; 4] = frame.payload[..].try_into().expect("four bytes");
                windows[frame.stream as usize] += i64::from(u32::from_be_bytes(increment));
            }
        }
        client.send(frames::frame(DATA, u8::from(piece == PIECES), 1, &[0; PIECE as usize])).await;
        windows = windows.map(|window| window - PIECE);
    }
    assert!(was_rejected, "long before the end of the upload");
    client.send(frames::get(3, "/private")).await;
    let next = frames::next(&mut client, &[HEADERS, RST_STREAM, GOAWAY]).await;
    assert_eq!((next.kind, next.stream), (HEADERS, 3), "the connection goes on, and stream 1 was not reset");
}
