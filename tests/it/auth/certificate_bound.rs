//! Certificate-bound tokens (RFC 8705): a token with `cnf.x5t#S256` is good only beside its certificate.

use bearward::tokens::jwt::Algorithm;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::support::certificates::Authority;
use crate::support::mutual_tls::MutualClient;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, Upstream};

/// A gateway that accepts the tokens of another issuer, and any certificate of a client.
fn gateway(upstream: &Upstream, mint: &Mint, cnf: &str, routes: &str) -> Gateway {
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a temporary folder"));
    std::fs::write(folder.path().join("login.json"), mint.jwks()).expect("written");
    let more = format!(
        "[[issuer]]\nissuer = \"{EXTERNAL_ISSUER}\"\naudience = [\"https://api.example\"]\n\
         jwks_file = \"login.json\"\nalgorithms = [\"ES256\"]\ncnf = \"{cnf}\"\n{routes}"
    );
    Gateway::with_clients_in(folder, upstream, "client_certificate = \"any\"", &more)
}

pub(super) fn thumbprint(certificate: &[u8]) -> String {
    use base64::Engine;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hash)
}

pub(super) fn authorization(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// A certificate of its own for this key.
pub(super) fn certificate(key: &KeyPair) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateParams::default().self_signed(key).expect("a certificate");
    (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
}

#[tokio::test]
async fn a_bound_token_is_good_only_beside_its_certificate() {
    let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::ES256));
    let gateway = gateway(&upstream, &mint, "check", "");
    let key = KeyPair::generate().expect("a key");
    let (shown, renewed, other) =
        (certificate(&key), certificate(&key), certificate(&KeyPair::generate().expect("a key")));
    let bound_to = thumbprint(&shown.0[0]);
    let token = mint.with_claims(gateway.now_secs(), json!({ "cnf": { "x5t#S256": bound_to } }));
    let fields = authorization(&token);
    let with = |shown: &(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)| {
        MutualClient::new(&gateway, Some((shown.0.clone(), shown.1.clone_key())))
    };
    // Twice each: the second time, the token is known.
    for (what, client, expected) in [
        ("another certificate, unknown token", with(&other), 401),
        ("its certificate", with(&shown), 200),
        ("another certificate, known token", with(&other), 401),
        ("the same key in a new certificate", with(&renewed), 401),
        ("no certificate", MutualClient::new(&gateway, None), 401),
        ("its certificate again", with(&shown), 200),
    ] {
        for round in 0..2 {
            assert_eq!(client.status("/", &fields).await, expected, "{what}, {round}");
        }
    }
    let rejected = with(&other).get("/", &fields).await.expect("a response");
    assert!(rejected.contains("error=\"invalid_token\""), "{rejected}");
    gateway.client().bearer(&token).get("/").await.assert_rejected(401, "invalid_token");
    let detail = "the client has shown no certificate";
    gateway.log_line(|line| line["reason"] == "certificate_other" && line["detail"] == detail).await;
    // The neighbour: a token that is not bound.
    let unbound = authorization(&mint.valid_token(gateway.now_secs()));
    for client in [with(&other), MutualClient::new(&gateway, None)] {
        assert_eq!(client.status("/", &unbound).await, 200);
    }
    assert_eq!(upstream.seen().len(), 6);
}

#[tokio::test]
async fn a_thumbprint_has_one_form() {
    let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::ES256));
    let gateway = gateway(&upstream, &mint, "check", "");
    let shown = Authority::new().client(|_| {});
    let client = MutualClient::new(&gateway, Some(shown.pair(&[])));
    let text = thumbprint(&shown.certificate());
    let hex: String = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &shown.certificate())
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let sha1 = &text[..27];
    for (cnf, expected) in [
        (json!({ "x5t#S256": text }), 200),
        (json!({ "x5t#S256": hex }), 401),
        (json!({ "x5t#S256": sha1 }), 401),
        (json!({ "x5t": sha1 }), 401),
        (json!({ "x5t#S256": format!("{text}=") }), 401),
        (json!({ "x5t#S256": [text] }), 401),
        (json!({ "x5t#S256": null }), 401),
        (json!({ "x5t#S256": text, "jwk": {} }), 401),
        // Both must hold, and there is no proof.
        (json!({ "x5t#S256": text, "jkt": text }), 401),
        (json!({}), 401),
    ] {
        let token = mint.with_claims(gateway.now_secs(), json!({ "cnf": cnf }));
        assert_eq!(client.status("/", &authorization(&token)).await, expected, "{cnf}");
    }
}

/// `route.proof` and `issuer.cnf`
#[tokio::test]
async fn rules_say_which_tokens_need_their_certificate() {
    let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::ES256));
    let routes =
        "[[route]]\npath = \"/off/\"\nproof = \"off\"\n[[route]]\npath = \"/required/\"\nproof = \"required\"\n";
    let shown = Authority::new().client(|_| {});
    for (cnf, path, with, without) in [
        ("check", "/off/", 200, 200),
        ("check", "/required/", 200, 401),
        ("reject", "/off/", 401, 401),
        ("ignore", "/off/", 200, 200),
        ("ignore", "/required/", 401, 401),
    ] {
        let gateway = gateway(&upstream, &mint, cnf, routes);
        let bound = json!({ "cnf": { "x5t#S256": thumbprint(&shown.certificate()) } });
        let fields = authorization(&mint.with_claims(gateway.now_secs(), bound));
        let client = MutualClient::new(&gateway, Some(shown.pair(&[])));
        assert_eq!(client.status(path, &fields).await, with, "{cnf} {path}");
        assert_eq!(MutualClient::new(&gateway, None).status(path, &fields).await, without, "{cnf} {path}");
    }
}

/// The proxy has ended TLS, and names the certificate.
#[tokio::test]
async fn a_trusted_proxy_can_name_the_certificate() {
    use base64::Engine;
    let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::ES256));
    let proxies = "[forwarding]\ntrusted = [\"127.0.0.1\"]\nclient_certificate = \"any\"\n";
    let gateway = gateway(&upstream, &mint, "check", proxies);
    let (shown, other) = (Authority::new().client(|_| {}), Authority::new().client(|_| {}));
    let token =
        mint.with_claims(gateway.now_secs(), json!({ "cnf": { "x5t#S256": thumbprint(&shown.certificate()) } }));
    for (certificate, expected) in [(&shown, 200), (&other, 401)] {
        let value = format!(":{}:", base64::engine::general_purpose::STANDARD.encode(certificate.certificate()));
        for client in gateway.clients() {
            let client = client.bearer(&token).header("client-cert", &value);
            assert_eq!(client.get("/").await.status, expected);
        }
    }
    assert_eq!(gateway.client().bearer(&token).get("/").await.status, 401);
}
