//! Proofs behind another proxy: the URL of a proof is the one that the client sees.

use http::Method;
use serde_json::{Value, json};

use super::{HOST, Stage, presenting, reason_for};
use crate::support::prover::Prover;
use crate::support::{Client, Gateway, ScriptedBackend, TestResponse, TokenPair, Upstream};

const PUBLIC: &str = "https://api.example:8443/v1";

/// A gateway behind a proxy that removes `/v1` and changes the host.
fn behind(more: &str) -> Stage {
    let mut stage = Stage::new(more);
    let url = format!("address = \"127.0.0.1:0\"\npublic_url = \"{PUBLIC}\"\n");
    stage.gateway = stage.gateway.restart_with(|text| text.replacen("address = \"127.0.0.1:0\"\n", &url, 1));
    stage
}

async fn get(stage: &Stage, htu: &str, sent: impl FnOnce(Client) -> Client) -> TestResponse {
    let token = stage.token();
    let proof = stage.prover.proof("GET", htu, &token, stage.now());
    sent(presenting(stage.gateway.client(), &token, &proof)).get("/orders/7?q=1").await
}

#[tokio::test]
async fn public_url_says_where_clients_reach_a_listener() {
    let stage = behind("");
    for (htu, expected) in [
        ("https://api.example:8443/v1/orders/7", 200),
        ("HTTPS://API.example:8443/%761/orders/7?x", 200),
        ("https://api.example/v1/orders/7", 401),
        ("https://api.example:8443/orders/7", 401),
        ("http://api.example:8443/v1/orders/7", 401),
        ("http://gateway.test/orders/7", 401),
        ("https://api.example:8443/v1/v1/orders/7", 401),
        ("https://api.example:8443/v1//orders/7", 401),
        ("https://api.example:8443/v2/../v1/orders/7", 401),
    ] {
        assert_eq!(get(&stage, htu, |client| client).await.status, expected, "{htu}");
    }
    // Whatever the proxy makes of the host. The other listener has no `public_url`.
    let response = get(&stage, &format!("{PUBLIC}/orders/7"), |client| client.host("10.0.0.7:8080")).await;
    assert_eq!(response.status, 200, "{response:?}");
    let token = stage.token();
    let proof = stage.prover.proof("GET", "https://localhost/orders/7", &token, stage.now());
    let other = presenting(stage.gateway.clients()[2].clone().host("localhost"), &token, &proof);
    assert_eq!(other.get("/orders/7").await.status, 200);
}

/// What a client could write itself changes nothing: a proof that it has got for another host must stay useless here.
#[tokio::test]
async fn no_header_changes_the_host_of_a_proof() {
    for more in ["", "[forwarding]\ntrusted = [\"127.0.0.1\"]\n"] {
        let stage = Stage::new(more);
        for (name, value) in [
            ("x-forwarded-host", "other.example"),
            ("x-forwarded-server", "other.example"),
            ("x-original-host", "other.example"),
            ("x-forwarded-port", "8443"),
            ("x-forwarded-prefix", "/v1"),
            ("x-host", "other.example"),
            ("forwarded", "for=192.0.2.9;host=other.example;proto=https"),
        ] {
            for htu in ["http://other.example/orders/7", "https://other.example/orders/7"] {
                let response = get(&stage, htu, |client| client.header(name, value)).await;
                response.assert_rejected(401, "invalid_dpop_proof");
            }
            let response = get(&stage, &format!("http://{HOST}/orders/7"), |client| client.header(name, value)).await;
            assert_eq!(response.status, 200, "{more} {name}: {response:?}");
        }
        assert_eq!(reason_for(&stage.gateway, "/orders/7").await, "proof_request");
    }
}

/// The endpoints of the gateway are behind the same proxy.
#[tokio::test]
async fn tokens_are_granted_behind_a_proxy() {
    let stage = behind("[oauth]\ntoken_endpoint = \"/oauth/token\"\n");
    let issued = stage.gateway.request_tokens(&json!({ "sub": "alice", "jkt": stage.prover.thumbprint() })).await;
    let pair = TokenPair::from_json(&issued.json());
    let proof = |url: &str, token: &str| stage.prover.proof("POST", url, token, stage.now());
    let by_form = async |url: &str, refresh: &str| {
        let client = stage.gateway.client().header("content-type", "application/x-www-form-urlencoded");
        let body = format!("grant_type=refresh_token&refresh_token={refresh}");
        client.header("dpop", &proof(url, "")).send(Method::POST, "/oauth/token", body.into()).await
    };
    by_form(&format!("http://{HOST}/oauth/token"), &pair.refresh).await.assert_rejected(400, "invalid_dpop_proof");
    let refreshed = by_form(&format!("{PUBLIC}/oauth/token"), &pair.refresh).await;
    assert_eq!(refreshed.json()["token_type"], "DPoP", "{refreshed:?}");
    let [access, refresh] = ["access_token", "refresh_token"].map(|name| {
        let token = refreshed.json();
        token[name].as_str().expect("a token").to_owned()
    });
    let beside = presenting(stage.gateway.client(), &access, &proof(&format!("{PUBLIC}/user/refresh"), &access));
    let refreshed = beside.post("/user/refresh", &json!({ "refreshToken": refresh })).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
}

