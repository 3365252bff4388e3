//! Another configuration for a gateway that is running.

use std::sync::Arc;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::with_causes;
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::tokens::{FOREIGN, Mint};
use crate::support::{Client, Gateway, Upstream};

/// Reloads with other text; answers what takes a restart.
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
    gateway.client().get("/public").await.refused(401, "unauthorized");
    let text = Gateway::text(&new.address.to_string(), "[[route]]\npath = \"/public\"\npublic = true\n");
    assert!(reload(&gateway, &text).is_empty());
    assert_eq!(gateway.client().get("/public").await.status, 200);
    gateway.client().bearer(&pair.access).get("/a").await.refused(404, "not_found");
    assert_eq!((old.only().uri.as_str(), new.only().uri.as_str()), ("/a", "/public"));
}

#[tokio::test]
async fn whose_word_about_the_client_is_taken_changes_for_the_next_request() {
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
async fn logins_and_endpoints_come_and_go_and_a_throttle_takes_a_restart() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    let more = "[[route]]\npath = \"/status/\"\nlogout = true\n[[route]]\npath = \"/in\"\npublic = true\nlogin = true\n\
                [oauth]\nrevocation_endpoint = \"/revoke\"\nresource = \"https://api.example\"\n";
    let text = Gateway::text(&upstream.address.to_string(), more);
    assert!(reload(&gateway, &text).is_empty());
    client.post("/revoke", &serde_json::json!({})).await.refused(400, "invalid_request");
    let challenge = gateway.client().get("/status/200").await;
    assert!(challenge.header("www-authenticate").is_some_and(|text| text.contains("resource_metadata=")));
    client.clone().header("x-bearward-subject", "mallory").get("/in").await;
    assert_eq!(upstream.only().header("x-bearward-subject"), None);
    assert_eq!(client.get("/status/200").await.status, 200);
    client.get("/status/200").await.refused(401, "invalid_token");

    assert_eq!(reload(&gateway, &text.replace("calls = 0", "calls = 1")), ["throttle"]);
    assert!(reload(&gateway, gateway.configuration()).is_empty());
    client.post("/revoke", &serde_json::json!({})).await.refused(401, "invalid_token");
}

#[tokio::test]
async fn a_request_under_way_ends_as_it_began() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let gateway = Gateway::start(&old);
    let pair = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&pair.access);
    let slow = tokio::spawn(async move { client.get("/slow").await });
    while old.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    reload(&gateway, &Gateway::text(&new.address.to_string(), "[[route]]\npath = \"/other\"\n"));
    assert_eq!(slow.await.expect("no panic").status, 200);
}

#[tokio::test]
async fn a_key_that_is_gone_takes_its_known_tokens_with_it() {
    let upstream = Upstream::start();
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    let (first, second) = (Mint::new(Algorithm::ES256), Mint::new(Algorithm::ES256));
    let write = |mint: &Mint| std::fs::write(folder.path().join("login.json"), mint.jwks()).expect("written");
    write(&first);
    let issuer = format!(
        "[[issuer]]\nissuer = \"{FOREIGN}\"\naudience = [\"https://api.example\"]\njwks_file = \"login.json\"\n\
         algorithms = [\"ES256\"]\n"
    );
    let text = Gateway::text(&upstream.address.to_string(), &issuer);
    let gateway = Gateway::in_folder(text.clone(), folder.clone(), Arc::new(ManualClock::new()));
    let own = gateway.issue("alice", "").await.access;
    let (old, new) = (first.good(gateway.now_secs()), second.good(gateway.now_secs()));
    let status = async |token: &str| gateway.client().bearer(token).get("/").await.status.as_u16();
    assert_eq!((status(&old).await, status(&new).await, status(&own).await), (200, 401, 200));
    write(&second);
    assert!(reload(&gateway, &text).is_empty());
    assert_eq!((status(&old).await, status(&new).await, status(&own).await), (401, 200, 200));

    // A file that breaks leaves everything in force.
    std::fs::write(folder.path().join("login.json"), "{").expect("written");
    let refused = config::parse(&text, gateway.path(), Probe::None);
    assert!(refused.is_err_and(|faults| faults.to_string().contains("login.json")));
    assert_eq!((status(&old).await, status(&new).await, status(&own).await), (401, 200, 200));
    // So does one that breaks after it was looked at.
    write(&second);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    std::fs::write(folder.path().join("login.json"), "{").expect("written");
    assert!(gateway.running().reload(config).is_err_and(|error| with_causes(&error).contains("login.json")));
    assert_eq!(gateway.metric("bearward_known_tokens ").await, 2.0, "those in force are shown");
    assert_eq!((status(&old).await, status(&new).await, status(&own).await), (401, 200, 200));
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
    std::fs::remove_dir_all(&tls).expect("it is there");
    let text = Gateway::text(&upstream.address.to_string(), "");
    reload(&gateway, &text);
    // Made anew, and trusted by its new file.
    assert_eq!(get(&gateway.certificate()).await, 200);
}

#[tokio::test]
async fn what_takes_a_restart_is_said_and_left_alone() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let text = Gateway::text(
        &upstream.address.to_string(),
        "[limits]\nsessions_per_subject = 7\nrequest_header_count = 50\n[audit]\nfile = \"off\"\n",
    );
    let text = text
        .replace("workers = 2", "workers = 3")
        .replace("127.0.0.1:0\"\ntls = \"off\"", "127.0.0.1:1\"\ntls = \"off\"");
    assert_eq!(reload(&gateway, &text), ["workers", "listener", "tokens", "audit", "timeouts and limits"]);
    gateway.client().get("/").await.refused(401, "unauthorized");
}

/// Whoever may make the gateway reload, as a program that renews certificates, must not give everybody another burst by it.
#[tokio::test]
async fn what_was_taken_of_a_rate_stays_taken_until_the_rate_is_another() {
    let upstream = Upstream::start();
    let text = |requests, more: &str| {
        let window = "window = \"24h\"";
        let of_route = format!("[[route.rate]]\nper = \"route\"\nrequests = 1\n{window}\n");
        let everywhere = format!("[[rate]]\nper = \"address\"\nrequests = {requests}\n{window}\n");
        let routes = format!("{more}[[route]]\npath = \"/once\"\n{of_route}[[route]]\npath = \"/\"\npublic = true\n");
        Gateway::text(&upstream.address.to_string(), &format!("{routes}{everywhere}"))
    };
    let gateway = Gateway::from_text(text(3, ""));
    let alice = gateway.issue("alice", "").await.access;
    let status = async |path: &str| gateway.client().bearer(&alice).get(path).await.status.as_u16();
    assert_eq!((status("/once").await, status("/once").await), (200, 429));
    assert!(reload(&gateway, &text(3, "")).is_empty());
    assert_eq!(status("/once").await, 429, "nothing has changed");
    assert_eq!(status("/").await, 429, "and three are three");
    let another_route = "[[route]]\npath = \"/more\"\n[[route.rate]]\nper = \"subject\"\nrequests = 9\n";
    assert!(reload(&gateway, &text(3, another_route)).is_empty());
    assert_eq!(status("/").await, 429, "something else has changed");

    assert!(reload(&gateway, &text(4, another_route)).is_empty());
    assert_eq!((status("/").await, status("/once").await), (200, 429), "one is another, one is as it was");
    let text = text(4, another_route).replace("/once", "/twice");
    assert!(reload(&gateway, &text).is_empty());
    assert_eq!((status("/twice").await, status("/twice").await), (200, 429), "another route has its own");
}
