//! `Client-Cert` (RFC 9440): the certificate of a client, from a proxy that has ended its TLS.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bearward::types::clock::{Clock, SystemClock};

use super::headers::thumbprint;
use crate::support::certificates::{Authority, set_validity};
use crate::support::client::send_raw;
use crate::support::mutual_tls::MutualClient;
use crate::support::{Client, Gateway, Upstream};

const ROUTES: &str = r#"
[identity]
certificate_subject = "X-Cert-Subject"
certificate_sha256 = "X-Cert-Hash"
[[route]]
path = "/"
public = true
[[route]]
path = "/alone/"
public = true
client_certificate = "required"
"#;

fn gateway(upstream: &Upstream, trusted: &str, says: &str) -> Gateway {
    let more = format!("[forwarding]\ntrusted = [\"{trusted}\"]\nclient_certificate = \"{says}\"\n{ROUTES}");
    Gateway::with_config(upstream, &more)
}

fn field(certificate: &[u8]) -> String {
    format!(":{}:", STANDARD.encode(certificate))
}

const VERIFIED: &str = "verified";
const PROXY: &str = "127.0.0.1";
const ELSEWHERE: &str = "192.0.2.1";

#[tokio::test]
async fn a_trusted_proxy_names_the_certificate_of_its_client() {
    let upstream = Upstream::start();
    let shown = Authority::new().client(|_| {});
    let value = field(&shown.certificate());
    let gateway = gateway(&upstream, PROXY, VERIFIED);
    for client in gateway.clients() {
        assert_eq!(client.header("client-cert", &value).get("/alone/").await.status, 200);
        let seen = upstream.seen().pop().expect("a request");
        assert_eq!(seen.header("x-cert-subject"), Some("CN=orders,O=Example"));
        assert_eq!(seen.header("x-cert-hash"), Some(&*thumbprint(&shown.certificate())));
        assert!(seen.headers.keys().all(|name| !name.as_str().starts_with("client")), "{seen:?}");
    }
    gateway.client().get("/alone/").await.assert_rejected(403, "forbidden");
    gateway.advance(Duration::from_secs(20 * 366 * 24 * 60 * 60));
    let short = Authority::new().client(|params| set_validity(params, 0, SystemClock.now().as_secs() + 60));
    let expired = gateway.client().header("client-cert", &field(&short.certificate())).get("/alone/").await;
    expired.assert_rejected(403, "forbidden");
}

#[tokio::test]
async fn the_header_of_others_is_removed() {
    let upstream = Upstream::start();
    let value = field(&Authority::new().client(|_| {}).certificate());
    let gateway = gateway(&upstream, ELSEWHERE, VERIFIED);
    for name in ["client-cert", "client_cert", "client.cert", "client-cert-chain", "x-client-cert"] {
        for client in gateway.clients() {
            assert_eq!(client.clone().header(name, &value).get("/").await.status, 200, "{name}");
            let seen = upstream.seen().pop().expect("a request");
            assert!(seen.headers.keys().all(|name| !name.as_str().contains("cert")), "{seen:?}");
            client.header(name, &value).get("/alone/").await.assert_rejected(403, "forbidden");
        }
    }
    // In trailers, and named in Connection.
    let hidden = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close, Client-Cert\r\nClient-Cert: {value}\r\n\
         Transfer-Encoding: chunked\r\nTrailer: Client-Cert\r\n\r\n1\r\na\r\n0\r\nClient-Cert: {value}\r\n\r\n"
    );
    assert!(send_raw(gateway.address(), hidden.as_bytes()).await.starts_with("HTTP/1.1 200 "));
    let seen = upstream.seen().pop().expect("a request");
    assert!(!seen.headers.contains_key("client-cert"), "{seen:?}");
    assert!(seen.trailers.is_none_or(|trailers| !trailers.contains_key("client-cert")));
}

#[tokio::test]
async fn the_header_is_one_byte_sequence() {
    let upstream = Upstream::start();
    let certificate = Authority::new().client(|_| {}).certificate();
    let value = field(&certificate);
    let base64 = STANDARD.encode(&certificate);
    let pem = "-----BEGIN%20CERTIFICATE-----%0A";
    let gateway = gateway(&upstream, PROXY, VERIFIED);
    for (what, fields) in [
        ("two", vec![value.clone(), value.clone()]),
        ("a list", vec![format!("{value}, {value}")]),
        ("a parameter", vec![format!("{value};a=1")]),
        ("no colons", vec![base64.clone()]),
        ("PEM", vec![pem.to_owned()]),
        ("empty", vec![String::new()]),
        ("no certificate", vec![":AQID:".to_owned()]),
        ("cut off", vec![field(&certificate[..certificate.len() - 1])]),
        ("too long", vec![field(&[certificate.to_vec(), vec![0; 1]].concat())]),
    ] {
        let mut client = gateway.client();
        for field in &fields {
            client = client.header("client-cert", field);
        }
        let response = client.get("/").await;
        assert_eq!((response.status.as_u16(), &*response.error()), (400, "invalid_request"), "{what}");
    }
    let detail = "there are two of them";
    gateway.log_line(|line| line["reason"] == "bad_client_cert" && line["detail"] == detail).await;
    assert!(upstream.seen().is_empty());
}

