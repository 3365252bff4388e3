//! Requests with an ambiguous end: the gateway rejects them and closes the connection.

use bearward::types::reject::Reason::{self, *};

use crate::hostile::{Attack, assert_all_rejected};
use crate::support::{Gateway, Upstream};

/// Follows each attack. It would reach the backend as a separate request if the attack were framed in another way.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Values of `Content-Length` for a body of five bytes that RFC 9112 section 6.3 does not allow (HAProxy
/// CVE-2023-40225, hyper CVE-2021-32715).
const LENGTHS: &[&str] = &[
    "5\r\nContent-Length: 5",
    "5\r\ncontent-length: 5",
    "5\r\nContent-Length: 6",
    "6\r\nContent-Length: 5",
    "5\r\nContent-Length: 0",
    "0\r\ncontent-length: 5",
    "5\r\nContent-Length:",
    "5, 5",
    "5,5",
    "5, 6",
    "5,",
    ",5",
    "+5",
    "-5",
    "-0",
    "--5",
    "0x5",
    "5h",
    "5.0",
    "5e0",
    "5;5",
    "5 5",
    "5\t5",
    "\"5\"",
    "'5'",
    "(5)",
    "five",
    "",
    "\x0b5",
    "5\x0c",
    "5\0",
    "\u{665}",
    "\u{ff15}",
    "18446744073709551616",
    "18446744073709551621",
    "99999999999999999999999999999999999999999",
    "NaN",
    "null",
];

/// Values of `Transfer-Encoding` other than `chunked` alone.
const CODINGS: &[&str] = &[
    "",
    ",",
    "chunked,",
    ",chunked",
    "chunked;",
    "chunked;q=1",
    "chunked chunked",
    "chunked, chunked",
    "chunked,chunked",
    "chunked, identity",
    "identity, chunked",
    "identity",
    "gzip",
    "gzip, chunked",
    "chunked, gzip",
    "deflate, chunked",
    "compress",
    "x-gzip, chunked",
    "trailers",
    "xchunked",
    "chunkedx",
    "x chunked",
    "chunked\x0b",
    "\x0bchunked",
    "\x0cchunked",
    "chunked\0",
    "\0chunked",
    "c\u{ff48}unked",
    "chun\u{212a}ed",
    "\"chunked\"",
    "'chunked'",
    "(chunked)",
    "chunked()",
    "chunked=1",
    "chunk",
    "cow",
    "chunked\r\nTransfer-Encoding: chunked",
    "chunked\r\nTransfer-Encoding: identity",
    "chunked\r\nTransfer-Encoding: x",
    "identity\r\nTransfer-Encoding: chunked",
    "x\r\nTransfer-Encoding: chunked",
    "chunked\r\nTransfer-Encoding:",
    "\r\n chunked",
    "\r\n\tchunked",
    "chunked\r\n , identity",
    "chunked\r\nContent-Length: 5",
    "chunked\r\nContent-Length: 0",
    "chunked\r\nX: 1\r\nContent-Length: 15",
    "\rchunked",
    "chunked\nX: 1",
];

/// Malformed fields after a valid `Host` (HAProxy CVE-2023-25725).
const FIELDS: &[&str] = &[
    ": 1",
    ":",
    ":a: 1",
    " : 1",
    "X",
    "X 1",
    " X: 1",
    "\tX: 1",
    "X : 1",
    "X\t: 1",
    "X\x0b: 1",
    "X\0: 1",
    "X\x01: 1",
    "X\x7f: 1",
    "X\u{e9}: 1",
    "X(1): 1",
    "X[1]: 1",
    "X{1}: 1",
    "X@1: 1",
    "X,Y: 1",
    "X;Y: 1",
    "X/Y: 1",
    "X=Y: 1",
    "X?Y: 1",
    "X\\Y: 1",
    "\"X\": 1",
    "<X>: 1",
    "X Y: 1",
    "X: 1\r\n folded",
    "X: 1\r\n\tfolded",
    "X: 1\r\n\r Y: 1",
    "X: \0",
    "X: a\0b",
    "X: a\x01b",
    "X: a\x08b",
    "X: a\x1b[2J",
    "X: a\x7fb",
    "X: a\rb",
    "X: a\r\rb",
    "X: 1\rTransfer-Encoding: chunked",
    "X: 1\r\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    " Transfer-Encoding: chunked",
    "Transfer-Encoding",
    "Transfer-Encoding\0: chunked",
    "Content-Length : 5",
    "Content-Length\x0b: 5",
    " Content-Length: 5",
    "Content-Length",
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Content-Length: 5\nX: 1",
    "X: 1\nTransfer-Encoding: chunked",
    "X: 1\n",
    "X: 1\n\nGET /x HTTP/1.1",
    "X: 1\n\r",
    "X: 1\r\n\n",
    "\n",
];

