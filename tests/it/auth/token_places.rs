//! The places where clients may send a token, and where the backend receives it: a request has one credential, in a
//! place that its route accepts. The gateway never forwards a token in a URL.

use http::Method;

use crate::support::{Client, Gateway, Upstream, Wire};

const ROUTES: &str = r#"
[[route]]
path = "/header"
[[route]]
path = "/cookie"
token_from = ["cookie:session"]
origins = ["https://friend.example"]
[[route]]
path = "/query"
token_from = ["query:access_token", "query:t"]
[[route]]
path = "/any"
token_from = ["header", "cookie:session", "query:access_token", "websocket"]
[[route]]
path = "/drop"
token_from = ["header", "cookie:session", "query:access_token"]
token = "drop"
[[route]]
path = "/ws"
token_from = ["websocket"]
[[route]]
path = "/public"
public = true
token = "drop"
"#;

/// The path and the headers of a GET, and the reason why it is rejected, or an empty string. `{}` stands for the token.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static str);

const BEARER: (&str, &str) = ("authorization", "Bearer {}");
const COOKIE: (&str, &str) = ("cookie", "session={}");

const ROWS: &[Row] = &[
    ("/header", &[BEARER], ""),
    ("/header", &[COOKIE], "no_token"),
    ("/header?access_token={}", &[], "no_token"),
    ("/header", &[BEARER, COOKIE], ""),
    ("/header?access_token={}", &[BEARER], ""),
    ("/header", &[BEARER, BEARER], "several_tokens"),
    ("/cookie", &[COOKIE], ""),
    ("/cookie", &[("cookie", "a=1; session={}; b=2")], ""),
    ("/cookie", &[("cookie", "a=1"), COOKIE], ""),
    ("/cookie", &[("cookie", "session={}; session={}")], "several_tokens"),
    ("/cookie", &[COOKIE, COOKIE], "several_tokens"),
    ("/cookie", &[("cookie", "session=")], "no_token"),
    ("/cookie", &[("cookie", "session=; session={}")], ""),
    ("/cookie", &[("cookie", "Session={}")], "no_token"),
    ("/cookie", &[("cookie", "session=\"{}\"")], "malformed_token"),
    ("/cookie", &[("cookie", "session=x")], "malformed_token"),
    ("/cookie", &[("cookie", "session={}x")], "bad_signature"),
    ("/cookie", &[], "no_token"),
    // The route accepts cookies only. A Bearer beside the cookie is rejected, because the backend could read it as the
    // token.
    ("/cookie", &[BEARER], "no_token"),
    ("/cookie", &[BEARER, COOKIE], "several_tokens"),
    ("/cookie", &[("authorization", "Basic YTpi"), COOKIE], ""),
    ("/cookie", &[("authorization", "Basic YTpi"), ("authorization", "Basic YTpi"), COOKIE], "several_tokens"),
    ("/cookie?access_token={}", &[COOKIE], ""),
    ("/query?access_token={}", &[], ""),
    ("/query?t={}", &[], ""),
    ("/query?access%5Ftoken={}", &[], ""),
    ("/query?access_token={}&t={}", &[], "several_tokens"),
    ("/query?access_token={}&access_token={}", &[], "several_tokens"),
    ("/query?access_token={}&access%5ftoken={}", &[], "several_tokens"),
    ("/query?access_token={}&t", &[], "several_tokens"),
    ("/query?access_token=", &[], "malformed_token"),
    ("/query?access_token={}%20", &[], "malformed_token"),
    ("/query?Access_Token={}", &[], "no_token"),
    ("/query", &[BEARER], "no_token"),
    ("/query?t={}", &[BEARER], "several_tokens"),
    ("/any", &[BEARER], ""),
    ("/any", &[COOKIE], ""),
    ("/any?access_token={}", &[], ""),
    ("/any", &[BEARER, COOKIE], "several_tokens"),
    ("/any", &[BEARER, ("cookie", "session=")], ""),
    ("/any?access_token={}", &[BEARER], "several_tokens"),
    ("/any?access_token={}", &[COOKIE], "several_tokens"),
    ("/any?access_token=", &[COOKIE], "several_tokens"),
    ("/any", &[("authorization", "Basic YTpi"), COOKIE], "several_tokens"),
    ("/any", &[("authorization", "Basic YTpi")], "no_token"),
    // The subprotocol counts only in an upgrade.
    ("/any", &[("sec-websocket-protocol", "bearer, {}")], "no_token"),
    ("/ws", &[("sec-websocket-protocol", "bearer, {}")], "no_token"),
];

