//! Where keys come from: addresses, discovery, TLS, files; and what happens while nothing comes.

use std::time::{Duration, Instant};

use bearward::config::{self, Probe};
use serde_json::json;

use super::{age, fetched_from, folder, fresh, issuer, mint, readiness, soon, soon_status, start_in, status, visits};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, KeyServer, Upstream};

#[tokio::test]
async fn keys_are_discovered_and_only_the_issuers_own_document_is_believed() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let [oidc, oauth, mixed, silent] = ["/oidc", "/oauth", "/mixed", "/silent"].map(|path| server.url(path));
    server.publish_discovery("/oidc/.well-known/openid-configuration", &oidc);
    server.publish_discovery("/.well-known/oauth-authorization-server/oauth", &oauth);
    // Mix-up: the document of another issuer, also with the right one at the second place.
    server.publish_discovery("/mixed/.well-known/openid-configuration", &oidc);
    server.publish_discovery("/.well-known/oauth-authorization-server/mixed", &mixed);
    let issuers: String =
        [&oidc, &oauth, &mixed, &silent].map(|name| issuer(name, "discover = true\nstartup = \"continue\"")).concat();
    let gateway = Gateway::with_config(&upstream, &issuers);
    let get = async |name: &str| {
        let token = key.with_claims(gateway.now_secs(), json!({ "iss": name }));
        status(&gateway, &token).await
    };
    for (name, expected) in [(&oidc, 200), (&oauth, 200), (&mixed, 503), (&silent, 503)] {
        let started = Instant::now();
        while get(name).await != expected && started.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(get(name).await, expected, "{name}");
    }
    // For a key that is new, the keys are fetched from where they were; discovery waits for the next refresh.
    let asked_before = server.pages().seen.len();
    let next = mint();
    server.publish(&[&key, &next]);
    let token = next.with_claims(gateway.now_secs(), json!({ "iss": oidc }));
    assert_eq!(status(&gateway, &token).await, 200);
    let seen = server.pages().seen.split_off(asked_before);
    assert!(!seen.iter().any(|(path, _)| path.starts_with("/oidc/")), "{seen:?}");
}

#[tokio::test]
async fn over_tls_the_server_has_to_be_the_right_one() {
    let upstream = Upstream::start();
    let key = mint();
    let folder = folder();
    let server = KeyServer::start_tls(&[&key], &folder.path().join("ca.pem"));
    let port = server.address.port();
    let [trusted, unknown, other_name] = ["a", "b", "c"].map(|name| format!("https://{name}.example"));
    let at = |name: &str, host: &str, more: &str| {
        issuer(name, &format!("jwks_url = \"https://{host}:{port}/keys\"\nstartup = \"continue\"\n{more}"))
    };
    let text = [
        at(&trusted, "localhost", "ca_file = \"ca.pem\""),
        at(&unknown, "localhost", ""),
        at(&other_name, "127.0.0.1", "ca_file = \"ca.pem\""),
    ];
    let gateway = start_in(folder, &upstream, &text.concat());
    let get = async |name: &str| {
        let token = key.with_claims(gateway.now_secs(), json!({ "iss": name }));
        status(&gateway, &token).await
    };
    let started = Instant::now();
    while get(&trusted).await != 200 {
        assert!(started.elapsed() < Duration::from_secs(20), "the trusted one is not reached");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // These have been tried as often, and fail for good.
    assert_eq!((get(&unknown).await, get(&other_name).await), (503, 503));
}

#[tokio::test]
async fn a_published_secret_verifies_nothing() {
    let upstream = Upstream::start();
    let good = mint();
    let shared = Mint::hmac(bearward::tokens::jwt::Algorithm::HS256, &[7; 64]);
    let server = KeyServer::start(&[&good, &shared]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert_eq!(status(&gateway, &good.valid_token(gateway.now_secs())).await, 200);
    assert_eq!(status(&gateway, &shared.valid_token(gateway.now_secs())).await, 401);
}

#[tokio::test]
async fn the_last_good_keys_stay_while_the_source_is_down_and_their_age_is_told() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let often = "refresh_min = \"1s\"\nrefresh_max = \"1s\"\nmax_age = \"1h\"";
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), often));
    assert_eq!((age(&gateway).await, readiness(&gateway).await.0), (0.0, 200));
    server.fail_with(503);
    let failed = visits(&gateway, "failed").await;
    while visits(&gateway, "failed").await == failed {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.advance(Duration::from_secs(3600));
    assert_eq!((age(&gateway).await, readiness(&gateway).await.0), (3600.0, 200));
    assert_eq!(status(&gateway, &fresh(&gateway, &key)).await, 200);
    gateway.advance(Duration::from_secs(1));
    let (ready, reason) = readiness(&gateway).await;
    assert_eq!(ready, 503);
    assert_eq!(reason, format!("issuer {EXTERNAL_ISSUER}: its keys were confirmed 3601s ago"));
    assert_eq!(status(&gateway, &fresh(&gateway, &key)).await, 200, "stale keys stay in force");
    // A page that is no key set is no better than none.
    server.pages().keys.clear();
    server.fail_with(200);
    let visited = server.key_requests();
    soon("another visit", || server.key_requests() >= visited + 2);
    assert_eq!((status(&gateway, &fresh(&gateway, &key)).await, readiness(&gateway).await.0), (200, 503));
    server.publish(&[&key]);
    while readiness(&gateway).await.0 != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(age(&gateway).await, 0.0);
}

