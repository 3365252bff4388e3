//! Clients that authenticate with the certificate of their connection (RFC 8705 section 2).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bearward::types::clock::{Clock, SystemClock};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::{assert_error, post};
use crate::support::certificates::{Authority, set_validity};
use crate::support::mutual_tls::MutualClient;
use crate::support::tokens::{Mint, claims_of};
use crate::support::{Gateway, TokenPair, Upstream};

const ENDPOINTS: &str = "[oauth]\ntoken_endpoint = \"/oauth/token\"\nrevocation_endpoint = \"/oauth/revoke\"\n\
                         introspection_endpoint = \"/oauth/introspect\"\n";
const GRANT: (&str, &str) = ("grant_type", "client_credentials");

type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A client that authenticates with this name.
fn named(id: &str, name: &str) -> String {
    format!(
        "[[oauth.client]]\nclient_id = \"{id}\"\nclient_auth = \"tls_client_auth\"\ncertificate_name = \"{name}\"\n"
    )
}

/// Its second listener asks for certificates of the authority, and its third for any.
fn gateway(upstream: &Upstream, authority: &Authority, clients: &str) -> Gateway {
    let any = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"self-signed\"\nclient_certificate = \"any\"\n";
    let more = format!("{any}{ENDPOINTS}{clients}");
    Gateway::with_clients(upstream, authority, "client_certificate = \"optional\"", &more)
}

fn alternative(authority: &Authority, names: Vec<SanType>) -> Shown {
    authority.client(|params| params.subject_alt_names = names).pair(&[])
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("text"))
}

fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("text"))
}

fn email(name: &str) -> SanType {
    SanType::Rfc822Name(name.try_into().expect("text"))
}

fn ip(text: &str) -> SanType {
    SanType::IpAddress(text.parse().expect("an address"))
}

fn own(edit: impl FnOnce(&mut CertificateParams), key: &KeyPair) -> Shown {
    let mut params = CertificateParams::default();
    edit(&mut params);
    let certificate = params.self_signed(key).expect("a certificate");
    (vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
}

fn sha256(certificate: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, certificate))
}

async fn status(client: &MutualClient, id: &str) -> u16 {
    client.post_form("/oauth/token", &[GRANT, ("client_id", id)]).await.0
}

#[tokio::test]
async fn a_client_is_the_one_name_of_its_verified_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let clients = [
        named("dns", "dns:ci.internal"),
        named("uri", "uri:spiffe://example/ci"),
        named("ip", "ip:192.0.2.7"),
        named("email", "email:ci@example"),
        named("subject", "subject:cn=orders, o=Example"),
    ];
    let gateway = gateway(&upstream, &authority, &clients.concat());
    let subject = |edit: &dyn Fn(&mut CertificateParams)| authority.client(edit).pair(&[]);
    for (what, shown, accepted) in [
        ("dns", alternative(&authority, vec![dns("CI.internal")]), &["dns", "subject"][..]),
        ("several", alternative(&authority, vec![dns("a.internal"), ip("192.0.2.7")]), &["ip", "subject"]),
        ("uri", alternative(&authority, vec![uri("spiffe://example/ci")]), &["uri", "subject"]),
        ("email", alternative(&authority, vec![email("ci@example")]), &["email", "subject"]),
        ("another type", alternative(&authority, vec![uri("ci.internal"), email("ci.internal")]), &["subject"]),
        ("a wildcard", alternative(&authority, vec![dns("*.internal")]), &["subject"]),
        ("a NUL", alternative(&authority, vec![dns("ci.internal\0.example")]), &["subject"]),
        ("a longer name", alternative(&authority, vec![dns("x.ci.internal")]), &["subject"]),
        ("a name as CN", subject(&|p| p.distinguished_name.push(DnType::CommonName, "ci.internal")), &[]),
        ("more in the subject", subject(&|p| p.distinguished_name.push(DnType::CountryName, "DE")), &[]),
        (
            "the subject within a value",
            subject(&|p| {
                p.distinguished_name = rcgen::DistinguishedName::new();
                p.distinguished_name.push(DnType::CommonName, "orders,O=Example");
            }),
            &[],
        ),
    ] {
        let client = MutualClient::new(&gateway, Some(shown));
        for id in ["dns", "uri", "ip", "email", "subject"] {
            let expected = if accepted.contains(&id) { 200 } else { 401 };
            assert_eq!(status(&client, id).await, expected, "{what} as {id}");
        }
    }
    let rejected = MutualClient::new(&gateway, Some(alternative(&authority, vec![dns("other")])));
    let (_, error) = rejected.post_form("/oauth/token", &[GRANT, ("client_id", "dns")]).await;
    assert_eq!(error["error"], "invalid_client");
    let denied = |line: &Value| line["reason"] == "client_certificate" && has(line, "has not the name dns:ci.internal");
    gateway.log_line(denied).await;
}

