//! `dialect = "ext_authz_grpc"`: calls of the standard client of gRPC, and damaged ones. `proxies::ext_authz` has Envoy.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::check::{Check, PATH, Reply};
use super::{NAMES, ROUTES, with_config};
use crate::support::clock::ManualClock;
use crate::support::prover::Prover;
use crate::support::{Client, Gateway, TokenPair, Upstream};

const SECRET: &str = "a-secret-of-thirty-two-characters";
const FORWARD_AUTH: &str = "[forward_auth]\ndialect = \"ext_authz_grpc\"\nfrom = [\"127.0.0.1\"]\n";
const COOKIE: &str = "[[route]]\npath = \"/cookie\"\ntoken_from = [\"cookie:session\"]\ntoken = \"drop\"\n";

fn gateway() -> (Gateway, Upstream) {
    with_config(&format!("{ROUTES}{COOKIE}{FORWARD_AUTH}"))
}

fn line(message: &[u8], metadata: &Value, gzip: bool) -> String {
    let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}\n", json!({"message": hex, "metadata": metadata, "gzip": gzip}))
}

/// Makes these calls with `check_peer.py`, and returns their outcomes.
async fn outcomes(gateway: &Gateway, lines: String) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/gateway/forward_auth/check_peer.py");
    let mut command = Command::new("/usr/bin/python3");
    command.args([script, &gateway.address().port().to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let calling = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("python3 is there");
        child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("written");
        child.wait_with_output().expect("it ends")
    });
    let output = calling.await.expect("it ends");
    assert!(output.status.success(), "is python3-grpcio installed?");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn reply(outcome: &Value) -> Reply {
    assert_eq!(outcome["code"], "OK", "{outcome}");
    let hex = outcome["message"].as_str().expect("a message");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    Reply::of(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>())
}

async fn ask(gateway: &Gateway, check: &Check) -> Reply {
    reply(&outcomes(gateway, line(&check.message(), &json!({}), false)).await[0])
}

/// As a client of HTTP/2 without gRPC would see it.
async fn send(gateway: &Gateway, message: &[u8]) -> (u16, Bytes) {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    let body = [&[0], &length[..], message].concat();
    let client = Client::http2(gateway.address()).proxy().header("content-type", "application/grpc");
    let response = client.send(Method::POST, PATH, body.into()).await;
    (response.status.as_u16(), response.body)
}