/// A proxy that does not verify chains, and one of which the configuration says nothing.
#[tokio::test]
async fn a_certificate_counts_for_what_the_proxy_has_verified() {
    let upstream = Upstream::start();
    let certificate = Authority::new().client(|_| {}).certificate();
    let value = field(&certificate);
    for (says, hash) in [("any", Some(thumbprint(&certificate))), ("off", None)] {
        let routes = ROUTES.split("[[route]]\npath = \"/alone/\"").next().expect("a part");
        let more = format!("[forwarding]\ntrusted = [\"{PROXY}\"]\nclient_certificate = \"{says}\"\n{routes}");
        let gateway = Gateway::with_config(&upstream, &more);
        assert_eq!(gateway.client().header("client-cert", &value).get("/").await.status, 200);
        let seen = upstream.seen().pop().expect("a request");
        assert_eq!(seen.header("x-cert-subject"), None);
        assert_eq!(seen.header("x-cert-hash"), hash.as_deref());
        assert_eq!(seen.header("client-cert"), None);
    }
}

/// The certificate of the connection is that of the proxy.
#[tokio::test]
async fn a_proxy_with_a_certificate_does_not_lend_it_to_its_clients() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let more = format!("[forwarding]\ntrusted = [\"{PROXY}\"]\nclient_certificate = \"verified\"\n{ROUTES}");
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"required\"", &more);
    let proxy = MutualClient::new(&gateway, Some(authority.client(|_| {}).pair(&[])));
    assert_eq!(proxy.status("/alone/", "").await, 403);
    let shown = field(&Authority::new().client(|_| {}).certificate());
    assert_eq!(proxy.status("/alone/", &format!("Client-Cert: {shown}\r\n")).await, 200);
}

/// A proxy that may ask, and that the operator does not trust in more, passes on what its client wrote.
#[tokio::test]
async fn a_proxy_that_may_only_ask_names_no_certificate() {
    let upstream = Upstream::start();
    let value = field(&Authority::new().client(|_| {}).certificate());
    for (trusted, subject, alone) in [(PROXY, "CN=orders,O=Example", 200), (ELSEWHERE, "", 403)] {
        let asks =
            format!("[forward_auth]\npath = \"/auth\"\ndialect = \"x-forwarded\"\nfrom = [\"{PROXY}\"]\n{ROUTES}");
        let forwarding = format!("[forwarding]\ntrusted = [\"{trusted}\"]\nclient_certificate = \"{VERIFIED}\"\n");
        let gateway = Gateway::with_config(&upstream, &format!("{forwarding}{asks}"));
        let asking = |uri: &str| {
            let fields = [("for", "198.51.100.7"), ("method", "GET"), ("proto", "https"), ("host", "api.example")];
            let client = gateway.client().proxy().header("client-cert", &value).header("x-forwarded-uri", uri);
            fields.iter().fold(client, |client, (name, value)| client.header(&format!("x-forwarded-{name}"), value))
        };
        let response = asking("/").get("/auth").await;
        assert_eq!((response.status.as_u16(), response.header("x-cert-subject")), (200, Some(subject)), "{trusted}");
        assert_eq!(asking("/alone/").get("/auth").await.status, alone, "{trusted}");
        // The proxy would pass it to the backend beside ours.
        for name in ["x-cert-subject", "X_Cert_Subject", "x.cert.hash"] {
            let forged = asking("/").header(name, "CN=root").get("/auth").await;
            assert_eq!(forged.status, 400, "{name}");
        }
    }
}

/// Another proxy asks about its client: each header has one value, and is empty without a certificate.
#[tokio::test]
async fn a_proxy_that_asks_gets_each_header_once() {
    let upstream = Upstream::start();
    let shown = Authority::new().client(|_| {});
    let asks = format!("[forward_auth]\npath = \"/auth\"\ndialect = \"x-forwarded\"\nfrom = [\"{PROXY}\"]\n{ROUTES}");
    let more = format!("[forwarding]\ntrusted = [\"{PROXY}\"]\nclient_certificate = \"{VERIFIED}\"\n{asks}");
    let gateway = Gateway::with_config(&upstream, &more);
    let asking = gateway
        .client()
        .proxy()
        .header("x-forwarded-for", "198.51.100.7")
        .header("x-forwarded-method", "GET")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "api.example")
        .header("x-forwarded-uri", "/");
    let subject = async |client: Client| {
        let response = client.get("/auth").await;
        assert_eq!(response.status, 200, "{}", response.text());
        response
            .headers
            .get_all("x-cert-subject")
            .iter()
            .map(|value| value.to_str().expect("text").to_owned())
            .collect()
    };
    let with: Vec<String> = subject(asking.clone().header("client-cert", &field(&shown.certificate()))).await;
    assert_eq!(with, ["CN=orders,O=Example"]);
    let without: Vec<String> = subject(asking).await;
    assert_eq!(without, [""]);
}
