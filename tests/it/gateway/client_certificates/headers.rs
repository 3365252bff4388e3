//! Headers about the certificate of a client, for backends.

use rcgen::{DnType, SanType};

use crate::support::certificates::Authority;
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const IDENTITY: &str = r#"
[identity]
certificate_subject = "X-Cert-Subject"
certificate_dns = "X-Cert-Dns"
certificate_uri = "X-Cert-Uri"
certificate_ip = "X-Cert-Ip"
certificate_email = "X-Cert-Email"
certificate_sha256 = "X-Cert-Hash"
[[route]]
path = "/"
public = true
"#;
const NAMES: [&str; 6] = ["x-cert-subject", "x-cert-dns", "x-cert-uri", "x-cert-ip", "x-cert-email", "x-cert-hash"];
/// What a client writes to pass for another one.
const FORGED: &str = "X-Cert-Subject: CN=root\r\nx_cert_dns: root.internal\r\nX-Cert-Uri: spiffe://root\r\n\
                      X.Cert.Hash: 0\r\nX-cert_ip: 127.0.0.1\r\nX-Cert-Email: root@example\r\nConnection: close, X-Cert-Subject, X-Cert-Hash\r\n";

fn seen(upstream: &Upstream) -> [Option<String>; 6] {
    let request = upstream.seen().pop().expect("a request");
    let forged = request.headers.keys().filter(|name| name.as_str().contains("cert")).count();
    let seen = NAMES.map(|name| request.header(name).map(str::to_owned));
    assert_eq!(forged, seen.iter().flatten().count(), "{:?}", request.headers);
    seen
}

#[tokio::test]
async fn a_backend_gets_the_names_of_a_verified_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", IDENTITY);
    let shown = authority.client(|params| {
        params.distinguished_name.push(DnType::CommonName, "Zoë, \r\nX-Evil: 1");
        params.subject_alt_names = vec![
            SanType::DnsName("A.internal".try_into().expect("text")),
            SanType::DnsName("b.internal".try_into().expect("text")),
            SanType::URI("spiffe://example/a,b%".try_into().expect("text")),
            SanType::IpAddress([192, 0, 2, 7].into()),
            SanType::IpAddress("2001:db8::7".parse().expect("an address")),
            SanType::Rfc822Name("a,b@example".try_into().expect("text")),
        ];
    });
    let client = MutualClient::new(&gateway, Some(shown.pair(&[])));
    assert_eq!(client.status("/", FORGED).await, 200);
    let hash = thumbprint(&shown.certificate());
    let expected = [
        "CN=Zo%C3%AB\\, \\0d\\0aX-Evil: 1,O=Example",
        "a.internal,b.internal",
        "spiffe://example/a%2Cb%25",
        "192.0.2.7,2001:db8::7",
        "a%2Cb@example",
        &hash,
    ];
    assert_eq!(seen(&upstream).each_ref().map(|value| value.as_deref()), expected.map(Some));
    // A client without a certificate, and one without TLS.
    assert_eq!(MutualClient::new(&gateway, None).status("/", FORGED).await, 200);
    assert_eq!(seen(&upstream), [const { None }; 6]);
    assert_eq!(gateway.client().header("x-cert-dns", "root.internal").get("/").await.status, 200);
    assert_eq!(seen(&upstream), [const { None }; 6]);
}

/// Some backends merge trailers into the headers.
#[tokio::test]
async fn forged_names_in_trailers_reach_no_backend() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", IDENTITY);
    let client = MutualClient::new(&gateway, Some(authority.client(|_| {}).pair(&[])));
    let fields = "Transfer-Encoding: chunked\r\nTrailer: X-Cert-Subject, X_Cert_Dns, X-Sum\r\n";
    let body = "1\r\na\r\n0\r\nX-Cert-Subject: CN=root\r\nX_Cert_Dns: root.internal\r\nX-Sum: 7\r\n\r\n";
    let response = client.send("POST", "/", fields, body).await.expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let seen = upstream.only_request();
    assert_eq!(seen.header("x-cert-subject"), Some("CN=orders,O=Example"));
    let trailers = seen.trailers.unwrap_or_default();
    assert!(trailers.keys().all(|name| !name.as_str().contains("cert")), "{trailers:?}");
}

/// Its holder could have written any name in it.
#[tokio::test]
async fn an_unverified_certificate_has_only_a_hash() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", IDENTITY);
    let shown = authority.client(|_| {});
    assert_eq!(MutualClient::new(&gateway, Some(shown.pair(&[]))).status("/", FORGED).await, 200);
    assert_eq!(seen(&upstream), [None, None, None, None, None, Some(thumbprint(&shown.certificate()))]);
}

pub(super) fn thumbprint(certificate: &[u8]) -> String {
    use base64::Engine;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hash)
}