/// Malformed request lines. Most have a valid path, which a lenient server would forward.
const LINES: &[&str] = &[
    "GET / HTTP/1.1\nX: 1",
    "\nGET / HTTP/1.1",
    "\r\n\nGET / HTTP/1.1",
    "\r\n\r\nGET / HTTP/1.1",
    "GET /#a HTTP/1.1",
    "GET http://a/#a HTTP/1.1",
    "GET /\x0b HTTP/1.1",
    "GET /\x7f HTTP/1.1",
    "=GET / HTTP/1.1",
    "G@T / HTTP/1.1",
    "GET / HTTP/1.1 ",
    "GET / HTTP/1.1\t",
    "GET  / HTTP/1.1",
    "GET /  HTTP/1.1",
    "GET\t/ HTTP/1.1",
    "GET /\tHTTP/1.1",
    "GET / / HTTP/1.1",
    "GET / HTTP/1.1 HTTP/1.1",
    " GET / HTTP/1.1",
    "\tGET / HTTP/1.1",
    "\0GET / HTTP/1.1",
    "\rGET / HTTP/1.1",
    "GET / HTTP/1.1\r",
    "GET /",
    "GET / ",
    "GET",
    "GET / HTTP",
    "GET / HTTP/",
    "GET / HTTP/1",
    "GET / HTTP/1.",
    "GET / HTTP/.1",
    "GET / HTTP/0.9",
    "GET / HTTP/1.2",
    "GET / HTTP/1.10",
    "GET / HTTP/01.1",
    "GET / HTTP/1.01",
    "GET / HTTP/+1.1",
    "GET / HTTP/1,1",
    "GET / HTTP/2.0",
    "GET / HTTP/2",
    "GET / HTTP/3",
    "GET / HTTP/9.9",
    "GET / http/1.1",
    "GET / Http/1.1",
    "GET / HTTPS/1.1",
    "GET / HTP/1.1",
    "GET / ICY/1.1",
    "GET / RTSP/1.0",
    "GET / H\u{165}TP/1.1",
    "G\u{e9}T / HTTP/1.1",
    "G(T / HTTP/1.1",
    "G\0T / HTTP/1.1",
    "G\x1bT / HTTP/1.1",
    "G:T / HTTP/1.1",
    "G,T / HTTP/1.1",
    "G{T} / HTTP/1.1",
    "\"GET\" / HTTP/1.1",
    "HTTP/1.1 200 OK",
    "* LOGIN alice secret",
    "EHLO evil.example",
    "SSH-2.0-x",
    "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03",
    "PROXY TCP4 127.0.0.1 127.0.0.1 1 2",
];

