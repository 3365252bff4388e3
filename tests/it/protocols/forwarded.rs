//! The client behind trusted proxies, and the server name of the TLS handshake.

use std::sync::Arc;

use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::{Client, Gateway, Upstream};

/// The clients of these tests connect from 127.0.0.1.
const TRUSTED: &str = "[forwarding]\ntrusted = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n";
const PUBLIC: &str = "[[route]]\npath = \"/\"\npublic = true\n";

/// Headers of a request, and the forwarded X-Forwarded-For, Forwarded and X-Forwarded-Proto.
type Row = (&'static [(&'static str, &'static str)], &'static str, &'static str, &'static str);

async fn check(gateway: &Gateway, upstream: &Upstream, rows: &[Row]) {
    for (row, (headers, client, forwarded, proto)) in rows.iter().enumerate() {
        let request = headers.iter().fold(gateway.client(), |request, (name, value)| request.header(name, value));
        assert_eq!(request.get(&format!("/{row}")).await.status, 200);
        let seen = upstream.seen().pop().expect("it arrived");
        let forwarded_headers = ["x-forwarded-for", "forwarded", "x-forwarded-proto"].map(|name| seen.header(name));
        assert_eq!(forwarded_headers, [Some(*client), Some(*forwarded), Some(*proto)], "{headers:?}");
        let families = ["x-forwarded-for", "x-forwarded-proto", "forwarded"];
        assert!(families.iter().all(|name| seen.headers.get_all(*name).iter().count() == 1), "{seen:?}");
        assert_eq!(seen.header("x-forwarded-host"), Some("gateway.test"));
    }
    let lines = gateway.log_lines(rows.len()).await;
    for (row, (headers, client, ..)) in rows.iter().enumerate() {
        let line = lines.iter().find(|line| line["path"] == format!("/{row}")).expect("a line for each request");
        assert_eq!(line["client"], *client, "{headers:?}");
    }
}

#[tokio::test]
async fn forwarding_headers_are_ignored_by_default() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, PUBLIC);
    let forwarded_headers = ("127.0.0.1", "for=127.0.0.1;proto=http", "http");
    let rows = [
        &[("x-forwarded-for", "198.51.100.1")][..],
        &[("x-forwarded-proto", "https")],
        &[("forwarded", "for=198.51.100.1;proto=https")],
        &[("x_forwarded_for", "198.51.100.1")],
    ];
    check(
        &gateway,
        &upstream,
        &rows.map(|headers| (headers, forwarded_headers.0, forwarded_headers.1, forwarded_headers.2)),
    )
    .await;
}

