//! Login capture: an existing backend's login becomes a token pair by one header of its answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::tokens::claims_of;
use crate::support::{Answer, Gateway, Pair, Scripted, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/login"
public = true
login = true
[[route]]
path = "/public/"
public = true
[[route]]
path = "/"
"#;

fn gateway(backend: SocketAddr, more: &str) -> Gateway {
    Gateway::from_text(Gateway::text(&backend.to_string(), &format!("{ROUTES}\n{more}")))
}

/// Answers every request with the same bytes, and remembers the heads of the requests.
fn backend(answer: impl Into<Vec<u8>>) -> (Scripted, Arc<Mutex<Vec<String>>>) {
    let (answer, heads): (Arc<[u8]>, Arc<Mutex<Vec<String>>>) = (answer.into().into(), Arc::default());
    let remembered = heads.clone();
    let scripted = Scripted::start(move |mut wire, _| {
        let (answer, remembered) = (answer.clone(), remembered.clone());
        async move {
            while let Some(head) = wire.try_hear_until("\r\n\r\n").await {
                remembered.lock().expect("unpoisoned").push(head.to_lowercase());
                wire.say(&answer).await;
            }
        }
    });
    (scripted, heads)
}

/// An answer with these lines in its head and this body, of which it tells the length.
fn told(status: &str, head: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{head}content-length: {}\r\n\r\n{body}", body.len())
}

const JSON: &str = "content-type: application/json\r\n";
const ALICE: &str = "x-bearward-subject: alice\r\n";

async fn log_in(gateway: &Gateway) -> Answer {
    gateway.client().post("/login", &json!({ "password": "right" })).await
}

/// The families of a subject, as the admin API lists them.
async fn families(gateway: &Gateway, subject: &str) -> usize {
    let answer = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await;
    answer.json()["tokens"].as_array().expect("a list").len()
}

#[tokio::test]
async fn a_login_becomes_a_token_pair_and_its_own_fields_stay() {
    // A number that no double holds, a member twice at another level, escapes: all of it is the backend's.
    let own = r#" {"user": {"id": 12345678901234567890123, "name": "Al\u0069ce"}, "z":1.0, "a":[{}] } "#;
    let head = format!(
        "{JSON}X-Bearward-Subject: alice\r\nX-Bearward-Scope: orders:read b\r\nX-Bearward-Claims: {{\"tenant\":\"acme\",\"roles\":[\"x\"]}}\r\n\
         etag: \"1\"\r\nlast-modified: Sat, 01 Jan 2022 00:00:00 GMT\r\ncache-control: public, max-age=60\r\ncdn-cache-control: max-age=60\r\n\
         content-digest: sha-256=:AAAA:\r\ncontent-md5: AAAA\r\nexpires: Sat, 01 Jan 2033 00:00:00 GMT\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nx-own: 1\r\n"
    );
    let (upstream, _) = backend(told("201 Created", &head, own));
    let gateway = gateway(upstream.address, "");
    for client in gateway.clients() {
        let answer = client.post("/login", &json!({ "user": "alice", "password": "right" })).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let text = answer.text();
        assert!(
            text.starts_with(r#" {"user": {"id": 12345678901234567890123, "name": "Al\u0069ce"}, "z":1.0, "a":[{}] ,"#),
            "{text}"
        );
        let body = answer.json();
        assert_eq!(body["success"], Value::Bool(true));
        assert_eq!(body.as_object().expect("an object").len(), 3 + 4, "{text}");
        assert_eq!(answer.header("content-length"), Some(text.len().to_string().as_str()));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        for outdated in ["etag", "last-modified", "content-digest", "content-md5", "expires", "cdn-cache-control"] {
            assert_eq!(answer.header(outdated), None, "{outdated}");
        }
        let cookies: Vec<_> =
            answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text")).collect();
        assert_eq!(
            (cookies.as_slice(), answer.header("x-own")),
            (["a=1", "b=2"].as_slice(), Some("1")),
            "the rest of the head stays"
        );

        let pair = Pair::of(&body);
        let claims = claims_of(&pair.access);
        assert_eq!(claims["exp"], body["expiresAt"]);
        assert_eq!((&claims["sub"], &claims["scope"]), (&json!("alice"), &json!("orders:read b")));
        assert_eq!((&claims["tenant"], &claims["roles"]), (&json!("acme"), &json!(["x"])));
        assert_eq!(gateway.status_of(&pair.access).await, 201, "the token is good");
        let next = Pair::of(&gateway.refresh(&pair.access, &pair.refresh).await.json());
        assert_eq!(gateway.revoke(&next.access, &next.token_id).await.status, 200);
        assert_eq!(gateway.status_of(&next.access).await, 401, "and ends as any other");
    }
    let lines = gateway.log_lines(1).await;
    let line = lines.iter().find(|line| line["path"] == "/login").expect("the login is logged");
    assert!(line["token_id"].as_str().is_some_and(|id| id.len() == 22), "{line}");
    gateway.end_without_a_token_in_the_log();
}

/// A mass revocation finds no login that is on its way, and must not spare it. What a backend ended before it answers is past.
#[tokio::test]
async fn a_login_that_a_mass_revocation_overtakes_gets_no_tokens() {
    let (began, released) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (telling, waiting) = (began.clone(), released.clone());
    let upstream = Scripted::start(move |mut wire, _| {
        let (telling, waiting) = (telling.clone(), waiting.clone());
        async move {
            while let Some(head) = wire.try_hear_until("\r\n\r\n").await {
                // Behind the body of the one before.
                if !head.contains("POST /login ") {
                    wire.say(told("200 OK", "", "")).await;
                    continue;
                }
                wire.say(format!("HTTP/1.1 200 OK\r\n{JSON}{ALICE}content-length: 7\r\n\r\n{{\"a\"")).await;
                telling.add_permits(1);
                waiting.acquire().await.expect("open").forget();
                wire.say(":1}").await;
            }
        }
    });
    let gateway = gateway(upstream.address, "");
    let admin = gateway.admin_client();
    let revoke = async |what: Value| assert_eq!(admin.post("/admin/v1/revocations", &what).await.status, 200);
    for (what, overtaken) in [
        (json!({ "sub": "alice" }), true),
        (json!({ "all": true }), true),
        (json!({ "all": true, "issuer": "https://gateway.example" }), true),
        (json!({ "sub": "bob" }), false),
        (json!({ "sub": "alice", "before": "2020-01-01T00:00:00Z" }), false),
    ] {
        // Before it answers: it may end all old logins itself.
        revoke(json!({ "sub": "alice" })).await;
        let before = families(&gateway, "alice").await;
        let client = gateway.client();
        let login = tokio::spawn(async move { client.post("/login", &json!({})).await });
        began.acquire().await.expect("open").forget();
        // The head has left the backend; the gateway has it once it waits for the rest.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        revoke(what.clone()).await;
        released.add_permits(1);
        let answer = login.await.expect("no panic");
        let made = families(&gateway, "alice").await - before;
        if overtaken {
            answer.refused(503, "temporarily_unavailable");
            assert_eq!(made, 0, "{what}");
        } else {
            assert_eq!(answer.status, 200, "{what}: {answer:?}");
            gateway.advance(std::time::Duration::from_secs(2));
            assert_eq!(gateway.client().bearer(&Pair::of(&answer.json()).access).get("/public/").await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_json_object_of_any_kind_can_carry_tokens() {
    for (status, head, body) in [
        ("200 OK", JSON, "{}"),
        ("202 Accepted", JSON, "\n{\t} \r\n"),
        ("203 Fine", "content-type: Application/JSON; charset=utf-8\r\n", r#"{"success":true}"#),
        (
            "200 OK",
            "content-type: application/hal+json\r\ncontent-encoding: identity\r\n",
            r#"{"a":1,"success" : true }"#,
        ),
        ("200 OK", JSON, r#"{"Success":false,"access_token":"theirs","tokenId":"theirs","nested":{"accessToken":1}}"#),
    ] {
        let (upstream, _) = backend(told(status, &format!("{head}{ALICE}"), body));
        let gateway = gateway(upstream.address, "");
        let answer = log_in(&gateway).await;
        eprintln!("{body}: {answer:?}");
        assert_eq!(gateway.status_of(&Pair::of(&answer.json()).access).await, answer.status.as_u16());
        assert_eq!(answer.text().matches("\"success\"").count(), 1, "no member twice");
    }
    // Of a length that is not told: the client is told one.
    let chunked = format!(
        "HTTP/1.1 200 OK\r\n{JSON}{ALICE}transfer-encoding: chunked\r\n\r\n4\r\n{{\"a\"\r\n3\r\n:1}}\r\n0\r\n\r\n"
    );
    let (upstream, _) = backend(chunked);
    let gateway = gateway(upstream.address, "");
    let answer = log_in(&gateway).await;
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    assert_eq!((&answer.json()["a"], answer.header("transfer-encoding")), (&json!(1), None));
}

#[tokio::test]
async fn the_extra_fields_come_along_where_they_are_switched_on() {
    let start = |body: &str| {
        let (upstream, _) = backend(told("200 OK", &format!("{JSON}{ALICE}"), body));
        let text = Gateway::text(&upstream.address.to_string(), ROUTES);
        (Gateway::from_text(text.replace("[tokens]\n", "[tokens]\nextra_fields = true\n")), upstream)
    };
    let (gateway, _upstream) = start("{}");
    let body = log_in(&gateway).await.json();
    assert_eq!(body["tokenId"], Pair::of(&body).token_id.as_str());
    assert!(body["expiresIn"].as_u64().is_some_and(|seconds| seconds <= 900));
    let (gateway, _upstream) = start(r#"{"tokenId":"theirs"}"#);
    log_in(&gateway).await.refused(503, "temporarily_unavailable");
}

#[tokio::test]
async fn without_the_header_the_answer_goes_through_untouched() {
    for (status, head, body) in [
        (
            "401 Unauthorized",
            "content-type: application/json\r\netag: \"1\"\r\nwww-authenticate: Basic\r\n",
            r#"{"bare": 1}"#,
        ),
        ("200 OK", "content-type: application/json\r\ncontent-encoding: gzip\r\n", "bare, and not gzip at all"),
        ("302 Found", "location: /mfa\r\n", "bare"),
        ("500 Oh", "content-type: text/html\r\ncache-control: public\r\n", "bare"),
        ("200 OK", "content-type: text/plain\r\n", &"bare".repeat(100_000)),
    ] {
        let (upstream, _) = backend(told(status, head, body));
        let gateway = gateway(upstream.address, "");
        let answer = log_in(&gateway).await;
        assert!(status.starts_with(answer.status.as_str()), "{answer:?}");
        assert_eq!(answer.text(), body);
        for line in head.lines() {
            let (name, value) = line.split_once(": ").expect("a header");
            assert_eq!(answer.header(name), Some(value));
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_go_through_as_well() {
    for (status, method) in
        [("204 No Content", Method::POST), ("304 Not Modified", Method::GET), ("200 OK", Method::HEAD)]
    {
        let (upstream, _) = backend(format!("HTTP/1.1 {status}\r\n{JSON}etag: \"1\"\r\n\r\n"));
        let gateway = gateway(upstream.address, "");
        let answer = gateway.client().send(method, "/login", "".into()).await;
        assert!(status.starts_with(answer.status.as_str()), "{answer:?}");
        assert_eq!((answer.header("etag"), answer.body.len()), (Some("\"1\""), 0));
    }
}

/// What must not come through with the word `bare` in it: status line, head, body.
fn unfit() -> Vec<(&'static str, String)> {
    let told = |status, head: &str, body: &str| told(status, &format!("{head}{ALICE}"), body);
    let said = |head: &str| format!("HTTP/1.1 200 OK\r\n{JSON}{head}content-length: 10\r\n\r\n{{\"bare\":1}}");
    let bare = r#"{"bare":1}"#;
    let large = format!("{{\"bare\":\"{}\"}}", "x".repeat(64 << 10));
    vec![
        ("compressed", told("200 OK", &format!("{JSON}content-encoding: gzip\r\n"), bare)),
        (
            "compressed twice",
            told("200 OK", &format!("{JSON}content-encoding: identity\r\ncontent-encoding: br\r\n"), bare),
        ),
        ("too large by what it tells", told("200 OK", JSON, &large)),
        (
            "too large, and it does not tell",
            format!(
                "HTTP/1.1 200 OK\r\n{JSON}{ALICE}transfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
                large.len()
            ),
        ),
        ("not JSON by its type", told("200 OK", "content-type: text/html\r\n", bare)),
        ("of no type", told("200 OK", "", bare)),
        ("of two types", told("200 OK", &format!("{JSON}{JSON}"), bare)),
        ("not JSON", told("200 OK", JSON, "bare")),
        ("torn JSON", told("200 OK", JSON, r#"{"bare":1"#)),
        ("two objects", told("200 OK", JSON, r#"{"bare":1}{"bare":2}"#)),
        ("a list", told("200 OK", JSON, r#"["bare"]"#)),
        ("a string", told("200 OK", JSON, r#""bare}""#)),
        ("null", told("200 OK", JSON, "null")),
        ("empty", told("200 OK", JSON, "")),
        (
            "cut off",
            format!("HTTP/1.1 200 OK\r\n{JSON}{ALICE}transfer-encoding: chunked\r\n\r\na\r\n{{\"bare\":1}}\r\nzz"),
        ),
        ("204", format!("HTTP/1.1 204 No Content\r\n{ALICE}\r\n")),
        ("205", told("205 Reset", JSON, "")),
        ("206", told("206 Part", &format!("{JSON}content-range: bytes 0-9/10\r\n"), bare)),
        ("304", format!("HTTP/1.1 304 Not Modified\r\n{ALICE}\r\n")),
        ("303", told("303 See", &format!("{JSON}location: /bare\r\n"), bare)),
        ("401", told("401 No", JSON, bare)),
        ("500", told("500 No", JSON, bare)),
        ("accessToken", told("200 OK", JSON, r#"{"bare":1,"accessToken":"theirs"}"#)),
        ("refreshToken", told("200 OK", JSON, r#"{"refresh\u0054oken":null,"bare":1}"#)),
        ("expiresAt", told("200 OK", JSON, r#"{"bare":1,"expiresAt":0}"#)),
        ("success that is none", told("200 OK", JSON, r#"{"bare":1,"success":false}"#)),
        ("success twice", told("200 OK", JSON, r#"{"bare":1,"success":true,"success":true}"#)),
        ("an empty subject", said("x-bearward-subject:\r\n")),
        ("two subjects", said(&format!("{ALICE}{ALICE}"))),
        ("a subject that is too long", said(&format!("x-bearward-subject: {}\r\n", "a".repeat(256)))),
        ("a scope alone", said("x-bearward-scope: a\r\n")),
        ("claims alone", said("x-bearward-claims: {}\r\n")),
        ("two scopes", said(&format!("{ALICE}x-bearward-scope: a\r\nx-bearward-scope: b\r\n"))),
        ("a scope that is none", said(&format!("{ALICE}x-bearward-scope: \"a\"\r\n"))),
        ("claims that are no JSON", said(&format!("{ALICE}x-bearward-claims: tenant=acme\r\n"))),
        ("claims that are a list", said(&format!("{ALICE}x-bearward-claims: [1]\r\n"))),
        ("a claim twice", said(&format!("{ALICE}x-bearward-claims: {{\"a\":1,\"a\":2}}\r\n"))),
        ("a claim of the gateway's", said(&format!("{ALICE}x-bearward-claims: {{\"iss\":\"x\"}}\r\n"))),
        (
            "a token too large to be accepted",
            said(&format!("{ALICE}x-bearward-claims: {{\"a\":\"{}\"}}\r\n", "x".repeat(8 << 10))),
        ),
    ]
}

#[tokio::test]
async fn an_answer_that_cannot_carry_tokens_is_503_and_never_goes_out_bare() {
    for (what, answer) in unfit() {
        let (upstream, _) = backend(answer);
        let gateway = gateway(upstream.address, "");
        let answer = log_in(&gateway).await;
        eprintln!("{what}: {answer:?}");
        answer.refused(503, "temporarily_unavailable");
        assert!(answer.header("retry-after").is_some());
        let shown = format!("{answer:?}");
        assert!(!shown.contains("bare") && !shown.contains("alice"), "{shown}");
        assert_eq!(families(&gateway, "alice").await, 0, "{what}: nobody has logged in");
        let line = gateway.log_lines(1).await.remove(0);
        assert_eq!((&line["reason"], &line["status"]), (&json!("login_capture"), &json!(503)), "{what}");
        let detail = line["detail"].as_str().unwrap_or_else(|| panic!("{what}: the log says why: {line}"));
        assert!(!detail.contains("bare") && !detail.contains("alice"), "{detail}");
    }
}

/// Bytes that are no text, in the body and in a header.
#[tokio::test]
async fn what_is_not_utf_8_is_not_captured() {
    let answers = [
        [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: alice\r\ncontent-length: 7\r\n\r\n".as_slice(), b"{\"\xff\":1}"].concat(),
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: al\xffice\r\ncontent-length: 2\r\n\r\n{}".to_vec(),
    ];
    for answer in answers {
        let (upstream, _) = backend(answer);
        log_in(&gateway(upstream.address, "")).await.refused(503, "temporarily_unavailable");
    }
    let (upstream, _) = backend(told("200 OK", &format!("{JSON}x-bearward-subject: Ali\u{e7}e\r\n"), "{}"));
    let answer = log_in(&gateway(upstream.address, "")).await;
    assert_eq!(claims_of(&Pair::of(&answer.json()).access)["sub"], "Ali\u{e7}e");
}

#[tokio::test]
async fn a_head_of_a_login_makes_no_tokens() {
    let (upstream, _) = backend(format!("HTTP/1.1 200 OK\r\n{JSON}{ALICE}content-length: 10\r\n\r\n"));
    let gateway = gateway(upstream.address, "");
    let answer = gateway.client().send(Method::HEAD, "/login", "".into()).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (503, 0));
    assert_eq!(families(&gateway, "alice").await, 0);
}

#[tokio::test]
async fn while_the_store_fails_nobody_logs_in() {
    let (upstream, _) = backend(told("200 OK", &format!("{JSON}{ALICE}"), r#"{"bare":1}"#));
    let gateway = gateway(upstream.address, "");
    let shell = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    shell.execute_batch("begin immediate").expect("locked");
    let answer = log_in(&gateway).await;
    answer.refused(503, "temporarily_unavailable");
    assert!(!answer.text().contains("bare"));
    assert_eq!(gateway.log_lines(1).await[0]["reason"], "store_unavailable");
    shell.execute_batch("rollback").expect("let go");
    let pair = Pair::of(&log_in(&gateway).await.json());
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    assert_eq!(families(&gateway, "alice").await, 1);
}

/// The names are the backend's and the gateway's: nobody else says or hears them, on any route.
#[tokio::test]
async fn the_headers_are_removed_both_ways_on_every_route() {
    let head = format!("{JSON}{ALICE}X-BEARWARD-SCOPE: a\r\nx-bearward-claims: {{}}\r\nx-bearward-other: kept\r\n");
    let (upstream, heads) = backend(told("200 OK", &head.replace("x-bearward-other: kept\r\n", ""), "{}"));
    let gateway = gateway(upstream.address, "");
    let pair = gateway.issue("bob", "").await;
    let spellings = ["X-Bearward-Subject", "x_bearward_subject", "X.Bearward.Scope", "x-bearward_claims"];
    for path in ["/public/a", "/private", "/login"] {
        let client =
            spellings.iter().fold(gateway.client().bearer(&pair.access), |client, name| client.header(name, "mallory"));
        // The client checks that none of them comes back.
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            answer.json().as_object().expect("an object").is_empty(),
            path != "/login",
            "only a login is captured"
        );
    }
    for head in heads.lock().expect("unpoisoned").iter() {
        assert!(!head.contains("mallory"), "{head}");
    }
}

#[tokio::test]
async fn a_backend_may_say_that_the_headers_are_for_one_hop() {
    let (upstream, _) = backend(told("200 OK", &format!("{JSON}{ALICE}connection: x-bearward-subject\r\n"), "{}"));
    let gateway = gateway(upstream.address, "");
    assert_eq!(gateway.status_of(&Pair::of(&log_in(&gateway).await.json()).access).await, 200);
}

#[tokio::test]
async fn the_backend_is_asked_for_one_whole_plain_answer() {
    let (upstream, heads) = backend(told("401 No", "", ""));
    let gateway = gateway(upstream.address, "");
    let client = gateway.client().header("accept-encoding", "gzip, br").header("range", "bytes=0-1");
    let client = client.header("connection", "upgrade").header("upgrade", "websocket");
    assert_eq!(client.get("/login").await.status, 401);
    assert_eq!(client.get("/public/").await.status, 401);
    let heads = heads.lock().expect("unpoisoned");
    assert!(heads[0].contains("accept-encoding: identity\r\n"), "{heads:?}");
    assert!(!heads[0].contains("gzip") && !heads[0].contains("range:") && !heads[0].contains("upgrade"), "{heads:?}");
    assert!(heads[1].contains("accept-encoding: gzip, br\r\n") && heads[1].contains("upgrade: websocket"), "{heads:?}");
}

#[tokio::test]
async fn names_and_size_are_the_operators_to_choose() {
    let head = format!("{JSON}who-is: alice\r\nx-bearward-scope: kept\r\nx-bearward-subject: mallory\r\n");
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(100 << 10));
    let (upstream, heads) = backend(told("200 OK", &head, &body).replace("x-bearward", "x-other"));
    let gateway = gateway(
        upstream.address,
        "[login]\nsubject = \"Who-Is\"\nscope = \"\"\nclaims = \"\"\nmax_response_size = \"101KiB\"",
    );
    let answer = log_in(&gateway).await;
    let claims = claims_of(&Pair::of(&answer.json()).access);
    assert_eq!((&claims["sub"], claims.get("scope")), (&json!("alice"), None));
    assert_eq!((answer.header("who-is"), answer.header("x-other-scope")), (None, Some("kept")));
    gateway.client().header("who_is", "mallory").get("/public/").await;
    assert!(!heads.lock().expect("unpoisoned")[1].contains("mallory"), "whatever letter it begins with");
}

#[tokio::test]
async fn without_a_login_route_the_headers_mean_nothing() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    gateway.client().header("x-bearward-subject", "1").get("/").await;
    assert_eq!(upstream.only().header("x-bearward-subject"), Some("1"));
}