/// Malformed chunks after a valid head (hyper CVE-2021-32714, and an empty chunk size, which hyper read as 0 until
/// 2023).
const CHUNKS: &[&str] = &[
    "\r\nabc\r\n0\r\n\r\n",
    " \r\nabc\r\n0\r\n\r\n",
    " 3\r\nabc\r\n0\r\n\r\n",
    "\t3\r\nabc\r\n0\r\n\r\n",
    "-3\r\nabc\r\n0\r\n\r\n",
    "+3\r\nabc\r\n0\r\n\r\n",
    "0x3\r\nabc\r\n0\r\n\r\n",
    "3h\r\nabc\r\n0\r\n\r\n",
    "3.0\r\nabc\r\n0\r\n\r\n",
    "3,3\r\nabc\r\n0\r\n\r\n",
    "3_\r\nabc\r\n0\r\n\r\n",
    "\"3\"\r\nabc\r\n0\r\n\r\n",
    "g\r\nabc\r\n0\r\n\r\n",
    "\u{ff13}\r\nabc\r\n0\r\n\r\n",
    "\0\r\nabc\r\n0\r\n\r\n",
    "3\0\r\nabc\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
    "10000000000000000\r\nabc\r\n0\r\n\r\n",
    "10000000000000003\r\nabc\r\n0\r\n\r\n",
    "100000000000000000000000000000003\r\nabc\r\n0\r\n\r\n",
    "3\nabc\r\n0\r\n\r\n",
    "3\rabc\r\n0\r\n\r\n",
    "3\r\rabc\r\n0\r\n\r\n",
    "3;a\nb\r\nabc\r\n0\r\n\r\n",
    "3;a\rb\r\nabc\r\n0\r\n\r\n",
    "3\r\nabcd\r\n0\r\n\r\n",
    "3\r\nab\r\n0\r\n\r\n",
    "3\r\nabc\n0\r\n\r\n",
    "3\r\nabc\r0\r\n\r\n",
    "3\r\nabc0\r\n\r\n",
    "3\r\nabc\r\nG\r\n\r\n",
    "3\r\nabc\r\n\r\n",
    "3\r\nabc\r\n-0\r\n\r\n",
    "0\r\nX : 1\r\n\r\n",
    "0\r\nX\r\n\r\n",
    "0\r\n X: 1\r\n\r\n",
    "0\r\n: 1\r\n\r\n",
    "0\r\nX: \0\r\n\r\n",
];

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

fn attack(what: &str, request: String, reason: Reason) -> Attack {
    let sent = format!("{request}{SMUGGLED}").into_bytes();
    Attack { name: format!("{what:.100?}"), sent, explained: None, reason }
}

fn attacks() -> Vec<Attack> {
    let length = |value: &&str| attack(value, post(&format!("Content-Length: {value}"), "hello"), MalformedFraming);
    let coding = |value: &&str| {
        attack(value, post(&format!("Transfer-Encoding: {value}"), "5\r\nhello\r\n0\r\n\r\n"), MalformedFraming)
    };
    let field = |field: &&str| attack(field, post(field, "5\r\nhello\r\n0\r\n\r\n"), MalformedFraming);
    let line = |line: &&str| attack(line, format!("{line}\r\nHost: a\r\n\r\n"), MalformedFraming);
    let mut all: Vec<Attack> = LENGTHS.iter().map(length).collect();
    all.extend(CODINGS.iter().map(coding));
    all.extend(FIELDS.iter().map(field));
    all.extend(LINES.iter().map(line));
    let old = "POST / HTTP/1.0\r\nHost: a\r\n";
    all.push(attack(
        "chunks in HTTP/1.0",
        format!("{old}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        MalformedFraming,
    ));
    all.push(attack("a coding in HTTP/1.0", format!("{old}Transfer-Encoding: gzip\r\n\r\n"), MalformedFraming));
    all.push(attack("HTTP/1.0 without a host", "GET / HTTP/1.0\r\n\r\n".into(), BadHost));
    all
}

#[tokio::test]
async fn hostile_framing_is_rejected_and_closes_the_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let attacks = attacks();
    eprintln!("{} hostile framings", attacks.len());
    assert!(attacks.len() >= 100, "too few attacks: {}", attacks.len());
    assert_all_rejected(&gateway, &upstream, &attacks).await;
    assert_eq!(upstream.connections(), 0, "a rejected request opens no connection to the backend");
}

/// The head is valid, so the gateway has begun to forward the request. The backend must not get a malformed body as a
/// complete one.
#[tokio::test]
async fn a_body_with_malformed_chunks_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let broken = |chunks: &&str| attack(chunks, post("Transfer-Encoding: chunked", chunks), MalformedFraming);
    let attacks: Vec<Attack> = CHUNKS.iter().map(broken).collect();
    eprintln!("{} hostile bodies", attacks.len());
    assert_all_rejected(&gateway, &upstream, &attacks).await;
}