#[tokio::test]
async fn a_permit_sets_or_removes_every_identity_header() {
    let (gateway, upstream) = gateway();
    let pair = gateway.issue("alice", "orders").await;
    for is_raw in [true, false] {
        let check = Check { is_raw, ..Check::get("/orders/7?a=b").bearer(&pair.access) };
        let reply = ask(&gateway, &check.header("x_auth.scope", "all").header("x-auth-subject", "root")).await;
        let expected = ["alice", "orders", &pair.token_id, crate::support::gateway::ISSUER];
        for (name, value) in NAMES.iter().zip(expected) {
            assert_eq!((reply.header(name), reply.removes(name)), (Some(value), false), "{name}: {reply:?}");
        }
        for name in NAMES {
            assert!(reply.header(name).is_some() != reply.removes(name), "{name}: {reply:?}");
            assert!(reply.removes(&name.replace('-', "_")), "{name}: {reply:?}");
        }
        assert!(reply.removes("x_auth.scope") && !reply.removes("authorization"), "{reply:?}");
        assert_eq!(reply.header("authorization"), None, "it stays as it is");
        assert!(reply.header("x-request-id").is_some_and(|id| id.len() == 32));
    }
    let line = gateway.log_line(|line| line["path"] == "/orders/7").await;
    for (member, value) in [("method", "GET"), ("host", "api.example"), ("client", "198.51.100.7")] {
        assert_eq!(line[member], value, "{line}");
    }
    assert_eq!((&line["status"], &line["subject"]), (&json!(200), &json!("alice")), "{line}");
    let public = ask(&gateway, &Check::get("/public/a").header("x-auth-subject", "root")).await;
    assert!(NAMES.iter().all(|name| public.removes(name)), "{public:?}");
    let observed = ask(&gateway, &Check::get("/observed")).await;
    assert_eq!(observed.header("x-auth-observed"), Some("no_token"), "{observed:?}");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_rejection_is_a_denial_with_the_response_of_the_gateway() {
    let (gateway, upstream) = gateway();
    let pair = gateway.issue("bob", "").await;
    let get = |target: &str| Check::get(target).bearer(&pair.access);
    let preflight = Check { method: "OPTIONS", ..Check::get("/pages") };
    let preflight = preflight.header("origin", "https://app.example").header("access-control-request-method", "GET");
    let cases = [
        (Check::get("/orders"), 401, 16, "no_token"),
        (Check::get("/orders").bearer("x.y.z"), 401, 16, "malformed_token"),
        (Check::get("/orders").bearer("x.y.z").bearer("x.y.z"), 400, 13, "several_tokens"),
        (get("/orders"), 403, 7, "insufficient_scope"),
        (Check { method: "DELETE", ..get("/orders") }, 405, 12, "method_not_allowed"),
        (get("/public/..%2forders"), 400, 13, "bad_path"),
        (get("//orders"), 400, 13, "bad_path"),
        (get("/public#/orders"), 400, 13, "bad_auth_call"),
        (Check { method: "CONNECT", ..get("/orders") }, 400, 13, "bad_auth_call"),
        (Check { method: "POST", ..get("/user/refresh") }, 501, 2, "through_gateway_only"),
        (get("/fixed"), 501, 2, "through_gateway_only"),
        (preflight, 501, 2, "through_gateway_only"),
        (Check { source: "/run/socket", ..get("/orders") }, 400, 13, "bad_auth_call"),
        (get("/orders").header("x-forwarded-proto", "ftp"), 400, 13, "bad_auth_call"),
        (get("/").header("x", &"a".repeat(17_000)), 431, 2, "head_too_large"),
        (get("/").header("x", &"a".repeat(40_000)), 431, 2, "head_too_large"),
    ];
    let lines: String = cases.iter().map(|(check, ..)| line(&check.message(), &json!({}), false)).collect();
    let outcomes = outcomes(&gateway, lines).await;
    assert_eq!(outcomes.len(), cases.len());
    for ((check, expected, expected_code, reason), outcome) in cases.iter().zip(&outcomes) {
        let reply = reply(outcome);
        let Reply::Denied { code, status, headers: _, body } = &reply else { panic!("{}: {reply:?}", check.target) };
        assert_eq!((*status, *code), (*expected, *expected_code), "{} {reason}", check.target);
        let body: Value = serde_json::from_str(body).expect("JSON");
        let line = gateway.log_line(|line| line["request_id"] == body["requestId"]).await;
        assert_eq!((&line["reason"], &line["status"]), (&json!(reason), &json!(expected)), "{line}");
        let has_challenge = reply.header("www-authenticate").is_some();
        assert_eq!(has_challenge, matches!(reason, &"no_token" | &"malformed_token" | &"insufficient_scope"));
        assert_eq!(reply.header("content-length"), None, "{reply:?}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn the_backend_gets_no_token_that_the_gateway_removes() {
    let (gateway, _upstream) = gateway();
    let pair = gateway.issue("alice", "").await;
    let dropped = ask(&gateway, &Check::get("/dropped").bearer(&pair.access)).await;
    assert!(dropped.removes("authorization"), "{dropped:?}");
    let replaced = ask(&gateway, &Check::get("/replaced").bearer(&pair.access)).await;
    let token = replaced.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    assert_eq!(crate::support::tokens::claims_of(token)["aud"], "https://orders.internal");
    let session = format!("session={}", pair.access);
    let cookie = ask(&gateway, &Check::get("/cookie").header("cookie", &format!("a=1; {session}; b=2"))).await;
    assert_eq!(cookie.header("cookie"), Some("a=1; b=2"), "{cookie:?}");
    let alone = ask(&gateway, &Check::get("/cookie").header("cookie", &session)).await;
    assert!(alone.removes("cookie") && alone.header("cookie").is_none(), "{alone:?}");
    let untouched = ask(&gateway, &Check::get("/public").header("cookie", &session)).await;
    assert!(!untouched.removes("cookie") && untouched.header("cookie").is_none(), "{untouched:?}");
}

/// Over HTTP, the proxy would have to remove them.
#[tokio::test]
async fn the_backend_gets_neither_api_keys_nor_cookies_of_the_gateway() {
    let routes = "[[route]]\npath = \"/keys\"\napi_keys = true\n[[route]]\npath = \"/session\"\n\
        token_from = [\"login_cookie\"]\n[[route]]\npath = \"/login\"\nlogin = \"cookie\"\npublic = true\n";
    let (gateway, _upstream) = with_config(&format!("{routes}[[route]]\npath = \"/\"\npublic = true\n{FORWARD_AUTH}"));
    let (key, _) = gateway.issue_key(&json!({ "sub": "ci" })).await;
    let shown =
        Check::get("/keys").header("x-api-key", &key).header("x_api.key", &key).header("x-auth-subject", "root");
    let reply = ask(&gateway, &shown).await;
    assert_eq!(reply.header("x-auth-subject"), Some("ci"), "{reply:?}");
    assert!(reply.removes("x-api-key") && reply.removes("x_api.key"), "{reply:?}");
    let reply = ask(&gateway, &Check::get("/keys").bearer(&key)).await;
    assert_eq!((reply.header("x-auth-subject"), reply.removes("authorization")), (Some("ci"), true), "{reply:?}");
    let pair = gateway.issue("alice", "").await;
    let own = format!("__Host-bearward-access={}; __Host-bearward-refresh={}", pair.access, pair.refresh);
    for (path, subject) in [("/session", Some("alice")), ("/other", None)] {
        let reply = ask(&gateway, &Check::get(path).header("cookie", &format!("a=1; {own}; b=2"))).await;
        let found = (reply.header("x-auth-subject"), reply.header("cookie"));
        assert_eq!(found, (subject, Some("a=1; b=2")), "{path}: {reply:?}");
        let alone = ask(&gateway, &Check::get(path).header("cookie", &own)).await;
        assert!(alone.removes("cookie"), "{path}: {alone:?}");
    }
}

/// The gateway removes them from its own requests as well: a proof, and the certificate of a client.
#[tokio::test]
async fn the_backend_gets_no_evidence_of_a_client() {
    let names = ["dpop", "client-cert", "client-cert-chain", "client_cert", "client_cert-chain", "client.cert"];
    for (keep, kept) in [("", ""), ("[forwarding]\nkeep = [\"DPoP\"]\n", "dpop")] {
        let (gateway, _upstream) = with_config(&format!("{keep}{ROUTES}{FORWARD_AUTH}"));
        let pair = gateway.issue("alice", "").await;
        for is_raw in [true, false] {
            let checks = [
                Check::get("/public/a"),
                Check::get("/observed").header("authorization", "DPoP x.y.z"),
                Check::get("/other").bearer(&pair.access),
            ];
            for check in checks {
                let check = names.iter().fold(check, |check, name| check.header(name, ":AQID:"));
                let reply = ask(&gateway, &Check { is_raw, ..check }).await;
                for name in names.iter().filter(|name| **name != kept) {
                    assert!(reply.removes(name), "{name}: {reply:?}");
                }
                assert!(kept.is_empty() || !reply.removes(kept), "{reply:?}");
            }
        }
    }
    // Envoy may hide them from the gateway.
    let (gateway, _upstream) = gateway();
    let reply = ask(&gateway, &Check::get("/public/a")).await;
    for name in ["dpop", "client-cert", "client_cert", "client-cert-chain", "client_cert_chain"] {
        assert!(reply.removes(name), "{name}: {reply:?}");
    }
}

/// Envoy could act on the value that the gateway does not compare.
#[tokio::test]
async fn a_header_with_two_values_denies() {
    let (gateway, _upstream) = gateway();
    for (name, value) in [
        (":path", "/orders"),
        (":path", "/public/a"),
        (":method", "DELETE"),
        (":authority", "b.example"),
        ("x", "2"),
        ("x-forwarded-proto", "http"),
    ] {
        for is_raw in [true, false] {
            let check = Check { is_raw, ..Check::get("/public/a").header("x", "1") };
            assert_eq!(ask(&gateway, &check).await.status(), 200);
            let doubled = Check { doubled: Some((name, value)), ..check };
            assert_eq!(ask(&gateway, &doubled).await.status(), 400, "{name} {is_raw}");
        }
    }
}

#[tokio::test]
async fn a_proof_is_for_a_host_of_the_gateway() {
    for (hosts, expected) in [("[\"gateway.test\"]", 401), ("[\"api.example\"]", 200)] {
        let upstream = Upstream::start();
        let text = Gateway::config_text(&upstream.address.to_string(), &format!("{ROUTES}{FORWARD_AUTH}"));
        let gateway = Gateway::from_text(text.replace("[\"gateway.test\"]", hosts));
        let prover = Prover::new();
        let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
        let access = TokenPair::from_json(&issued.json()).access;
        // The scheme of a WebSocket is that of its page.
        for proto in ["https", "wss"] {
            let proof = prover.proof("GET", "https://api.example/other", &access, gateway.now_secs());
            let mut check = Check::get("/other").header("authorization", &format!("DPoP {access}"));
            check.headers[0].1 = proto.to_owned();
            let reply = ask(&gateway, &check.header("dpop", &proof)).await;
            assert_eq!(reply.status(), expected, "{hosts} {proto}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn only_the_proxy_may_ask_over_grpc() {
    let upstream = Upstream::start();
    let folder = Arc::new(tempfile::TempDir::new().expect("a folder"));
    bearward::types::secret::write_private(&folder.path().join("proxy.secret"), SECRET.as_bytes()).expect("written");
    let more = format!("{ROUTES}[forward_auth]\ndialect = \"ext_authz_grpc\"\nsecret_file = \"proxy.secret\"\n");
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let message = Check::get("/public").header("x-forward-auth-secret", SECRET).message();
    let metadata = [json!({"x-forward-auth-secret": SECRET}), json!({"x-forward-auth-secret": "guessed"}), json!({})];
    let lines = metadata.iter().map(|metadata| line(&message, metadata, false)).collect();
    let replies: Vec<Reply> = outcomes(&gateway, lines).await.iter().map(reply).collect();
    assert_eq!(replies.iter().map(Reply::status).collect::<Vec<_>>(), [200, 403, 403], "{replies:?}");
    assert!(replies[0].removes("x-forward-auth-secret"), "no backend gets it: {replies:?}");
    let line = gateway.log_line(|line| line["reason"] == "auth_caller").await;
    assert_eq!((&line["client"], &line["path"]), (&json!("127.0.0.1"), &json!(PATH)), "{line}");

    // Nothing else is a call, and nothing of it reaches a backend.
    let (gateway, upstream) = with_config(&format!("{ROUTES}{FORWARD_AUTH}"));
    let body = || Bytes::from([&[0, 0, 0, 0, 0], &message[..]].concat());
    for client in [Client::http1(gateway.address()), Client::http2(gateway.address())] {
        for (method, kind) in [
            (Method::GET, "application/grpc"),
            (Method::POST, "application/json"),
            (Method::POST, "application/grpc-web"),
        ] {
            let response = client.clone().proxy().header("content-type", kind).send(method, PATH, body()).await;
            response.assert_rejected(400, "invalid_request");
        }
    }
    let over_http1 = Client::http1(gateway.address()).proxy().header("content-type", "application/grpc");
    over_http1.send(Method::POST, PATH, body()).await.assert_rejected(400, "invalid_request");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_message_that_is_not_understood_denies() {
    let (gateway, _upstream) = gateway();
    let whole = Check::get("/public").message();
    let compressible = Check::get("/public").header("x", &"a".repeat(4000)).message();
    let lines = [
        line(&whole, &json!({}), false),
        line(&compressible, &json!({}), true),
        line(b"", &json!({}), false),
        line(&whole[..whole.len() - 1], &json!({}), false),
        line(&[&whole[..], &whole].concat(), &json!({}), false),
        line(b"{}", &json!({}), false),
    ];
    let outcomes = outcomes(&gateway, lines.concat()).await;
    assert_eq!(reply(&outcomes[0]).status(), 200);
    assert_eq!((&outcomes[1]["code"], &outcomes[1]["message"]), (&json!("UNIMPLEMENTED"), &Value::Null));
    for outcome in &outcomes[2..] {
        assert_eq!(reply(outcome).status(), 400, "{outcome}");
    }
    let client = Client::http2(gateway.address()).proxy().header("content-type", "application/grpc");
    for body in [&b""[..], b"\0\0\0", b"\0\0\0\0\x09ab", &[&[0, 0, 0, 0, 0], &whole[..]].concat(), &[2, 0, 0, 0, 0]] {
        let response = client.send(Method::POST, PATH, Bytes::copy_from_slice(body)).await;
        assert_eq!(Reply::of(&response.body[5..]).status(), 400, "{body:?}");
    }
}

/// No token is in any of them, and every route but the public ones needs one.
#[tokio::test]
async fn damaged_messages_never_allow() {
    let (gateway, _upstream) = with_config(&format!("[[route]]\npath = \"/\"\n{FORWARD_AUTH}"));
    let forged = Check::get("/orders").bearer("x.y.z").header("x-auth-subject", "root").message();
    let mut random = crate::support::random::Random(18);
    for _ in 0..1500 {
        let mut message = forged.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(message.len());
            match random.below(4) {
                0 => message[at] ^= 1 << random.below(8),
                1 => message[at] = u8::try_from(random.below(256)).expect("a byte"),
                2 => message.truncate(at + 1),
                _ => message.insert(at, u8::try_from(random.below(256)).expect("a byte")),
            }
        }
        let (status, body) = send(&gateway, &message).await;
        assert_eq!(status, 200, "gRPC: {message:?}");
        assert!(matches!(Reply::of(&body[5..]), Reply::Denied { .. }), "{message:?}");
    }
}

#[tokio::test]
async fn rates_count_the_peer_of_envoy() {
    let rate = "[[route.rate]]\nper = \"address\"\nrequests = 1\nwindow = \"1h\"\n";
    let (gateway, _upstream) = with_config(&format!(
        "[[route]]\npath = \"/\"\npublic = true\n{rate}[forwarding]\ntrusted = [\"203.0.113.9\"]\n{FORWARD_AUTH}"
    ));
    let from = |source, forwarded_for: &str| {
        let check = Check { source, ..Check::get("/") };
        line(&check.header("x-forwarded-for", forwarded_for).message(), &json!({}), false)
    };
    let lines = [
        from("198.51.100.7", "192.0.2.1"),
        from("198.51.100.7", "192.0.2.2"),
        from("203.0.113.9", "192.0.2.1, 203.0.113.9"),
        from("203.0.113.9", "192.0.2.1"),
        from("203.0.113.9", "192.0.2.1, 198.51.100.7"),
    ];
    let replies: Vec<Reply> = outcomes(&gateway, lines.concat()).await.iter().map(reply).collect();
    assert_eq!(replies.iter().map(Reply::status).collect::<Vec<_>>(), [200, 429, 200, 429, 429], "{replies:?}");
    assert!(replies[1].header("retry-after").is_some() && replies[1].header("ratelimit").is_some(), "{replies:?}");
}
