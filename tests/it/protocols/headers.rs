//! What only the gateway may say is never a client's word, and what concerns one connection stays on it.

use http::Request;
use serde_json::Value;

use crate::support::session::{self, Session};
use crate::support::upstream::Seen;
use crate::support::{Client, Gateway, Scripted, Upstream, Wire};

/// Names that a backend would take for what the gateway says, if it reads them as CGI does.
fn spellings() -> Vec<String> {
    let ours = [
        "X-Auth-Subject",
        "X-Auth-Scope",
        "X-Auth-Token-Id",
        "X-Auth-Issuer",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Prefix",
        "X-Forwarded-Whatever",
        "Forwarded",
        "X-Real-IP",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-Request-Id",
    ];
    ours.into_iter().flat_map(spellings_of).collect()
}

fn spellings_of(name: &str) -> [String; 6] {
    [
        name.to_owned(),
        name.to_lowercase(),
        name.to_uppercase(),
        name.replace('-', "_"),
        name.replace('-', "."),
        name.replacen('-', "_", 1),
    ]
}

/// What the backend got under names that are the gateway's to say, and the names that it got them under.
fn ours(seen: &Seen) -> Vec<(String, String)> {
    let folded = |name: &str| name.replace(['_', '.'], "-");
    let is_ours = |name: &str| {
        let name = folded(name);
        ["x-auth", "x-forwarded", "forwarded", "x-real", "x-original", "x-rewrite", "x-request-id"]
            .iter()
            .any(|beginning| name.starts_with(beginning))
    };
    let fields = seen.headers.iter().filter(|(name, _)| is_ours(name.as_str()));
    fields.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned())).collect()
}

#[tokio::test]
async fn nothing_that_a_client_says_about_itself_arrives_in_any_spelling() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway =
            Gateway::with(&upstream, &format!("protocol = \"{protocol}\"\n[limits]\nrequest_header_count = 1000"));
        let pair = gateway.issue("alice", "orders:read").await;
        for client in gateway.clients() {
            let liar = |client: Client, name: &String| client.header(name, "forged").header(name, "forged again");
            let client = spellings().iter().fold(client.bearer(&pair.access), liar);
            assert_eq!(client.get("/").await.status, 200);

            let seen = upstream.seen().pop().expect("it arrived");
            let (mut names, values): (Vec<_>, Vec<_>) = ours(&seen).into_iter().unzip();
            assert!(values.iter().all(|value| !value.contains("forged")), "{seen:?}");
            names.sort_unstable();
            let set = ["issuer", "scope", "subject", "token-id"].map(|name| format!("x-auth-{name}"));
            let told = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"].map(str::to_owned);
            assert_eq!(names, [["forwarded".to_owned()].as_slice(), &set, &told].concat());
        }
    }
}

#[tokio::test]
async fn on_a_public_route_nobody_is_anybody() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let lies = spellings().iter().map(|name| format!("{name}: forged\r\n")).collect::<String>();
    let mut liar = Wire::connect(gateway.address()).await;
    liar.say(format!("GET / HTTP/1.1\r\nHost: a\r\n{lies}\r\n")).await;
    assert_eq!(liar.answer().await.status, 200);
    let seen = upstream.only();
    let told = ours(&seen);
    assert!(told.iter().all(|(name, value)| !name.contains("auth") && value != "forged"), "{told:?}");
}

/// A backend that runs CGI programs would make `HTTP_PROXY` of it, and they would send what they ask of others there
/// (CVE-2016-5385).
#[tokio::test]
async fn nobody_tells_a_backend_its_proxy() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for client in gateway.clients() {
        for name in ["Proxy", "proxy", "PROXY"] {
            assert_eq!(client.clone().header(name, "http://192.0.2.1").get("/").await.status, 200);
            assert_eq!(upstream.seen().pop().expect("it arrived").header("proxy"), None, "{name}");
        }
    }
}

/// Many frameworks take a POST for what such a header says: the route that was found for a POST would let a DELETE through,
/// and a preflight, which needs no token, would be whatever its sender likes.
#[tokio::test]
async fn where_a_route_decides_by_the_method_no_header_says_another() {
    let names = ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"];
    let names: Vec<_> = names.into_iter().flat_map(spellings_of).collect();
    for (deciding, removed) in [
        ("[[route]]\npath = \"/read\"\npublic = true\nmethods = [\"GET\"]\n", true),
        ("[[route]]\npath = \"/page\"\npreflight = true\n", true),
        ("", false),
    ] {
        let upstream = Upstream::start();
        let gateway = Gateway::open(upstream.address, &format!("{deciding}[limits]\nrequest_header_count = 1000"));
        for client in gateway.clients() {
            // Several spellings of one name are one over HTTP/2, and in lower case everywhere.
            let liar = names.iter().fold(client, |client, name| client.header(name, "DELETE"));
            assert_eq!(liar.send(http::Method::POST, "/", "".into()).await.status, 200);
            let seen = upstream.seen().pop().expect("it arrived");
            let arrived = names.iter().filter(|name| seen.headers.contains_key(name.to_lowercase())).count();
            assert_eq!(arrived, if removed { 0 } else { names.len() }, "{deciding}: {seen:?}");
        }
    }
}