fn has(line: &Value, part: &str) -> bool {
    line["detail"].as_str().is_some_and(|detail| detail.contains(part))
}

/// The certificate must be verified, and be that of this very connection.
#[tokio::test]
async fn a_name_that_was_not_verified_proves_nothing() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = gateway(&upstream, &authority, &named("ci", "dns:ci.internal"));
    let good = authority.client(|params| params.subject_alt_names = vec![dns("ci.internal")]);
    let verified = MutualClient::new(&gateway, Some(good.pair(&[])));
    assert_eq!(status(&verified, "ci").await, 200);
    // The listener with `any`: no authority has been asked.
    let anywhere = verified.at(gateway.running().addresses[2]);
    assert_eq!(status(&anywhere, "ci").await, 401);
    gateway.log_line(|line| line["reason"] == "client_certificate" && has(line, "no authority has verified")).await;
    // The right certificate second in the chain (CVE-2023-2422), and none.
    let second = alternative(&authority, vec![dns("other.internal")]);
    let chain = [second.0, vec![good.certificate()]].concat();
    assert_eq!(status(&MutualClient::new(&gateway, Some((chain, second.1))), "ci").await, 401);
    assert_eq!(status(&MutualClient::new(&gateway, None), "ci").await, 401);
    gateway.log_line(|line| has(line, "the client has shown no certificate")).await;
    let cleartext = post(gateway.client(), "/oauth/token", &[GRANT, ("client_id", "ci")]).await;
    assert_error(&cleartext, 401, "invalid_client");
    // What a stranger says about certificates does not count.
    let value = format!(":{}:", STANDARD.encode(good.certificate()));
    let forged = gateway.client().header("client-cert", &value);
    assert_error(&post(forged, "/oauth/token", &[GRANT, ("client_id", "ci")]).await, 401, "invalid_client");
    // A client names itself (section 2).
    assert_eq!(verified.post_form("/oauth/token", &[GRANT]).await.0, 401);
    assert_eq!(status(&verified, "unknown").await, 401);
}

#[tokio::test]
async fn a_client_authenticates_in_one_way() {
    let (authority, upstream, mint) = (Authority::new(), Upstream::start(), super::MachineKey::new());
    let folder = Arc::new(TempDir::new().expect("a folder"));
    std::fs::write(folder.path().join("ci.json"), mint.0.jwks()).expect("written");
    std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let keys = "client_certificate = \"optional\"\nclient_ca = \"clients.pem\"";
    let by_key = "[[oauth.client]]\nclient_id = \"ci\"\njwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\n";
    let clients = format!("{ENDPOINTS}{by_key}{}", named("orders", "dns:ci.internal"));
    let gateway = Gateway::with_clients_in(folder, &upstream, keys, &clients);
    let client = MutualClient::new(&gateway, Some(alternative(&authority, vec![dns("ci.internal")])));
    let now = gateway.now_secs();
    let assertion = mint.assertion(now);
    let of_orders = mint.with_claims(now, json!({ "iss": "orders", "sub": "orders" }));
    let typed = ("client_assertion_type", super::TYPE);
    for (what, more, expected) in [
        ("a certificate", vec![("client_id", "orders")], 200),
        ("and a secret", vec![("client_id", "orders"), ("client_secret", "x")], 400),
        ("and an assertion", vec![("client_id", "orders"), typed, ("client_assertion", &of_orders)], 400),
        ("an assertion instead", vec![typed, ("client_assertion", &of_orders)], 401),
        ("a certificate instead", vec![("client_id", "ci")], 401),
        // The neighbour: this client has a key.
        ("an assertion beside a certificate", vec![typed, ("client_assertion", &assertion)], 200),
    ] {
        let form = [&[GRANT][..], &more].concat();
        assert_eq!(client.post_form("/oauth/token", &form).await.0, expected, "{what}");
    }
    let basic = "Authorization: Basic b3JkZXJzOng=\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let (status, error) = client.post("/oauth/token", basic, "grant_type=client_credentials&client_id=orders").await;
    assert_eq!((status, &error["error"]), (400, &json!("invalid_request")));
}