/// A proxy that asks describes the request of its client. Its own call is another one.
#[tokio::test]
async fn forward_auth_checks_the_proof_of_the_request_that_is_asked_about() {
    for (dialect, public_url) in [("x-forwarded", ""), ("x-original", PUBLIC), ("prefix", "")] {
        let upstream = Upstream::start();
        let more = format!("[forward_auth]\npath = \"/auth\"\ndialect = \"{dialect}\"\nfrom = [\"127.0.0.1\"]\n");
        let text = Gateway::config_text(&upstream.address.to_string(), &more);
        let gateway = Gateway::from_text(text.replace("[\"gateway.test\"]", "[\"api.example\"]"));
        let gateway = gateway.restart_with(|text| match public_url {
            "" => text,
            url => text.replacen("tls = \"off\"\n", &format!("tls = \"off\"\npublic_url = \"{url}\"\n"), 1),
        });
        let prover = Prover::new();
        let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
        let access = TokenPair::from_json(&issued.json()).access;
        let ask_for = async |host: &str, proof: &str| {
            let fields = [("method", "GET"), ("host", host), ("uri", "/orders/7?a=b")];
            let named = presenting(gateway.client(), &access, proof).proxy();
            let named = named.header("x-forwarded-for", "198.51.100.7").header("x-forwarded-proto", "https");
            match dialect {
                "prefix" => named.host(host).get("/auth/orders/7?a=b").await,
                _ => {
                    let add = |to: Client, (name, value)| to.header(&format!("{dialect}-{name}"), value);
                    fields.into_iter().fold(named, add).get("/auth").await
                }
            }
        };
        let ask = async |proof: &str| ask_for("api.example", proof).await;
        let proof = |url: &str| prover.proof("GET", url, &access, gateway.now_secs());
        // The client of the proxy has chosen this host as well.
        let rejected = ask_for("other.example", &proof("https://other.example/orders/7")).await;
        rejected.assert_rejected(401, "invalid_dpop_proof");
        for url in ["http://gateway.test/auth", "http://api.example/orders/7", "https://api.example/auth/orders/7"] {
            let rejected = ask(&proof(url)).await;
            rejected.assert_rejected(401, "invalid_dpop_proof");
            let challenge = rejected.header("www-authenticate").expect("a challenge");
            assert!(challenge.starts_with("DPoP error="), "{dialect} {url}: {challenge}");
        }
        let good = proof("https://api.example/orders/7");
        let allowed = ask(&good).await;
        assert_eq!((allowed.status.as_u16(), allowed.header("x-auth-subject")), (200, Some("alice")), "{dialect}");
        // A backend must not ask for the proof again.
        assert_eq!(allowed.header("authorization"), Some(format!("Bearer {access}").as_str()), "{dialect}");
        ask(&good).await.assert_rejected(401, "invalid_dpop_proof");
    }
}

/// What the gateway repeats by itself is the same request.
#[tokio::test]
async fn a_retry_to_a_backend_needs_no_second_proof() {
    let (closing, upstream) = (ScriptedBackend::start(|_, _| async {}), Upstream::start());
    let servers = format!("{}\", \"http://{}", closing.address, upstream.address);
    let (gateway, prover) = (Gateway::from_text(Gateway::config_text(&servers, "")), Prover::new());
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    let access = TokenPair::from_json(&issued.json()).access;
    for _ in 0..4 {
        let proof = prover.proof("GET", &format!("http://{HOST}/"), &access, gateway.now_secs());
        assert_eq!(presenting(gateway.client(), &access, &proof).get("/").await.status, 200);
        presenting(gateway.client(), &access, &proof).get("/").await.assert_rejected(401, "invalid_dpop_proof");
    }
    assert!(closing.connections() > 0, "some requests were sent twice");
    assert_eq!(upstream.seen().len(), 4);
}

/// `bearward explain` says what the gateway would do, and uses no proof up.
#[tokio::test]
async fn a_proof_can_be_explained() {
    let stage = behind("");
    let token = stage.token();
    let proof = stage.prover.proof("PUT", &format!("{PUBLIC}/orders/7"), &token, stage.now());
    let question = |path: &str| {
        let headers = json!({ "Authorization": format!("DPoP {token}"), "DPoP": proof });
        json!({ "method": "PUT", "path": path, "cleartext": true, "headers": headers })
    };
    let explained = async |question: Value| {
        let answer = stage.gateway.admin_client().post("/admin/v1/explain", &question).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.text().contains(&proof[..40]) && !answer.text().contains(&token), "{answer:?}");
        answer.json()
    };
    for _ in 0..2 {
        let found = explained(question("/orders/7")).await;
        assert_eq!(found["decision"], "allowed", "{found}");
    }
    let other = explained(question("/orders/8")).await;
    assert_eq!(other["reason"], "proof_request", "{other}");
    let client = presenting(stage.gateway.client(), &token, &proof);
    assert_eq!(client.send(Method::PUT, "/orders/7", "".into()).await.status, 200);
}
