//! The host of a proof is a name of this gateway. The client writes `Host`: compared with it alone, a server that gets
//! a proof for itself could use it here.

use std::path::Path;
use std::sync::Arc;

use http::Method;
use serde_json::json;
use tempfile::TempDir;

use super::{HOST, Stage, presenting, reason_for};
use crate::support::clock::ManualClock;
use crate::support::prover::Prover;
use crate::support::{Client, Gateway, TokenPair, Upstream};

/// Hosts that no key names: of another server, of this machine, of the audience, and of an issuer of tokens.
const OTHERS: [&str; 8] = [
    "other.example",
    "gateway.example.evil",
    "evilgateway.example",
    "localhost",
    "127.0.0.1",
    "[::1]:8443",
    "api.example",
    "login.example",
];

/// Sends a request with a proof for the URL that its own `Host` makes.
async fn get(stage: &Stage, client: &Client, scheme: &str, host: &str) -> u16 {
    let token = stage.token();
    let proof = stage.prover.proof("GET", &format!("{scheme}://{host}/orders"), &token, stage.now());
    presenting(client.clone().host(host), &token, &proof).get("/orders").await.status.as_u16()
}

#[tokio::test]
async fn a_proof_for_another_server_is_rejected() {
    let stage = Stage::new("");
    for (client, scheme) in stage.gateway.clients().iter().zip(["http", "http", "https", "https"]) {
        let of_certificate = ["localhost", "127.0.0.1", "[::1]:8443"];
        for host in OTHERS.iter().filter(|host| scheme == "http" || !of_certificate.contains(host)) {
            assert_eq!(get(&stage, client, scheme, host).await, 401, "{scheme} {host}");
        }
        assert_eq!(get(&stage, client, scheme, HOST).await, 200, "{scheme}");
    }
    let line = stage.gateway.log_line(|line| line["reason"] == "proof_request").await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("https.hosts")), "{line}");
    assert_eq!(stage.upstream.seen().len(), 4);
    // A token that is not bound needs no proof, and may come for every host.
    let plain = stage.gateway.client().host("other.example").bearer(&stage.unbound());
    assert_eq!(plain.get("/orders").await.status, 200);
}

/// Each key that names a host of the gateway.
#[tokio::test]
async fn the_configuration_names_the_hosts_of_proofs() {
    let names = "[[route]]\npath = \"/\"\nhost = \"shop.example\"\n[[route]]\npath = \"/\"\n\
         [forwarding]\ntrusted = [\"192.0.2.1\"]\nclient_certificate = \"any\"\n\
         [oauth]\nresource = \"https://mcp.example:8443/mcp\"\nmtls_url = \"https://mtls.example\"\n";
    let mut stage = Stage::new(names);
    stage.gateway = stage.gateway.restart_with(|text| {
        let hosts = "hosts = [\"gateway.test\"]";
        let tls = "tls = \"self-signed\"\n";
        let text = text.replacen(tls, &format!("{tls}public_url = \"https://public.example:8443/v1\"\n"), 1);
        text.replace(hosts, "hosts = [\"gateway.test\", \"192.0.2.7\", \"[2001:db8::7]\"]")
    });
    for client in &stage.gateway.clients()[..2] {
        for host in [
            "gateway.test",
            "GATEWAY.test:8443",
            "gateway.example",
            "gateway.example:8443",
            "shop.example",
            "public.example",
            "mcp.example",
            "mtls.example:8444",
            "192.0.2.7",
            "[2001:db8::7]:8443",
            "[2001:DB8:0::7]",
        ] {
            assert_eq!(get(&stage, client, "http", host).await, 200, "{host}");
        }
        for host in OTHERS {
            assert_eq!(get(&stage, client, "http", host).await, 401, "{host}");
        }
    }
}

/// A certificate for `a.example` and 127.0.0.1, and one for `*.c.example`.
fn write_certificates(folder: &Path) {
    for (file, names) in [("a", vec!["a.example", "127.0.0.1"]), ("c", vec!["*.c.example"])] {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let write = |name: String, text: String| {
            bearward::types::secret::write_private(&folder.join(name), text.as_bytes()).expect("written");
        };
        write(format!("{file}.pem"), made.cert.pem());
        write(format!("{file}.key"), made.signing_key.serialize_pem());
    }
}