/// Section 2.2: the certificate itself is registered, and who signed it does not count.
#[tokio::test]
async fn a_self_signed_certificate_is_good_if_it_is_registered() {
    let (upstream, authority, key) = (Upstream::start(), Authority::new(), KeyPair::generate().expect("a key"));
    let now = SystemClock.now().as_secs();
    let as_ca = |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let (in_file, listed, renewed) = (own(|_| {}, &key), own(as_ca, &key), own(|_| {}, &key));
    let expired = own(|params| set_validity(params, now - 9_000, now - 10), &key);
    let signed = authority.client(|_| {});
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let pem =
        |der: &[u8]| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der));
    std::fs::write(folder.path().join("printer.pem"), pem(&in_file.0[0])).expect("written");
    std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let registered = [&listed.0[0], &expired.0[0], &signed.certificate()].map(|der| format!("\"{}\"", sha256(der)));
    let client = format!(
        "[[oauth.client]]\nclient_id = \"printer\"\nclient_auth = \"self_signed_tls_client_auth\"\n\
         certificate_file = \"printer.pem\"\ncertificate_sha256 = [{}]\n",
        registered.join(", ")
    );
    let verifying = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"self-signed\"\n\
                     client_certificate = \"required\"\nclient_ca = \"clients.pem\"\n";
    let more = format!("{verifying}{ENDPOINTS}{client}");
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", &more);
    let verifying = gateway.running().addresses[2];
    for (what, shown, expected, at_verifying) in [
        ("of the file", in_file, Some(200), None),
        ("listed", listed, Some(200), None),
        ("the same key, not registered", renewed, Some(401), None),
        ("another one", own(|_| {}, &KeyPair::generate().expect("a key")), Some(401), None),
        ("expired", expired, None, None),
        ("registered and signed", signed.pair(&[]), Some(200), Some(200)),
        ("signed, not registered", authority.client(|_| {}).pair(&[]), Some(401), Some(401)),
    ] {
        let client = MutualClient::new(&gateway, Some(shown));
        for (client, expected) in [(client.clone(), expected), (client.at(verifying), at_verifying)] {
            let form = "grant_type=client_credentials&client_id=printer";
            let fields = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 47\r\n";
            let response = client.send("POST", "/oauth/token", fields, form).await.ok();
            let found = response.filter(|text| !text.is_empty()).map(|text| text[9..12].parse().expect("a status"));
            assert_eq!(found, expected, "{what}");
        }
    }
    gateway.log_line(|line| line["reason"] == "client_certificate" && has(line, "is not registered")).await;
}