#[tokio::test]
async fn stale_keys_are_refused_where_that_was_asked_for() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let strict = "refresh_min = \"1s\"\nrefresh_max = \"1s\"\nmax_age = \"1h\"\non_stale = \"reject\"";
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), strict));
    let known = key.with_claims(gateway.now_secs(), json!({ "exp": gateway.now_secs() + 7200 }));
    assert_eq!(status(&gateway, &known).await, 200);
    server.fail_with(500);
    gateway.advance(Duration::from_secs(3601));
    soon_status(&gateway, &key, 503).await;
    let response = gateway.client().bearer(&known).get("/").await;
    response.assert_rejected(503, "temporarily_unavailable");
    let own = gateway.issue("alice", "").await.access;
    assert_eq!(status(&gateway, &own).await, 200, "other issuers go on");
    server.fail_with(200);
    soon_status(&gateway, &key, 200).await;
    assert_eq!(status(&gateway, &known).await, 200);
}

#[tokio::test]
async fn a_start_goes_on_without_keys_if_told_so_and_has_them_when_they_come() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    server.fail_with(503);
    let started = Instant::now();
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "startup = \"continue\""));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let response = gateway.client().bearer(&fresh(&gateway, &key)).get("/").await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(readiness(&gateway).await.0, 200);
    assert_eq!(status(&gateway, &gateway.issue("alice", "").await.access).await, 200);
    server.fail_with(200);
    soon_status(&gateway, &key, 200).await;
}

#[tokio::test]
async fn a_start_waits_for_keys_and_not_for_ever() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    server.pages().delay = Duration::from_millis(700);
    let started = Instant::now();
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert!(started.elapsed() >= Duration::from_millis(700));
    assert_eq!(status(&gateway, &fresh(&gateway, &key)).await, 200);
    drop(gateway);

    server.fail_with(500);
    let started = Instant::now();
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert!(started.elapsed() >= Duration::from_secs(10), "{:?}", started.elapsed());
    gateway.client().bearer(&fresh(&gateway, &key)).get("/").await.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(readiness(&gateway).await, (503, format!("issuer {EXTERNAL_ISSUER}: no keys yet")));
    server.fail_with(200);
    soon_status(&gateway, &key, 200).await;
    assert_eq!(readiness(&gateway).await.0, 200);
}

/// As Kubernetes changes a mounted secret: the folder is another one from one moment to the next.
#[tokio::test]
async fn a_file_that_changes_is_noticed_and_one_that_breaks_changes_nothing() {
    let upstream = Upstream::start();
    let (one, two) = (mint(), mint());
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    for (name, content) in [("v1", one.jwks()), ("v2", two.jwks()), ("v3", "{".into())] {
        std::fs::create_dir(path(name)).expect("a folder");
        std::fs::write(path(name).join("login.json"), content).expect("written");
    }
    let link = |version: &str| {
        std::os::unix::fs::symlink(version, path("next")).expect("a link");
        std::fs::rename(path("next"), path("current")).expect("swapped");
    };
    link("v1");
    let text = issuer(EXTERNAL_ISSUER, "jwks_file = \"current/login.json\"");
    let gateway = start_in(folder.clone(), &upstream, &text);
    let known = fresh(&gateway, &one);
    assert_eq!((status(&gateway, &known).await, status(&gateway, &fresh(&gateway, &two)).await), (200, 401));
    link("v2");
    soon_status(&gateway, &two, 200).await;
    assert_eq!(status(&gateway, &known).await, 401, "also a token that was known");

    let failed = visits(&gateway, "failed").await;
    link("v3");
    while visits(&gateway, "failed").await == failed {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.advance(Duration::from_secs(60));
    assert_eq!(status(&gateway, &fresh(&gateway, &two)).await, 200);
    assert_eq!(age(&gateway).await, 60.0);
    std::fs::remove_file(path("current")).expect("removed");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(status(&gateway, &fresh(&gateway, &two)).await, 200, "nor does one that is gone");
    link("v1");
    soon_status(&gateway, &one, 200).await;
    assert_eq!(age(&gateway).await, 0.0);
}

#[tokio::test]
async fn a_reload_keeps_what_it_does_not_change_and_fetches_what_is_new() {
    let upstream = Upstream::start();
    let (one, two) = (mint(), mint());
    let (first, second) = (KeyServer::start(&[&one]), KeyServer::start(&[&two]));
    let text = |issuers: &str| Gateway::config_text(&upstream.address.to_string(), issuers);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&first.url("/keys"), ""));
    let reload = |issuers: &str| {
        let config = config::parse(&text(issuers), gateway.path(), Probe::None).expect("a good configuration");
        gateway.running().reload(config).expect("it reloads");
    };
    assert_eq!(status(&gateway, &fresh(&gateway, &one)).await, 200);

    // The issuer's terms change, and its source is down: its keys are those that are here.
    first.fail_with(500);
    reload(&fetched_from(&first.url("/keys"), "clock_skew = \"10s\""));
    assert_eq!(status(&gateway, &fresh(&gateway, &one)).await, 200);
    assert_eq!(readiness(&gateway).await.0, 200);

    // Another source: nothing of the old one is believed, and nothing is refused that the new one has.
    reload(&fetched_from(&second.url("/keys"), ""));
    assert_eq!(status(&gateway, &fresh(&gateway, &two)).await, 200);
    assert_eq!(status(&gateway, &fresh(&gateway, &one)).await, 401);

    // Whoever reloads wants what is true now, cool-down or not.
    second.publish(&[&one]);
    reload(&fetched_from(&second.url("/keys"), ""));
    soon_status(&gateway, &two, 401).await;
    assert_eq!(status(&gateway, &fresh(&gateway, &one)).await, 200);

    let visited = second.key_requests();
    reload("");
    assert_eq!(status(&gateway, &fresh(&gateway, &one)).await, 401, "the issuer is gone");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(second.key_requests(), visited, "and nobody asks it any more");
}
