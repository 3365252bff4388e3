//! What backends learn about the certificate of a client.

use rcgen::{DnType, SanType};

use crate::support::certificates::Authority;
use crate::support::mutual_tls::MutualClient;
use crate::support::{Gateway, Upstream};

const IDENTITY: &str = r#"
[identity]
certificate_subject = "X-Cert-Subject"
certificate_dns = "X-Cert-Dns"
certificate_uri = "X-Cert-Uri"
certificate_sha256 = "X-Cert-Hash"
[[route]]
path = "/"
public = true
"#;
const NAMES: [&str; 4] = ["x-cert-subject", "x-cert-dns", "x-cert-uri", "x-cert-hash"];
/// What a client writes to pass for another one.
const FORGED: &str = "X-Cert-Subject: CN=root\r\nx_cert_dns: root.internal\r\nX-Cert-Uri: spiffe://root\r\n\
                      X.Cert.Hash: 0\r\nConnection: close, X-Cert-Subject, X-Cert-Hash\r\n";

fn seen(upstream: &Upstream) -> [Option<String>; 4] {
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
        ];
    });
    let client = MutualClient::new(&gateway, Some(shown.pair(&[])));
    assert_eq!(client.status("/", FORGED).await, 200);
    let hash = thumbprint(&shown.certificate());
    let expected =
        ["CN=Zo%C3%AB\\, \\0d\\0aX-Evil: 1,O=Example", "a.internal,b.internal", "spiffe://example/a%2Cb%25", &hash];
    assert_eq!(seen(&upstream).each_ref().map(|value| value.as_deref()), expected.map(Some));
    // A client without a certificate, and one without TLS.
    assert_eq!(MutualClient::new(&gateway, None).status("/", FORGED).await, 200);
    assert_eq!(seen(&upstream), [const { None }; 4]);
    assert_eq!(gateway.client().header("x-cert-dns", "root.internal").get("/").await.status, 200);
    assert_eq!(seen(&upstream), [const { None }; 4]);
}

/// Its holder could have written any name in it.
#[tokio::test]
async fn an_unverified_certificate_has_only_a_hash() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", IDENTITY);
    let shown = authority.client(|_| {});
    assert_eq!(MutualClient::new(&gateway, Some(shown.pair(&[]))).status("/", FORGED).await, 200);
    assert_eq!(seen(&upstream), [None, None, None, Some(thumbprint(&shown.certificate()))]);
}

pub(super) fn thumbprint(certificate: &[u8]) -> String {
    use base64::Engine;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hash)
}
