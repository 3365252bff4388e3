//! Reloads: what changes for the next request, what stays, and what requires a restart.

use std::fs;
use std::sync::Arc;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::with_causes;
use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::clock::ManualClock;
use crate::support::mutual_tls::MutualClient;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Client, Gateway, Upstream};

/// Reloads with this text. Returns the sections that require a restart.
fn reload(gateway: &Gateway, text: &str) -> Vec<&'static str> {
    let config = config::parse(text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads").requires_restart
}

#[tokio::test]
async fn routes_and_upstreams_change_for_the_next_request() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let gateway = Gateway::start(&old);
    let pair = gateway.issue("alice", "").await;
    assert_eq!(gateway.client().bearer(&pair.access).get("/a").await.status, 200);
    gateway.client().get("/public").await.assert_rejected(401, "unauthorized");
    let text = Gateway::config_text(&new.address.to_string(), "[[route]]\npath = \"/public\"\npublic = true\n");
    assert!(reload(&gateway, &text).is_empty());
    assert_eq!(gateway.client().get("/public").await.status, 200);
    gateway.client().bearer(&pair.access).get("/a").await.assert_rejected(404, "not_found");
    assert_eq!((old.only_request().uri.as_str(), new.only_request().uri.as_str()), ("/a", "/public"));
}

#[tokio::test]
async fn forwarding_trusted_changes_for_the_next_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let ask = async || {
        let client = gateway.client().bearer(&pair.access).header("x-forwarded-for", "192.0.2.1");
        assert_eq!(client.get("/").await.status, 200);
        upstream.seen().pop().expect("a request").header("x-forwarded-for").map(str::to_owned)
    };
    assert_eq!(ask().await.as_deref(), Some("127.0.0.1"));
    let trusting = format!("{}\n[forwarding]\ntrusted = [\"127.0.0.0/8\"]\n", gateway.configuration());
    assert!(reload(&gateway, &trusting).is_empty());
    assert_eq!(ask().await.as_deref(), Some("192.0.2.1"));
    assert!(reload(&gateway, gateway.configuration()).is_empty());
    assert_eq!(ask().await.as_deref(), Some("127.0.0.1"));
}

#[tokio::test]
async fn login_routes_and_endpoints_reload_and_a_store_does_not() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    let more = "[[route]]\npath = \"/status/\"\nlogout = true\n[[route]]\npath = \"/in\"\npublic = true\nlogin = true\n\
                [oauth]\nrevocation_endpoint = \"/revoke\"\nresource = \"https://api.example\"\n";
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    assert!(reload(&gateway, &text).is_empty());
    client.post("/revoke", &serde_json::json!({})).await.assert_rejected(400, "invalid_request");
    let challenge = gateway.client().get("/status/200").await;
    assert!(challenge.header("www-authenticate").is_some_and(|text| text.contains("resource_metadata=")));
    client.clone().header("x-bearward-subject", "mallory").get("/in").await;
    assert_eq!(upstream.only_request().header("x-bearward-subject"), None);
    assert_eq!(client.get("/status/200").await.status, 200);
    client.get("/status/200").await.assert_rejected(401, "invalid_token");

    let moved = format!("{text}[store]\nsqlite = \"other.db\"\n");
    assert!(reload(&gateway, &moved).contains(&"store"));
    assert!(reload(&gateway, gateway.configuration()).is_empty());
    client.post("/revoke", &serde_json::json!({})).await.assert_rejected(401, "invalid_token");
}

#[tokio::test]
async fn a_request_in_flight_keeps_its_configuration() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let gateway = Gateway::start(&old);
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    let slow = tokio::spawn(async move { client.get("/slow").await });
    while old.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    reload(&gateway, &Gateway::config_text(&new.address.to_string(), "[[route]]\npath = \"/other\"\n"));
    assert_eq!(slow.await.expect("no panic").status, 200);
}

#[tokio::test]
async fn a_removed_key_removes_its_cached_tokens() {
    let upstream = Upstream::start();
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let (first, second) = (Mint::new(Algorithm::ES256), Mint::new(Algorithm::ES256));
    let write = |mint: &Mint| std::fs::write(folder.path().join("login.json"), mint.jwks()).expect("written");
    write(&first);
    let issuer = format!(
        "[[issuer]]\nissuer = \"{EXTERNAL_ISSUER}\"\naudience = [\"https://api.example\"]\njwks_file = \"login.json\"\n\
         algorithms = [\"ES256\"]\n"
    );
    let text = Gateway::config_text(&upstream.address.to_string(), &issuer);
    let gateway = Gateway::in_folder(text.clone(), folder.clone(), Arc::new(ManualClock::new()));
    let own = gateway.issue("alice", "").await.access;
    let (old, new) = (first.valid_token(gateway.now_secs()), second.valid_token(gateway.now_secs()));
    let status = async |token: &str| gateway.client().bearer(token).get("/").await.status.as_u16();
    assert_eq!((status(&old).await, status(&new).await, status(&own).await), (200, 401, 200));
    write(&second);
    assert!(reload(&gateway, &text).is_empty());
    assert_eq!((status(&old).await, status(&new).await, status(&own).await), (401, 200, 200));

    // An invalid file leaves the current settings active.
    std::fs::write(folder.path().join("login.json"), "{").expect("written");
    let parsed = config::parse(&text, gateway.path(), Probe::None);
    assert!(parsed.is_err_and(|faults| faults.to_string().contains("login.json")));
    // 503 as soon as the gateway itself has found that it cannot read the file: the old key could be in it.
    let is_rejected = async |token: &str| [401, 503].contains(&status(token).await);
    assert_eq!((is_rejected(&old).await, status(&new).await, status(&own).await), (true, 200, 200));
    // So does a file that becomes invalid after it was checked.
    write(&second);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    std::fs::write(folder.path().join("login.json"), "{").expect("written");
    assert!(gateway.running().reload(config).is_err_and(|error| with_causes(&error).contains("login.json")));
    assert_eq!(
        gateway.metric("bearward_token_cache_entries ").await,
        2.0,
        "the metric counts the active settings' tokens"
    );
    assert_eq!((is_rejected(&old).await, status(&new).await, status(&own).await), (true, 200, 200));
}

