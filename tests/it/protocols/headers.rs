//! A client cannot set the headers of the gateway, and hop-by-hop headers are not forwarded.

use http::Request;
use serde_json::{Value, json};

use crate::support::connection::{self, HttpConnection};
use crate::support::upstream::ReceivedRequest;
use crate::support::{Client, Gateway, ScriptedBackend, TokenPair, Upstream, Wire};

/// The names of the gateway's headers, and all spellings that CGI maps to them.
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

/// Returns the headers with a spelling of the gateway's names that the backend received, as names and values.
fn ours(seen: &ReceivedRequest) -> Vec<(String, String)> {
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
async fn identity_headers_of_a_client_are_removed_in_any_spelling() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::with_config(
            &upstream,
            &format!("protocol = \"{protocol}\"\n[limits]\nrequest_header_count = 1000"),
        );
        let pair = gateway.issue("alice", "orders:read").await;
        for client in gateway.clients() {
            let spoofing_client =
                |client: Client, name: &String| client.header(name, "forged").header(name, "forged again");
            let client = spellings().iter().fold(client.bearer(&pair.access), spoofing_client);
            assert_eq!(client.get("/").await.status, 200);

            let seen = upstream.seen().pop().expect("the request arrived");
            let (mut names, values): (Vec<_>, Vec<_>) = ours(&seen).into_iter().unzip();
            assert!(values.iter().all(|value| !value.contains("forged")), "{seen:?}");
            names.sort_unstable();
            let set = ["issuer", "scope", "subject", "token-id"].map(|name| format!("x-auth-{name}"));
            let forwarded_headers =
                ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"].map(str::to_owned);
            assert_eq!(names, [["forwarded".to_owned()].as_slice(), &set, &forwarded_headers].concat());
        }
    }
}

#[tokio::test]
async fn a_public_route_removes_identity_headers() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let spoofed = spellings().iter().map(|name| format!("{name}: forged\r\n")).collect::<String>();
    let mut spoofing_client = Wire::connect(gateway.address()).await;
    spoofing_client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{spoofed}\r\n")).await;
    assert_eq!(spoofing_client.read_response().await.status, 200);
    let seen = upstream.only_request();
    let forwarded_headers = ours(&seen);
    assert!(
        forwarded_headers.iter().all(|(name, value)| !name.contains("auth") && value != "forged"),
        "{forwarded_headers:?}"
    );
}

/// The names of oauth2-proxy. They begin as those that the gateway removes in any case.
#[tokio::test]
async fn identity_headers_may_have_the_names_of_oauth2_proxy() {
    let upstream = Upstream::start();
    let claim =
        |pointer: &str, header: &str| format!("[[identity.claim]]\npointer = \"{pointer}\"\nheader = \"{header}\"\n");
    let identity = [
        "[identity]\nsubject = \"X-Forwarded-User\"\n".to_owned(),
        claim("/groups", "X-Forwarded-Groups"),
        claim("/email", "X-Forwarded-Email"),
        claim("/preferred_username", "X-Forwarded-Preferred-Username"),
        "[[route]]\npath = \"/\"\n[[route]]\npath = \"/public\"\npublic = true\n".to_owned(),
    ];
    let gateway = Gateway::with_config(&upstream, &identity.concat());
    let claims = json!({ "groups": ["a", "b"], "email": "alice@example.org" });
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "claims": claims })).await;
    let pair = TokenPair::from_json(&issued.json());
    let names = ["user", "groups", "email", "preferred-username"].map(|name| format!("x-forwarded-{name}"));
    for client in gateway.clients() {
        let spoofed = names.iter().flat_map(|name| spellings_of(name));
        let client = spoofed.fold(client.bearer(&pair.access), |client, name| client.header(&name, "root"));
        for (path, expected) in
            [("/", [Some("alice"), Some("a,b"), Some("alice@example.org"), None]), ("/public", [None; 4])]
        {
            assert_eq!(client.get(path).await.status, 200);
            let seen = upstream.seen().pop().expect("the request arrived");
            assert_eq!(names.each_ref().map(|name| seen.header(name)), expected, "{path}");
            assert!(seen.headers.values().all(|value| value != "root"), "{seen:?}");
        }
    }
}

/// CGI programs read a `Proxy` header as `HTTP_PROXY`, and would send their own requests there (CVE-2016-5385).
#[tokio::test]
async fn a_proxy_header_is_removed() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for client in gateway.clients() {
        for name in ["Proxy", "proxy", "PROXY"] {
            assert_eq!(client.clone().header(name, "http://192.0.2.1").get("/").await.status, 200);
            assert_eq!(upstream.seen().pop().expect("the request arrived").header("proxy"), None, "{name}");
        }
    }
}