#[tokio::test]
async fn the_certificate_of_a_listener_names_the_hosts_of_its_proofs() {
    let mut stage = Stage::new("");
    write_certificates(stage.gateway.path());
    let both = r#"[{ certificate = "a.pem", key = "a.key" }, { certificate = "c.pem", key = "c.key" }]"#;
    stage.gateway = stage.gateway.restart_with(|text| text.replace("\"self-signed\"", both));
    for (version, name, host, file, expected) in [
        (1, "a.example", "a.example", "a", 200),
        (2, "a.example", "A.example:8443", "a", 200),
        (1, "127.0.0.1", "127.0.0.1", "a", 200),
        (2, "b.c.example", "b.c.example", "c", 200),
        (1, "a.example", "other.example", "a", 401),
        (2, "a.example", "other.example", "a", 401),
        (1, "127.0.0.1", "127.0.0.2", "a", 401),
    ] {
        let address = stage.gateway.tls_address();
        let client = if version == 2 { Client::http2(address) } else { Client::http1(address) };
        let client = client.over_tls(&stage.gateway.path().join(format!("{file}.pem"))).server_name(name);
        assert_eq!(get(&stage, &client, "https", host).await, expected, "HTTP/{version} {host}");
        // That of one listener says nothing about another one.
        assert_eq!(get(&stage, &stage.gateway.client(), "http", host).await, 401, "{host}");
    }
}

/// Where tokens are granted, a proof is good for every key: also for one that a stranger has made for another server.
#[tokio::test]
async fn no_token_is_granted_for_a_proof_of_another_server() {
    let upstream = Upstream::start();
    let more =
        "[oauth]\ntoken_endpoint = \"/oauth/token\"\n[[route]]\npath = \"/login\"\nlogin = true\npublic = true\n";
    let (gateway, prover) = (Gateway::with_config(&upstream, more), Prover::new());
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let pair = TokenPair::from_json(&issued.json());
    let proof = |host: &str, path: &str, token: &str| {
        prover.proof("POST", &format!("http://{host}{path}"), token, gateway.now_secs())
    };
    let form = format!("grant_type=refresh_token&refresh_token={}", pair.refresh);
    for host in ["other.example", "localhost"] {
        let client = || gateway.client().host(host);
        let by_form = client().header("content-type", "application/x-www-form-urlencoded");
        let by_form = by_form.header("dpop", &proof(host, "/oauth/token", ""));
        let refused = by_form.send(Method::POST, "/oauth/token", form.clone().into()).await;
        refused.assert_rejected(400, "invalid_dpop_proof");
        let beside = presenting(client(), &pair.access, &proof(host, "/user/refresh", &pair.access));
        let refused = beside.post("/user/refresh", &json!({ "refreshToken": pair.refresh })).await;
        refused.assert_rejected(400, "invalid_dpop_proof");
        let login = client().header("dpop", &proof(host, "/login", ""));
        login.post("/login", &json!({})).await.assert_rejected(400, "invalid_dpop_proof");
    }
    assert!(upstream.seen().is_empty());
    assert_eq!(reason_for(&gateway, "/oauth/token").await, "proof_rejected");
    // Nothing has changed: the refresh token is still good.
    let beside = presenting(gateway.client(), &pair.access, &proof(HOST, "/user/refresh", &pair.access));
    assert_eq!(beside.post("/user/refresh", &json!({ "refreshToken": pair.refresh })).await.status, 200);
}

/// A rejected proof is not used up.
#[tokio::test]
async fn a_reload_adds_a_host() {
    let stage = Stage::new("");
    let token = stage.token();
    let proof = stage.prover.proof("GET", "http://new.example/", &token, stage.now());
    let client = presenting(stage.gateway.client().host("new.example"), &token, &proof);
    client.get("/").await.assert_rejected(401, "invalid_dpop_proof");
    let text = stage.gateway.configuration().replace("[\"gateway.test\"]", "[\"gateway.test\", \"new.example\"]");
    let config = bearward::config::parse(&text, stage.gateway.path(), bearward::config::Probe::None).expect("valid");
    stage.gateway.running().reload(config).expect("it reloads");
    assert_eq!(client.get("/").await.status, 200);
}

/// A question names no listener. The names of every certificate count.
#[tokio::test]
async fn explain_knows_the_hosts_of_proofs() {
    let (upstream, prover) = (Upstream::start(), Prover::new());
    let folder = Arc::new(TempDir::new().expect("a folder"));
    write_certificates(folder.path());
    let files = "[{ certificate = \"a.pem\", key = \"a.key\" }]";
    let text = Gateway::config_text(&upstream.address.to_string(), "").replace("\"self-signed\"", files);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let access = TokenPair::from_json(&issued.json()).access;
    for (host, expected) in [
        (HOST, ["allowed", ""]),
        ("a.example", ["allowed", ""]),
        ("other.example", ["rejected", "proof_request"]),
        ("b.c.example", ["rejected", "proof_request"]),
    ] {
        let proof = prover.proof("GET", &format!("https://{host}/"), &access, gateway.now_secs());
        let headers = json!({ "Authorization": format!("DPoP {access}"), "DPoP": proof });
        let question = json!({ "path": "/", "host": host, "headers": headers });
        let found = gateway.admin_client().post("/admin/v1/explain", &question).await.json();
        let found = ["decision", "reason"].map(|member| found[member].as_str().unwrap_or_default().to_owned());
        assert_eq!(found, expected, "{host}");
    }
}
