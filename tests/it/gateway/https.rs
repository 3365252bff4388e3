//! `[https]`: cleartext requests are redirected to the gateway's own hosts only, and responses over TLS have HSTS.

use http::{Method, Response, Version};

use crate::gateway::streams::{assert_open, open_with};
use crate::support::connection;
use crate::support::{Backend, Client, Gateway, Upstream};

const HTTPS: &str = "
[[route]]
path = \"/\"
public = true
[[route]]
path = \"/\"
host = \"shop.example\"
public = true
[https]
redirect = true
hosts = [\"www.example\"]
";

/// Without the `[https]` of other tests.
fn config_text(upstream: &Upstream, more: &str) -> String {
    without_hosts(&Gateway::config_text(&upstream.address.to_string(), more))
}

fn without_hosts(text: &str) -> String {
    text.replacen("[https]\nhosts = [\"gateway.test\"]\n", "", 1)
}

/// Status and `Location`.
async fn redirect(client: &Client, method: Method, target: &str) -> (u16, Option<String>) {
    let response = client.send(method, target, "".into()).await;
    (response.status.as_u16(), response.header("location").map(str::to_owned))
}

#[tokio::test]
async fn cleartext_requests_are_redirected_to_the_same_path() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(config_text(&upstream, HTTPS));
    for (client, number) in gateway.clients().into_iter().zip(0..) {
        if number >= 2 {
            let client = client.host("www.example");
            assert_eq!(redirect(&client, Method::GET, "/a").await, (200, None), "over TLS");
            continue;
        }
        let client = client.host("shop.example");
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let location = Some("https://shop.example/a?b=//evil.example/".to_owned());
            assert_eq!(redirect(&client, method, "/a?b=//evil.example/").await, (308, location));
        }
        let location = Some("https://shop.example/user/refresh".to_owned());
        assert_eq!(redirect(&client, Method::POST, "/user/refresh").await, (308, location), "own calls too");
        assert_eq!(redirect(&client, Method::GET, "/a/../b").await.0, 400, "the path is read as strictly as elsewhere");
    }
    assert_eq!(upstream.seen().len(), 2, "only those over TLS");
}

/// A cache in between would keep the redirect for other users.
#[tokio::test]
async fn a_forged_host_is_never_in_a_redirect() {
    let upstream = Upstream::start();
    let gateway = Gateway::from_text(config_text(&upstream, HTTPS));
    for client in &gateway.clients()[..2] {
        for (host, expected) in [
            ("shop.example", Some("https://shop.example/a")),
            ("SHOP.example:80", Some("https://shop.example/a")),
            ("www.example", Some("https://www.example/a")),
            ("gateway.example", Some("https://gateway.example/a")),
            ("evil.example", None),
            ("shop.example.evil.example", None),
            ("evilshop.example", None),
            ("127.0.0.1", None),
        ] {
            let forged = client.clone().host(host).header("X-Forwarded-Host", "evil.example");
            let forged = forged.header("Forwarded", "host=evil.example");
            let (status, location) = redirect(&forged, Method::GET, "/a").await;
            let expected_status = if expected.is_some() { 308 } else { 421 };
            assert_eq!((status, location.as_deref()), (expected_status, expected), "{host}");
        }
        // An untrusted client cannot turn the redirect off.
        let forged = client.clone().host("shop.example").header("X-Forwarded-Proto", "https");
        assert_eq!(redirect(&forged, Method::GET, "/a").await.0, 308);
    }
    assert_eq!(gateway.log_line(|line| line["status"] == 421).await["reason"], "cleartext_host");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_trusted_proxy_says_whether_tls_was_used() {
    let upstream = Upstream::start();
    let keys = "redirect_port = 8443\nredirect_status = \"301\"\n[forwarding]\ntrusted = [\"127.0.0.1\"]\n";
    let gateway = Gateway::from_text(config_text(&upstream, &format!("{HTTPS}{keys}")));
    let client = gateway.client().host("shop.example");
    let location = Some("https://shop.example:8443/".to_owned());
    // Traefik writes the other two for a WebSocket.
    for (protos, expected) in [(["https", "wss"], (200, None)), (["http", "ws"], (301, location.clone()))] {
        for proto in protos {
            let client = client.clone().header("X-Forwarded-Proto", proto);
            assert_eq!(redirect(&client, Method::GET, "/").await, expected, "{proto}");
        }
    }
    assert_eq!(redirect(&client, Method::GET, "/").await, (301, location));
}

/// Traefik writes `wss` into the handshake of a WebSocket over TLS, and `ws` into one without.
#[tokio::test]
async fn a_websocket_over_the_tls_of_a_trusted_proxy_is_opened() {
    let upstream = Upstream::start();
    let trusted = "[forwarding]\ntrusted = [\"127.0.0.1\"]\n";
    let gateway = Gateway::from_text(config_text(&upstream, &format!("{HTTPS}{trusted}")));
    let mut socket = open_with(&gateway, "shop.example", &[("x-forwarded-proto", "wss")]).await;
    assert_open(&mut socket).await;
    assert_eq!(upstream.only_request().header("x-forwarded-proto"), Some("https"));
    let handshake = [
        ("x-forwarded-proto", "ws"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let client = gateway.client().host("shop.example");
    let client = handshake.into_iter().fold(client, |client, (name, value)| client.header(name, value));
    let location = Some("https://shop.example/ws".to_owned());
    assert_eq!(redirect(&client, Method::GET, "/ws").await, (308, location));
}

#[tokio::test]
async fn every_response_over_tls_has_one_policy() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let backend = Backend::start(version, async |_| {
            let response = Response::builder().header("strict-transport-security", "max-age=0");
            response.body(connection::full("hello")).expect("a response")
        });
        let backend = backend.await;
        let routes =
            "[[route]]\npath = \"/private\"\n[https]\nhsts_max_age = \"365d\"\nhsts_include_subdomains = true\n";
        let text = without_hosts(&Gateway::public_config(backend.address, backend.protocol()));
        let gateway = Gateway::from_text(format!("{text}{routes}"));
        for (client, number) in gateway.clients().into_iter().zip(0..) {
            let requests = [(Method::GET, "/"), (Method::GET, "/private"), (Method::POST, "/user/refresh")];
            for (method, path) in requests.into_iter().chain([(Method::GET, "/.well-known/jwks.json")]) {
                let response = client.send(method, path, "".into()).await;
                let found: Vec<_> = response.headers.get_all("strict-transport-security").iter().collect();
                let expected: &[&str] = match (number >= 2, path) {
                    (true, _) => &["max-age=31536000; includeSubDomains"],
                    (false, "/") => &["max-age=0"],
                    (false, _) => &[],
                };
                assert_eq!(found, expected, "{path}");
            }
        }
    }
}