#[tokio::test]
async fn forwarding_headers_of_trusted_proxies_are_accepted() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{TRUSTED}{PUBLIC}"));
    check(
        &gateway,
        &upstream,
        &[
            (&[], "127.0.0.1", "for=127.0.0.1;proto=http", "http"),
            (&[("x-forwarded-for", "198.51.100.1")], "198.51.100.1", "for=198.51.100.1;proto=http", "http"),
            (
                &[("x-forwarded-for", "203.0.113.9, 198.51.100.1, 10.1.1.1"), ("x-forwarded-proto", "https")],
                "198.51.100.1",
                "for=198.51.100.1;proto=https",
                "https",
            ),
            (
                &[("x-forwarded-for", "203.0.113.9"), ("x-forwarded-for", "2001:db8::1")],
                "2001:db8::1",
                "for=\"[2001:db8::1]\";proto=http",
                "http",
            ),
            // Only the nearest proxy's value counts, because the client may have sent the others.
            (&[("x-forwarded-proto", "http, https")], "127.0.0.1", "for=127.0.0.1;proto=https", "https"),
            // Traefik, for a WebSocket.
            (&[("x-forwarded-proto", "wss")], "127.0.0.1", "for=127.0.0.1;proto=https", "https"),
            (&[("x-forwarded-proto", "https, ws")], "127.0.0.1", "for=127.0.0.1;proto=http", "http"),
            (&[("x-forwarded-proto", "gopher")], "127.0.0.1", "for=127.0.0.1;proto=http", "http"),
            (&[("x-forwarded-for", "unknown")], "127.0.0.1", "for=127.0.0.1;proto=http", "http"),
            // Other spellings are ignored.
            (&[("x_forwarded_for", "198.51.100.1")], "127.0.0.1", "for=127.0.0.1;proto=http", "http"),
            (
                &[("connection", "x-forwarded-for"), ("x-forwarded-for", "198.51.100.1")],
                "198.51.100.1",
                "for=198.51.100.1;proto=http",
                "http",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn one_bad_client_behind_a_proxy_does_not_block_the_others() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("{TRUSTED}[limits]\nbad_signatures = 1\n"));
    let pair = gateway.issue("alice", "").await;
    let mut statuses = Vec::new();
    let (rest, end) = pair.access.split_at(pair.access.len() - 8);
    for number in 0..12 {
        // Another token with an invalid signature each time.
        let forged = format!("{rest}{number:04}{}", &end[4..]);
        let client = gateway.client().header("x-forwarded-for", "198.51.100.1").bearer(&forged);
        statuses.push(client.get("/").await.status.as_u16());
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    let other = gateway.client().header("x-forwarded-for", "198.51.100.2").bearer(&pair.access);
    assert_eq!(other.get("/").await.status, 200);
}

#[tokio::test]
async fn a_cookie_of_an_https_page_behind_a_balancer_is_accepted() {
    let upstream = Upstream::start();
    let route = "[[route]]\npath = \"/\"\ntoken_from = [\"cookie:session\"]\n";
    let gateway = Gateway::with_config(&upstream, &format!("{TRUSTED}{route}"));
    let cookie = format!("session={}", gateway.issue("alice", "").await.access);
    for (proto, origin, status) in [
        ("https", "https://gateway.test", 200),
        ("https", "http://gateway.test", 403),
        ("http", "http://gateway.test", 200),
    ] {
        let client = gateway.client().header("cookie", &cookie).header("x-forwarded-proto", proto);
        let answer = client.header("origin", origin).send(http::Method::POST, "/", Default::default()).await;
        assert_eq!(answer.status, status, "{proto} {origin}");
    }
}

/// A gateway with a certificate for `a.example` and `www.a.example`, and one for `b.example` and `*.c.example`.
fn with_certificates(upstream: &Upstream, more: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    for (name, names) in [("a", ["a.example", "www.a.example"]), ("b", ["b.example", "*.c.example"])] {
        let made = rcgen::generate_simple_self_signed(names.map(str::to_owned)).expect("a certificate");
        let write = |file: String, text: String| {
            bearward::types::secret::write_private(&folder.path().join(file), text.as_bytes()).expect("written");
        };
        write(format!("{name}.pem"), made.cert.pem());
        write(format!("{name}.key"), made.signing_key.serialize_pem());
    }
    let both = r#"[{ certificate = "a.pem", key = "a.key" }, { certificate = "b.pem", key = "b.key" }]"#;
    let text = Gateway::config_text(&upstream.address.to_string(), more).replace("\"self-signed\"", both);
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

/// Returns the status of a request for `host` on a connection with the server name `name`.
async fn status_for(gateway: &Gateway, certificate: &str, name: &str, host: &str) -> u16 {
    let mut status = 0;
    for client in [Client::http1(gateway.tls_address()), Client::http2(gateway.tls_address())] {
        let client = client.over_tls(&gateway.path().join(certificate)).server_name(name).host(host);
        let answer = client.get("/").await;
        assert!(status == 0 || status == answer.status.as_u16(), "both protocols agree: {answer:?}");
        status = answer.status.as_u16();
        if status == 421 {
            answer.assert_rejected(421, "invalid_request");
        }
    }
    status
}

#[tokio::test]
async fn a_connection_only_serves_hosts_of_its_certificate() {
    let upstream = Upstream::start();
    let gateway = with_certificates(&upstream, PUBLIC);
    for (certificate, name, host, status) in [
        ("a.pem", "a.example", "a.example", 200),
        ("a.pem", "a.example", "A.Example:8443", 200),
        ("a.pem", "a.example", "a.example.", 200),
        ("a.pem", "a.example", "www.a.example", 200),
        ("b.pem", "b.example", "x.c.example", 200),
        // Other names get the first certificate.
        ("a.pem", "a.example", "other.example", 200),
        ("a.pem", "a.example", "b.example", 421),
        ("b.pem", "b.example", "a.example", 421),
        ("b.pem", "b.example", "other.example", 421),
        ("a.pem", "a.example", "y.c.example", 421),
        ("a.pem", "a.example", "b.example:443", 421),
    ] {
        assert_eq!(status_for(&gateway, certificate, name, host).await, status, "{name} {host}");
    }
    let line = gateway.log_lines(22).await.into_iter().find(|line| line["status"] == 421).expect("a line");
    assert_eq!(line["reason"], "misdirected");
}

#[tokio::test]
async fn a_connection_only_serves_routes_of_its_server_name() {
    let upstream = Upstream::start();
    let host = |host: &str| format!("[[route]]\npath = \"/\"\nhost = \"{host}\"\npublic = true\n");
    let more = format!("{}{}{PUBLIC}", host("www.a.example"), host("x.c.example"));
    let gateway = with_certificates(&upstream, &more);
    for (certificate, name, host, status) in [
        ("a.pem", "a.example", "a.example", 200),
        ("a.pem", "www.a.example", "www.a.example", 200),
        ("a.pem", "a.example", "www.a.example", 421),
        ("a.pem", "www.a.example", "a.example", 421),
        ("b.pem", "x.c.example", "x.c.example", 200),
        ("b.pem", "y.c.example", "z.c.example", 200),
        ("b.pem", "y.c.example", "x.c.example", 421),
        ("b.pem", "x.c.example", "y.c.example", 421),
    ] {
        assert_eq!(status_for(&gateway, certificate, name, host).await, status, "{name} {host}");
    }
    // This also holds for the gateway's own paths, but not for cleartext, which has no server name.
    let client = Client::http1(gateway.tls_address()).over_tls(&gateway.path().join("a.pem"));
    let client = client.server_name("a.example").host("www.a.example");
    client.get("/.well-known/jwks.json").await.assert_rejected(421, "invalid_request");
    assert_eq!(gateway.client().host("x.c.example").get("/").await.status, 200);
}

#[tokio::test]
async fn without_a_server_name_or_behind_a_proxy_the_host_decides() {
    let upstream = Upstream::start();
    let host = "[[route]]\npath = \"/\"\nhost = \"a.example\"\npublic = true\n";
    let gateway = Gateway::with_config(&upstream, host);
    let client = Client::http1(gateway.tls_address()).over_tls(&gateway.certificate()).host("a.example");
    client.get("/").await.assert_rejected(421, "invalid_request");
    assert_eq!(client.server_name("127.0.0.1").get("/").await.status, 200, "an address is no server name");
    let gateway = Gateway::with_config(&upstream, &format!("{TRUSTED}{host}"));
    let client = Client::http1(gateway.tls_address()).over_tls(&gateway.certificate()).host("a.example");
    assert_eq!(client.get("/").await.status, 200);
}