#[tokio::test]
async fn certificates_change_for_the_next_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let get = async |certificate: &std::path::Path| {
        Client::http1(gateway.tls_address()).over_tls(certificate).bearer(&pair.access).get("/").await.status
    };
    assert_eq!(get(&gateway.certificate()).await, 200);
    let tls = gateway.path().join("tls");
    std::fs::remove_dir_all(&tls).expect("it exists");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    reload(&gateway, &text);
    // The gateway made a new certificate, and the client trusts its new file.
    assert_eq!(get(&gateway.certificate()).await, 200);
}

#[tokio::test]
async fn settings_that_require_a_restart_are_listed_and_unchanged() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let text = Gateway::config_text(
        &upstream.address.to_string(),
        "[limits]\nsessions_per_subject = 7\nconnections = 50\n[audit]\nfile = \"off\"\n[trace]\nendpoint = \"https://c/\"\n",
    );
    let text = text
        .replace("workers = 2", "workers = 3")
        .replace("127.0.0.1:0\"\ntls = \"off\"", "127.0.0.1:1\"\ntls = \"off\"");
    assert_eq!(reload(&gateway, &text), ["workers", "listener", "tokens", "audit", "trace", "timeouts and limits"]);
    gateway.client().get("/").await.assert_rejected(401, "unauthorized");
}

/// A program that may reload the gateway, for example to renew certificates, must not reset all rate limits.
#[tokio::test]
async fn a_reload_keeps_used_rate_budget_until_the_rate_changes() {
    let upstream = Upstream::start();
    let text = |requests, more: &str| {
        let window = "window = \"24h\"";
        let of_route = format!("[[route.rate]]\nper = \"route\"\nrequests = 1\n{window}\n");
        let everywhere = format!("[[rate]]\nper = \"address\"\nrequests = {requests}\n{window}\n");
        let routes = format!("{more}[[route]]\npath = \"/once\"\n{of_route}[[route]]\npath = \"/\"\npublic = true\n");
        Gateway::config_text(&upstream.address.to_string(), &format!("{routes}{everywhere}"))
    };
    let gateway = Gateway::from_text(text(3, ""));
    let alice = gateway.issue("alice", "").await.access;
    let status = async |path: &str| gateway.client().bearer(&alice).get(path).await.status.as_u16();
    assert_eq!((status("/once").await, status("/once").await), (200, 429));
    assert!(reload(&gateway, &text(3, "")).is_empty());
    assert_eq!(status("/once").await, 429, "the rates are the same");
    assert_eq!(status("/").await, 429, "the three requests are used");
    let another_route = "[[route]]\npath = \"/more\"\n[[route.rate]]\nper = \"subject\"\nrequests = 9\n";
    assert!(reload(&gateway, &text(3, another_route)).is_empty());
    assert_eq!(status("/").await, 429, "only another section changed");

    assert!(reload(&gateway, &text(4, another_route)).is_empty());
    assert_eq!((status("/").await, status("/once").await), (200, 429), "one rate changed, the other did not");
    let text = text(4, another_route).replace("/once", "/twice");
    assert!(reload(&gateway, &text).is_empty());
    assert_eq!((status("/twice").await, status("/twice").await), (200, 429), "another route has its own budget");
}

/// A file that changes after it was checked. The certificates from before stay active.
#[tokio::test]
async fn a_reload_rejects_a_file_of_which_a_section_is_lost() {
    let (upstream, old, new) = (Upstream::start(), Authority::new(), Authority::new());
    let routes = "[[route]]\npath = \"/\"\npublic = true\n";
    let gateway = Gateway::with_clients(&upstream, &old, "client_certificate = \"required\"", routes);
    let status = async |authority: &Authority| {
        MutualClient::new(&gateway, Some(authority.client(|_| {}).pair(&[]))).status("/", "").await
    };
    let file = gateway.path().join("clients.pem");
    let config = gateway.config();
    fs::write(&file, format!("{}{}", old.pem().trim_end(), new.pem())).expect("written");
    let error = gateway.running().reload(config).expect_err("the second is lost");
    assert!(with_causes(&error).contains("2 sections with the label CERTIFICATE"), "{}", with_causes(&error));
    assert_eq!((status(&old).await, status(&new).await), (200, 0));
    fs::write(&file, format!("{}{}", old.pem(), new.pem())).expect("written");
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!((status(&old).await, status(&new).await), (200, 200));
}