/// `Connection` names what a proxy has to remove: once it was used to remove what the proxy itself had set (Traefik
/// CVE-2024-45410).
#[tokio::test]
async fn connection_cannot_nominate_what_the_gateway_sets_or_what_carries_meaning() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let nominated =
        "X-Auth-Subject, X-Forwarded-For, Forwarded, X-Request-Id, Host, Cookie, Content-Length, X-Own, close";
    let client = gateway.client().bearer(&pair.access).header("connection", nominated);
    let client = client.header("x-own", "1").header("cookie", "a=1").header("x-other", "2");
    assert_eq!(client.send(http::Method::POST, "/", "hello".into()).await.text(), "hello");
    let seen = upstream.only();
    assert_eq!(seen.header("x-auth-subject"), Some("alice"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert!(seen.headers.contains_key("forwarded") && seen.headers.contains_key("x-request-id"));
    assert_eq!((seen.host().as_str(), seen.header("cookie")), ("gateway.test", Some("a=1")));
    assert_eq!((seen.header("x-own"), seen.header("x-other")), (None, Some("2")));
}

#[tokio::test]
async fn hop_by_hop_fields_of_a_request_stay_on_their_hop() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\""));
        let mut client = Wire::connect(gateway.address()).await;
        client
            .say(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Nominated\r\nKeep-Alive: timeout=5\r\n\
                 Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic YTpi\r\nTE: gzip, trailers;q=0.5\r\n\
                 X-Nominated: 1\r\nConnection: x-also\r\nX-Also: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n",
            )
            .await;
        assert_eq!(client.answer().await.status, 200);
        let seen = upstream.only();
        for gone in [
            "connection",
            "keep-alive",
            "proxy-connection",
            "proxy-authorization",
            "te",
            "x-nominated",
            "x-also",
            "upgrade",
            "http2-settings",
            "transfer-encoding",
        ] {
            assert_eq!(seen.header(gone), None, "{gone} to {protocol}");
        }
    }
}

#[tokio::test]
async fn hop_by_hop_fields_of_an_answer_stay_on_their_hop() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for client in gateway.clients() {
        let answer = client.get("/headers").await;
        for gone in ["connection", "x-nominated", "keep-alive", "proxy-authenticate"] {
            assert_eq!(answer.header(gone), None, "{answer:?}");
        }
        assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
    }
    // What a backend says about its own connection does not end the client's.
    let backend = Scripted::answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    let gateway = Gateway::open(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        client.say("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (200, None));
    }
}

/// Some backends put trailers among the headers.
#[tokio::test]
async fn trailers_cannot_say_what_headers_cannot() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\""));
        let names = ["x_auth_subject", "X-Forwarded-For", "forwarded", "authorization", "cookie", "host", "x-own"];
        let lines = names.map(|name| format!("{name}: forged\r\n")).concat();
        let mut liar = Wire::connect(gateway.address()).await;
        liar.say(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: {}\r\n\r\n1\r\nx\r\n0\r\n{lines}\r\n",
            names.join(", ")
        ))
        .await;
        assert_eq!(liar.answer().await.status, 200);
        let trailers = upstream.only().trailers.expect("trailers");
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-own"], "to {protocol}");
    }
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"");
    let mut liar = Session::http2(gateway.address()).await;
    let (pieces, body) = session::streamed();
    let sending = tokio::spawn(liar.sender().send(Request::post("/").body(body).expect("a request")));
    pieces.send("x").await;
    pieces.end_with("x-auth-subject", "root").await;
    assert_eq!(sending.await.expect("no panic").expect("an answer").status(), 200);
    assert!(upstream.only().trailers.is_none_or(|trailers| trailers.is_empty()));
    liar.send(Request::get("/").body(session::empty()).expect("a request")).await;
}

#[tokio::test]
async fn the_backend_learns_where_a_request_came_from() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(
        upstream.address,
        "[[listener]]\naddress = \"[::1]:0\"\ntls = \"off\"\n[[listener]]\naddress = \"[::1]:0\"\ntls = \"self-signed\"",
    );
    let address = |listener: usize| gateway.running().addresses[listener];
    let tls = |listener| Client::http2(address(listener)).over_tls(&gateway.certificate());
    for (client, node, forwarded_for, proto) in [
        (Client::http1(address(0)), "127.0.0.1", "127.0.0.1", "http"),
        (tls(1), "127.0.0.1", "127.0.0.1", "https"),
        (Client::http1(address(2)), "\"[::1]\"", "::1", "http"),
        (tls(3), "\"[::1]\"", "::1", "https"),
    ] {
        assert_eq!(client.get("/").await.status, 200);
        let seen = upstream.seen().pop().expect("it arrived");
        assert_eq!(seen.header("x-forwarded-for"), Some(forwarded_for));
        assert_eq!(seen.header("x-forwarded-proto"), Some(proto));
        assert_eq!(seen.header("x-forwarded-host"), Some("gateway.test"));
        assert_eq!(seen.header("forwarded"), Some(format!("for={node};proto={proto}").as_str()));
    }
}

#[tokio::test]
async fn the_request_id_is_the_same_in_the_log_and_at_the_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    gateway.client().header("x-request-id", "mine").get("/").await;
    let seen = upstream.only();
    assert_eq!(gateway.log_lines(1).await[0]["request_id"], Value::from(seen.header("x-request-id")));
}
