//! `client_certificate` and `client_names` of a route.

use rcgen::SanType;
use serde_json::Value;

use crate::support::certificates::{Authority, Signed};
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/alone/"
public = true
client_certificate = "required"
[[route]]
path = "/both/"
client_certificate = "required"
[[route]]
path = "/named/"
public = true
client_certificate = "required"
client_names = ["dns:Orders.internal", "uri:spiffe://example/orders"]
[[route]]
path = "/observed/"
client_certificate = "required"
enforce = false
[[route]]
path = "/open/"
public = true
[[route]]
path = "/"
"#;

fn named(authority: &Authority, names: Vec<SanType>) -> Signed {
    authority.client(|params| params.subject_alt_names = names)
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("text"))
}

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("text"))
}

fn error(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

#[tokio::test]
async fn a_route_needs_a_certificate_with_a_token_or_alone() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", ROUTES);
    let tokens = gateway.issue("alice", "").await;
    let token = format!("Authorization: Bearer {}\r\n", tokens.access);
    let with = MutualClient::new(&gateway, Some(authority.client(|_| {}).pair(&[])));
    let without = MutualClient::new(&gateway, None);
    for (client, path, fields, expected) in [
        (&with, "/alone/", "", 200),
        (&without, "/alone/", "", 403),
        (&without, "/alone/", &token, 403),
        (&with, "/both/", &*token, 200),
        (&with, "/both/", "", 401),
        (&without, "/both/", &token, 403),
        (&without, "/both/", "", 403),
        (&without, "/open/", "", 200),
        (&with, "/", "", 401),
        (&without, "/", &token, 200),
    ] {
        assert_eq!(client.status(path, fields).await, expected, "{path} {}", fields.len());
    }
    let rejected = without.get("/alone/", "").await.expect("a response");
    assert_eq!(error(&rejected)["error"], "forbidden");
    assert_eq!(error(&rejected)["error_description"], "a client certificate is required");
    gateway.log_line(|line| line["reason"] == "certificate_missing" && line["path"] == "/both/").await;
    // A listener in cleartext has no certificates.
    gateway.client().get("/alone/").await.assert_rejected(403, "forbidden");
}

#[tokio::test]
async fn a_route_compares_the_names_of_a_certificate_by_their_types() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", ROUTES);
    for (names, expected) in [
        (vec![dns("orders.internal")], 200),
        (vec![dns("other.internal"), dns("ORDERS.internal")], 200),
        (vec![uri("spiffe://example/orders")], 200),
        (vec![], 403),
        (vec![dns("other.internal")], 403),
        (vec![dns("*.internal")], 403),
        (vec![dns("orders.internal\0.example")], 403),
        (vec![uri("dns:orders.internal")], 403),
        (vec![uri("orders.internal")], 403),
        (vec![uri("spiffe://example/orders/")], 403),
        (vec![SanType::Rfc822Name("orders.internal".try_into().expect("text"))], 403),
    ] {
        let client = MutualClient::new(&gateway, Some(named(&authority, names.clone()).pair(&[])));
        assert_eq!(client.status("/named/", "").await, expected, "{names:?}");
    }
    // The common name is never a name.
    let by_subject =
        authority.client(|params| params.distinguished_name.push(rcgen::DnType::CommonName, "orders.internal"));
    assert_eq!(MutualClient::new(&gateway, Some(by_subject.pair(&[]))).status("/named/", "").await, 403);
    let has_reason = |line: &Value| line["reason"] == "certificate_denied";
    let line = gateway.log_line(has_reason).await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.ends_with("has none of route.client_names")), "{line}");
    assert_eq!(upstream.seen().len(), 3);
}

/// A certificate that only proves a key has the names that its holder wrote.
#[tokio::test]
async fn a_certificate_that_no_authority_has_verified_is_not_enough() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let verifying = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"self-signed\"\n\
                     client_certificate = \"required\"\nclient_ca = \"clients.pem\"\n";
    let more = format!("{ROUTES}{verifying}");
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", &more);
    let client = MutualClient::new(&gateway, Some(named(&authority, vec![dns("orders.internal")]).pair(&[])));
    for (path, expected) in [("/alone/", 403), ("/named/", 403), ("/open/", 200)] {
        assert_eq!(client.status(path, "").await, expected, "{path}");
    }
    let client = client.at(gateway.running().addresses[2]);
    for path in ["/alone/", "/named/", "/open/"] {
        assert_eq!(client.status(path, "").await, 200, "{path}");
    }
    gateway.log_line(|line| line["reason"] == "certificate_denied").await;
}

#[tokio::test]
async fn a_route_that_does_not_enforce_reports_a_missing_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", ROUTES);
    assert_eq!(MutualClient::new(&gateway, None).status("/observed/", "").await, 200);
    assert_eq!(upstream.only_request().header("x-auth-observed"), Some("certificate_missing"));
}