/// Many frameworks replace the method of a POST by that of such a header. The route for POST would then forward a
/// DELETE, and a preflight, which needs no token, could become any method.
#[tokio::test]
async fn method_override_headers_are_removed_on_routes_with_methods() {
    let names = ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"];
    let names: Vec<_> = names.into_iter().flat_map(spellings_of).collect();
    for (deciding, removed) in [
        ("[[route]]\npath = \"/read\"\npublic = true\nmethods = [\"GET\"]\n", true),
        ("[[route]]\npath = \"/page\"\npreflight = true\n", true),
        ("", false),
    ] {
        let upstream = Upstream::start();
        let gateway = Gateway::public(upstream.address, &format!("{deciding}[limits]\nrequest_header_count = 1000"));
        for client in gateway.clients() {
            // Over HTTP/2 all names are in lower case, so several spellings become one name.
            let spoofing_client = names.iter().fold(client, |client, name| client.header(name, "DELETE"));
            assert_eq!(spoofing_client.send(http::Method::POST, "/", "".into()).await.status, 200);
            let seen = upstream.seen().pop().expect("the request arrived");
            let arrived = names.iter().filter(|name| seen.headers.contains_key(name.to_lowercase())).count();
            assert_eq!(arrived, if removed { 0 } else { names.len() }, "{deciding}: {seen:?}");
        }
    }
}

/// A proxy must remove the headers that `Connection` names. A client must not use it to remove headers of the gateway
/// (Traefik CVE-2024-45410).
#[tokio::test]
async fn connection_cannot_remove_headers_of_the_gateway() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let nominated =
        "X-Auth-Subject, X-Forwarded-For, Forwarded, X-Request-Id, Host, Cookie, Content-Length, X-Own, close";
    let client = gateway.client().bearer(&pair.access).header("connection", nominated);
    let client = client.header("x-own", "1").header("cookie", "a=1").header("x-other", "2");
    assert_eq!(client.send(http::Method::POST, "/", "hello".into()).await.text(), "hello");
    let seen = upstream.only_request();
    assert_eq!(seen.header("x-auth-subject"), Some("alice"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert!(seen.headers.contains_key("forwarded") && seen.headers.contains_key("x-request-id"));
    assert_eq!((seen.host().as_str(), seen.header("cookie")), ("gateway.test", Some("a=1")));
    assert_eq!((seen.header("x-own"), seen.header("x-other")), (None, Some("2")));
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_request_are_not_forwarded() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        let mut client = Wire::connect(gateway.address()).await;
        client
            .send(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Nominated\r\nKeep-Alive: timeout=5\r\n\
                 Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic YTpi\r\nTE: gzip, trailers;q=0.5\r\n\
                 X-Nominated: 1\r\nConnection: x-also\r\nX-Also: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n",
            )
            .await;
        assert_eq!(client.read_response().await.status, 200);
        let seen = upstream.only_request();
        for removed_name in [
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
            assert_eq!(seen.header(removed_name), None, "{removed_name} to {protocol}");
        }
    }
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_response_are_not_forwarded() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for client in gateway.clients() {
        let answer = client.get("/headers").await;
        for removed_name in ["connection", "x-nominated", "keep-alive", "proxy-authenticate"] {
            assert_eq!(answer.header(removed_name), None, "{answer:?}");
        }
        assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
    }
    // `Connection: close` of the backend does not close the client's connection.
    let backend =
        ScriptedBackend::responding_with("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    let gateway = Gateway::public(backend.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let answer = client.read_response().await;
        assert_eq!((answer.status, answer.header("connection")), (200, None));
    }
}

/// Some backends merge trailers into the headers.
#[tokio::test]
async fn forbidden_headers_are_removed_from_trailers() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        let names = ["x_auth_subject", "X-Forwarded-For", "forwarded", "authorization", "cookie", "host", "x-own"];
        let lines = names.map(|name| format!("{name}: forged\r\n")).concat();
        let mut spoofing_client = Wire::connect(gateway.address()).await;
        spoofing_client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: {}\r\n\r\n1\r\nx\r\n0\r\n{lines}\r\n",
            names.join(", ")
        ))
        .await;
        assert_eq!(spoofing_client.read_response().await.status, 200);
        let trailers = upstream.only_request().trailers.expect("trailers");
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["x-own"], "to {protocol}");
    }
    let upstream = Upstream::start_http2();
    let gateway = Gateway::public(upstream.address, "protocol = \"h2\"");
    let mut spoofing_client = HttpConnection::http2(gateway.address()).await;
    let (pieces, body) = connection::streamed();
    let sending = tokio::spawn(spoofing_client.sender().send(Request::post("/").body(body).expect("a request")));
    pieces.send("x").await;
    pieces.end_with("x-auth-subject", "root").await;
    assert_eq!(sending.await.expect("no panic").expect("a response").status(), 200);
    assert!(upstream.only_request().trailers.is_none_or(|trailers| trailers.is_empty()));
    spoofing_client.send(Request::get("/").body(connection::empty()).expect("a request")).await;
}

#[tokio::test]
async fn the_backend_gets_the_origin_of_a_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(
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
        let seen = upstream.seen().pop().expect("the request arrived");
        assert_eq!(seen.header("x-forwarded-for"), Some(forwarded_for));
        assert_eq!(seen.header("x-forwarded-proto"), Some(proto));
        assert_eq!(seen.header("x-forwarded-host"), Some("gateway.test"));
        assert_eq!(seen.header("forwarded"), Some(format!("for={node};proto={proto}").as_str()));
    }
}

#[tokio::test]
async fn the_log_and_the_backend_have_the_same_request_id() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    gateway.client().header("x-request-id", "mine").get("/").await;
    let seen = upstream.only_request();
    assert_eq!(gateway.log_lines(1).await[0]["request_id"], Value::from(seen.header("x-request-id")));
}