#[tokio::test]
async fn its_tokens_are_bound_to_the_certificate_of_the_call() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let clients = named("ci", "dns:ci.internal") + &named("free", "dns:ci.internal") + "certificate_bound = false\n";
    let gateway = gateway(&upstream, &authority, &clients);
    let signed = || authority.client(|params| params.subject_alt_names = vec![dns("ci.internal")]);
    let (first, renewed) = (signed(), signed());
    let [with_first, with_renewed] =
        [&first, &renewed].map(|signed| MutualClient::new(&gateway, Some(signed.pair(&[]))));
    let (_, granted) = with_first.post_form("/oauth/token", &[GRANT, ("client_id", "ci")]).await;
    // RFC 8705 has no token type of its own.
    assert_eq!(granted["token_type"], "Bearer");
    let access = remembered(&granted["access_token"]);
    assert_eq!(claims_of(&access)["cnf"], json!({ "x5t#S256": sha256(&first.certificate()) }));
    let fields = format!("Authorization: Bearer {access}\r\n");
    assert_eq!(with_first.status("/", &fields).await, 200);
    assert_eq!(with_renewed.status("/", &fields).await, 401);
    assert_eq!(gateway.status_of(&access).await, 401);
    let (_, free) = with_first.post_form("/oauth/token", &[GRANT, ("client_id", "free")]).await;
    let free = remembered(&free["access_token"]);
    assert_eq!(claims_of(&free)["cnf"], Value::Null);
    assert_eq!(gateway.status_of(&free).await, 200);

    // Its sessions are bound to the client, and each access token to the certificate of its refresh (section 4).
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "ci" })).await;
    let first_refresh = TokenPair::from_json(&issued.json()).refresh;
    let mut refresh = first_refresh.clone();
    for (client, signed) in [(&with_first, &first), (&with_renewed, &renewed)] {
        let form = [("grant_type", "refresh_token"), ("client_id", "ci"), ("refresh_token", &refresh)];
        let (status, pair) = client.post_form("/oauth/token", &form).await;
        assert_eq!(status, 200, "{pair}");
        let access = remembered(&pair["access_token"]);
        assert_eq!(claims_of(&access)["cnf"]["x5t#S256"], sha256(&signed.certificate()));
        refresh = remembered(&pair["refresh_token"]);
    }
    // A copy of the client comes with the first one. It authenticates, so it is no thief.
    gateway.advance(Duration::from_secs(3_600));
    let form = [("grant_type", "refresh_token"), ("client_id", "ci"), ("refresh_token", first_refresh.as_str())];
    assert_eq!(MutualClient::new(&gateway, None).post_form("/oauth/token", &form).await.0, 401);
    let (status, pair) = with_renewed.post_form("/oauth/token", &form).await;
    assert_eq!((status, &pair["refresh_token"]), (200, &json!(refresh)), "{pair}");
    let form = [("grant_type", "refresh_token"), ("client_id", "ci"), ("refresh_token", refresh.as_str())];
    assert_eq!(MutualClient::new(&gateway, None).post_form("/oauth/token", &form).await.0, 401);
    let form = [("client_id", "ci"), ("token", refresh.as_str())];
    assert_eq!(MutualClient::new(&gateway, None).post_form("/oauth/revoke", &form).await.0, 401);
    assert_eq!(with_renewed.post_form("/oauth/revoke", &form).await.0, 200);
}

fn remembered(token: &Value) -> String {
    let token = token.as_str().expect("a token").to_owned();
    crate::support::secrets::remember(&token);
    token
}

/// A client with an assertion can be held to its certificate as well.
#[tokio::test]
async fn a_client_with_a_key_gets_tokens_for_its_certificate_alone() {
    let (upstream, key) = (Upstream::start(), super::MachineKey::new());
    let folder = Arc::new(TempDir::new().expect("a folder"));
    std::fs::write(folder.path().join("ci.json"), key.0.jwks()).expect("written");
    let client = "[[oauth.client]]\nclient_id = \"ci\"\njwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\n\
                  certificate_bound = true\n";
    let more = format!("{ENDPOINTS}{client}");
    let gateway = Gateway::with_clients_in(folder, &upstream, "client_certificate = \"any\"", &more);
    let shown = own(|_| {}, &KeyPair::generate().expect("a key"));
    let hash = sha256(&shown.0[0]);
    for (client, expected) in
        [(MutualClient::new(&gateway, Some(shown)), 200), (MutualClient::new(&gateway, None), 400)]
    {
        let assertion = key.assertion(gateway.now_secs());
        let form = [GRANT, ("client_assertion_type", super::TYPE), ("client_assertion", &assertion)];
        let (status, body) = client.post_form("/oauth/token", &form).await;
        assert_eq!(status, expected, "{body}");
        match status {
            200 => assert_eq!(claims_of(&remembered(&body["access_token"]))["cnf"]["x5t#S256"], hash),
            _ => assert_eq!(body["error_description"], "this client gets tokens only with a client certificate"),
        }
    }
}

/// The proxy has ended TLS, and verified the chain.
#[tokio::test]
async fn a_trusted_proxy_can_name_the_certificate_of_a_client() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let signed = authority.client(|params| params.subject_alt_names = vec![dns("ci.internal")]);
    let value = format!(":{}:", STANDARD.encode(signed.certificate()));
    for (says, trusted, expected) in
        [("verified", "127.0.0.1", 200), ("any", "127.0.0.1", 401), ("verified", "192.0.2.1", 401)]
    {
        let forwarding = format!("[forwarding]\ntrusted = [\"{trusted}\"]\nclient_certificate = \"{says}\"\n");
        let more = format!("{forwarding}{ENDPOINTS}{}", named("ci", "dns:ci.internal"));
        let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", &more);
        let client = gateway.client().header("client-cert", &value);
        let response = post(client, "/oauth/token", &[GRANT, ("client_id", "ci")]).await;
        assert_eq!(response.status, expected, "{says} {trusted}");
        if expected == 200 {
            let access = remembered(&response.json()["access_token"]);
            assert_eq!(claims_of(&access)["cnf"]["x5t#S256"], sha256(&signed.certificate()));
        }
    }
}