#[tokio::test]
async fn a_token_is_accepted_only_once_and_where_its_route_allows() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let token = gateway.issue("alice", "").await.access;
    for (path, headers, reason) in ROWS {
        let before = upstream.seen().len();
        let path = path.replace("{}", &token);
        let mut client = gateway.client();
        for (name, value) in *headers {
            client = client.header(name, &value.replace("{}", &token));
        }
        let response = client.get(&path).await;
        let message = format!("{path} {headers:?}: {response:?}");
        match *reason {
            "" => assert_eq!(response.status, 200, "{message}"),
            "several_tokens" => response.assert_rejected(400, "invalid_request"),
            "no_token" => response.assert_rejected(401, "unauthorized"),
            _ => response.assert_rejected(401, "invalid_token"),
        }
        assert_eq!(upstream.seen().len() - before, usize::from(reason.is_empty()), "{message}");
    }
    let lines = gateway.log_lines(ROWS.len()).await;
    let mut reasons: Vec<&str> = lines.iter().map(|line| line["reason"].as_str().unwrap_or_default()).collect();
    let mut expected: Vec<&str> = ROWS.iter().map(|(.., reason)| *reason).collect();
    reasons.sort_unstable();
    expected.sort_unstable();
    assert_eq!(reasons, expected);
    assert!(!gateway.file("access.log").contains(&token[..40]), "a token in the log");
}

/// What the backend receives: the target, `Authorization` and `Cookie`.
async fn received(upstream: &Upstream, client: Client, path: &str) -> (String, Option<String>, Option<String>) {
    assert_eq!(client.get(path).await.status, 200, "{path}");
    let seen = upstream.seen().pop().expect("it arrived");
    let header = |name: &str| seen.header(name).map(str::to_owned);
    (seen.uri.clone(), header("authorization"), header("cookie"))
}

#[tokio::test]
async fn the_backend_receives_the_token_in_a_header_or_not_at_all() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let token = gateway.issue("alice", "").await.access;
    let bearer = Some(format!("Bearer {token}"));
    let cookie = Some(format!("a=1; session={token}; b=2"));
    let client = || gateway.client();
    let with_cookie = || client().header("cookie", cookie.as_deref().expect("some"));
    let seen = async |client: Client, path: &str| received(&upstream, client, &path.replace("{}", &token)).await;
    let expected = |uri: &str, authorization: &Option<String>, cookie: Option<&str>| {
        (uri.to_owned(), authorization.clone(), cookie.map(str::to_owned))
    };
    // Forwarded: in the same place, or moved from the query to the header.
    assert_eq!(seen(client().bearer(&token), "/any?x=1").await, expected("/any?x=1", &bearer, None));
    assert_eq!(seen(with_cookie(), "/any").await, expected("/any", &None, cookie.as_deref()));
    assert_eq!(seen(client(), "/any?access_token={}").await, expected("/any", &bearer, None));
    assert_eq!(seen(client(), "/query?a=%2F&access%5ftoken={}&b").await, expected("/query?a=%2F&b", &bearer, None));
    let basic = Some("Basic YTpi".to_owned());
    let both = client().header("authorization", "Basic YTpi");
    assert_eq!(seen(both, "/query?t={}").await, expected("/query", &basic, None));
    // A query parameter is not a token if the route does not accept tokens in the query.
    assert_eq!(
        seen(client().bearer(&token), "/header?access_token=x").await,
        expected("/header?access_token=x", &bearer, None)
    );
    // Dropped: the token is removed, and the rest is unchanged.
    assert_eq!(seen(client().bearer(&token), "/drop/a?b=c").await, expected("/drop/a?b=c", &None, None));
    assert_eq!(seen(with_cookie(), "/drop").await, expected("/drop", &None, Some("a=1; b=2")));
    assert_eq!(seen(client(), "/drop?access_token={}&b=c").await, expected("/drop?b=c", &None, None));
    assert_eq!(seen(client().bearer(&token), "/public").await, expected("/public", &None, None));
    let requests = upstream.seen();
    let private: Vec<_> = requests.iter().filter(|seen| !seen.uri.starts_with("/public")).collect();
    assert_eq!(private.len(), 9);
    for seen in private {
        assert_eq!(seen.header("x-auth-subject"), Some("alice"), "{seen:?}");
    }
}

#[tokio::test]
async fn tokens_are_removed_from_cookies_and_queries_over_http2() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let token = gateway.issue("alice", "").await.access;
    let client = Client::http2(gateway.address());
    let response =
        client.clone().header("cookie", "a=1").header("cookie", &format!("session={token}")).get("/drop").await;
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(upstream.only_request().header("cookie"), Some("a=1"));
    assert_eq!(client.get(&format!("/query?t={token}&b")).await.status, 200);
    assert_eq!(upstream.seen()[1].uri, "/query?b");
}