#[tokio::test]
async fn the_metadata_name_the_methods_and_the_other_listener() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let self_signed = format!(
        "[[oauth.client]]\nclient_id = \"printer\"\nclient_auth = \"self_signed_tls_client_auth\"\n\
         certificate_sha256 = [\"{}\"]\n",
        "A".repeat(43)
    );
    let clients = format!("mtls_url = \"https://mtls.example:8444/\"\n{}{self_signed}", named("ci", "dns:ci.internal"));
    let with = gateway(&upstream, &authority, &clients);
    let metadata =
        async |gateway: &Gateway| gateway.client().get("/.well-known/oauth-authorization-server").await.json();
    let found = metadata(&with).await;
    let methods = json!(["none", "self_signed_tls_client_auth", "tls_client_auth"]);
    for endpoint in ["token", "revocation"] {
        assert_eq!(found[format!("{endpoint}_endpoint_auth_methods_supported")], methods);
    }
    assert_eq!(found["token_endpoint_auth_signing_alg_values_supported"], Value::Null);
    assert_eq!(found["tls_client_certificate_bound_access_tokens"], true);
    let aliases = json!({
        "token_endpoint": "https://mtls.example:8444/oauth/token",
        "revocation_endpoint": "https://mtls.example:8444/oauth/revoke",
        "introspection_endpoint": "https://mtls.example:8444/oauth/introspect",
    });
    assert_eq!(found["mtls_endpoint_aliases"], aliases);
    assert_eq!(found["token_endpoint"], "https://gateway.example/oauth/token");
    let without = metadata(&super::super::gateway(&upstream)).await;
    for name in ["tls_client_certificate_bound_access_tokens", "mtls_endpoint_aliases"] {
        assert_eq!(without[name], Value::Null);
    }
}

/// The subject token of another issuer becomes a session of the client.
#[tokio::test]
async fn an_exchanged_token_is_bound_to_the_certificate_of_the_client() {
    use crate::support::tokens::EXTERNAL_ISSUER;
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let mint = Mint::new(bearward::tokens::jwt::Algorithm::ES256);
    let folder = Arc::new(TempDir::new().expect("a folder"));
    std::fs::write(folder.path().join("login.json"), mint.jwks()).expect("written");
    std::fs::write(folder.path().join("clients.pem"), authority.pem()).expect("written");
    let issuer = format!(
        "[[issuer]]\nissuer = \"{EXTERNAL_ISSUER}\"\naudience = [\"https://api.example\"]\n\
         jwks_file = \"login.json\"\nalgorithms = [\"ES256\"]\n"
    );
    let rule = format!(
        "[[oauth.exchange]]\nissuer = \"{EXTERNAL_ISSUER}\"\nclients = [\"ci\"]\n\
         audience = [\"https://api.example\"]\nsubject_prefix = \"x|\"\n"
    );
    let keys = "client_certificate = \"optional\"\nclient_ca = \"clients.pem\"";
    let more = format!("{issuer}{ENDPOINTS}{}{rule}", named("ci", "dns:ci.internal"));
    let gateway = Gateway::with_clients_in(folder, &upstream, keys, &more);
    let signed = authority.client(|params| params.subject_alt_names = vec![dns("ci.internal")]);
    let client = MutualClient::new(&gateway, Some(signed.pair(&[])));
    let exchange = async |subject_token: &str| {
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("client_id", "ci"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token", subject_token),
        ];
        client.post_form("/oauth/token", &form).await
    };
    let hash = json!({ "x5t#S256": sha256(&signed.certificate()) });
    let (status, granted) = exchange(&mint.valid_token(gateway.now_secs())).await;
    assert_eq!(status, 200, "{granted}");
    assert_eq!(claims_of(&remembered(&granted["access_token"]))["cnf"], hash);
    // A bound token is never exchanged: the binding would be lost.
    let bound = mint.with_claims(gateway.now_secs(), json!({ "cnf": hash }));
    let (status, error) = exchange(&bound).await;
    assert_eq!((status, &error["error"]), (400, &json!("invalid_request")));
}