#[tokio::test]
async fn a_cookie_of_a_cross_site_request_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let token = gateway.issue("alice", "").await.access;
    let client = |origin: &str| {
        let client = gateway.client().header("cookie", &format!("session={token}"));
        if origin.is_empty() { client } else { client.header("origin", origin) }
    };
    for (method, origin, passes) in [
        (Method::GET, "", true),
        (Method::GET, "https://evil.example", true),
        (Method::HEAD, "https://evil.example", true),
        (Method::POST, "https://friend.example", true),
        (Method::POST, "http://gateway.test", true),
        (Method::DELETE, "https://gateway.test", true),
        (Method::POST, "", false),
        (Method::POST, "null", false),
        (Method::POST, "https://evil.example", false),
        (Method::PUT, "https://gateway.test.evil.example", false),
        (Method::DELETE, "http://friend.example", false),
        (Method::PATCH, "https://gateway.test:8443", false),
    ] {
        for path in ["/cookie", "/any", "/drop"] {
            let passes = passes && (path == "/cookie" || !origin.contains("friend"));
            let passes = passes || method == Method::GET || method == Method::HEAD;
            let response = client(origin).send(method.clone(), path, Default::default()).await;
            if passes {
                assert_eq!(response.status, 200, "{method} {path} {origin}: {response:?}")
            } else {
                response.assert_rejected(403, "forbidden")
            }
        }
    }
    let bearer = gateway.client().bearer(&token).header("origin", "https://evil.example");
    assert_eq!(
        bearer.send(Method::POST, "/any", Default::default()).await.status,
        200,
        "a page cannot add this header"
    );
    // The log has the reason. The check comes before the token is verified.
    let lines = gateway.log_lines(37).await;
    assert!(
        lines
            .iter()
            .any(|line| line["reason"] == "csrf" && line["detail"] == "a token in a cookie without an Origin header")
    );
}

/// Sends a WebSocket handshake. Returns the status and the selected subprotocol.
async fn handshake(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> (u16, Option<String>) {
    let mut wire = Wire::connect(gateway.address()).await;
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    wire.send(format!(
        "GET {path} HTTP/1.1\r\nHost: gateway.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    ))
    .await;
    let head = wire.read_until("\r\n\r\n").await;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let protocol = head.lines().filter_map(|line| line.split_once(": "));
    let protocol = protocol.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-protocol"));
    (status, protocol.map(|(_, value)| value.to_owned()).next())
}

#[tokio::test]
async fn a_websocket_token_can_be_a_subprotocol() {
    use base64::Engine;
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let token = gateway.issue("alice", "").await.access;
    let encoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&token);
    let plain = format!("bearer, {token}");
    let rows = [
        // The test backend selects all subprotocols of the request.
        (plain.clone(), 101, None, Some("bearer")),
        (format!("chat, {plain}"), 101, Some("chat"), Some("chat")),
        (format!("{plain}, chat, v2"), 101, Some("chat, v2"), Some("chat, v2")),
        (format!("base64url.bearer.authorization.k8s.io.{encoded}, v4"), 101, Some("v4"), Some("v4")),
        (format!("{plain}, {plain}"), 400, None, None),
        (format!("{plain}, base64url.bearer.authorization.k8s.io.{encoded}"), 400, None, None),
        ("bearer".into(), 401, None, None),
        (format!("base64url.bearer.authorization.k8s.io.{token}"), 401, None, None),
        (format!("Bearer, {token}"), 401, None, None),
        ("chat".into(), 401, None, None),
    ];
    for (protocols, status, forwarded, selected) in rows {
        let before = upstream.seen().len();
        let response = handshake(&gateway, "/ws", &[("Sec-WebSocket-Protocol", &protocols)]).await;
        assert_eq!(response, (status, selected.map(str::to_owned)), "{protocols}");
        if status == 101 {
            let seen = upstream.seen().pop().expect("it arrived");
            assert_eq!(seen.header("sec-websocket-protocol"), forwarded, "{protocols}");
            assert_eq!(seen.header("authorization"), Some(format!("Bearer {token}").as_str()));
            assert_eq!(seen.header("x-auth-subject"), Some("alice"));
        } else {
            assert_eq!(upstream.seen().len(), before, "{protocols}");
        }
    }
    let header = format!("Bearer {token}");
    let both = [("Authorization", header.as_str()), ("Sec-WebSocket-Protocol", plain.as_str())];
    assert_eq!(handshake(&gateway, "/any", &both).await.0, 400);
}

#[tokio::test]
async fn a_cross_site_websocket_with_a_cookie_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let cookie = format!("session={}", gateway.issue("alice", "").await.access);
    for (origin, status) in
        [("http://gateway.test", 101), ("https://friend.example", 101), ("https://evil.example", 403), ("null", 403)]
    {
        let headers = [("Cookie", cookie.as_str()), ("Origin", origin)];
        assert_eq!(handshake(&gateway, "/cookie", &headers).await.0, status, "{origin}");
    }
    assert_eq!(handshake(&gateway, "/cookie", &[("Cookie", &cookie)]).await.0, 403, "without an Origin");
}
