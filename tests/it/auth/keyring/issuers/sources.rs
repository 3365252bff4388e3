//! The sources of keys: URLs, discovery, TLS and files, and what happens while a source fails.

use std::time::{Duration, Instant};

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use super::{
    TIMEOUT, age, fetched_from, fetches, folder, issuer, mint, new_token, readiness, start_in, status, wait_for_fetch,
    wait_for_key_requests, wait_for_status,
};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Gateway, KeyServer, Upstream, secrets};

#[tokio::test]
async fn discovery_accepts_only_the_document_of_the_issuer() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let [oidc, oauth, mixed, silent] = ["/oidc", "/oauth", "/mixed", "/silent"].map(|path| server.url(path));
    server.publish_discovery("/oidc/.well-known/openid-configuration", &oidc);
    server.publish_discovery("/.well-known/oauth-authorization-server/oauth", &oauth);
    // A mix-up attack: the first document is that of another issuer. The correct one at the second URL must not help.
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
        eventually_ok(&format!("a token of {name} gets {expected}"), async || match get(name).await {
            status if status == expected => Ok(()),
            status => Err(format!("it gets {status}")),
        })
        .await;
    }
    // An unknown key causes a fetch of the keys from the known URL. Discovery is repeated at the next refresh.
    let requests_before = server.pages().seen.len();
    let next = mint();
    server.publish(&[&key, &next]);
    let token = next.with_claims(gateway.now_secs(), json!({ "iss": oidc }));
    assert_eq!(status(&gateway, &token).await, 200);
    let seen = server.pages().seen.split_off(requests_before);
    assert!(!seen.iter().any(|(path, _)| path.starts_with("/oidc/")), "{seen:?}");
}

#[tokio::test]
async fn a_key_server_needs_a_trusted_certificate_for_its_name() {
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
    eventually_within(TIMEOUT, "the gateway has the keys of the trusted server", async || match get(&trusted).await {
        200 => Ok(()),
        status => Err(format!("a token gets {status}")),
    })
    .await;
    // The gateway has tried the others as often.
    assert_eq!((get(&unknown).await, get(&other_name).await), (503, 503));
}

/// A server may ignore `Accept-Encoding`.
#[tokio::test]
async fn keys_in_gzip_are_read() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    server.pages().is_compressed = true;
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert_eq!(status(&gateway, &new_token(&gateway, &key)).await, 200);
}

#[tokio::test]
async fn a_published_secret_verifies_nothing() {
    let upstream = Upstream::start();
    let asymmetric = mint();
    let shared = Mint::hmac(bearward::tokens::jwt::Algorithm::HS256, &[7; 64]);
    let server = KeyServer::start(&[&asymmetric, &shared]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert_eq!(status(&gateway, &asymmetric.valid_token(gateway.now_secs())).await, 200);
    assert_eq!(status(&gateway, &shared.valid_token(gateway.now_secs())).await, 401);
}

/// RFC 7517 section 4.5: a token names its algorithm beside the kid.
#[tokio::test]
async fn keys_for_different_algorithms_may_share_a_kid() {
    let upstream = Upstream::start();
    let folder = folder();
    let [first, second, twin] = [Algorithm::ES256, Algorithm::EdDSA, Algorithm::EdDSA].map(Mint::new);
    let shared = |mint: &Mint| {
        let mut jwk = mint.jwk();
        jwk["kid"] = json!("shared");
        jwk
    };
    let server = KeyServer::start(&[]);
    server.pages().keys = [&first, &second].map(shared).to_vec();
    std::fs::write(folder.path().join("keys.json"), json!({ "keys": server.pages().keys }).to_string())
        .expect("written");
    let both = |keys: &str| issuer(EXTERNAL_ISSUER, keys).replace("[\"ES256\"]", "[\"ES256\", \"EdDSA\"]");
    let url = server.url("/keys");
    let token = |gateway: &Gateway, mint: &Mint| mint.with_header(gateway.now_secs(), json!({ "kid": "shared" }));
    for keys in [format!("jwks_url = \"{url}\""), "jwks_file = \"keys.json\"".to_owned()] {
        let gateway = start_in(folder.clone(), &upstream, &both(&keys));
        for mint in [&first, &second] {
            assert_eq!(status(&gateway, &token(&gateway, mint)).await, 200, "{keys} {:?}", mint.algorithm);
        }
        assert_eq!(status(&gateway, &token(&gateway, &twin)).await, 401);
    }
    // Of two keys for one algorithm, neither counts.
    server.pages().keys.push(shared(&twin));
    let gateway = start_in(folder, &upstream, &both(&format!("jwks_url = \"{url}\"")));
    let found = [&first, &second, &twin].map(|mint| token(&gateway, mint));
    assert_eq!(status(&gateway, &found[0]).await, 200);
    assert_eq!((status(&gateway, &found[1]).await, status(&gateway, &found[2]).await), (401, 401));
}

#[tokio::test]
async fn an_outage_of_an_issuer_is_one_message_and_its_end_another() {
    let start = secrets::capture_log();
    let upstream = Upstream::start();
    let server = KeyServer::start(&[&mint()]);
    // Other tests write into the same log.
    let name = server.url("/login");
    let keys = format!("jwks_url = \"{}\"\nrefresh_min = \"1s\"\nrefresh_max = \"1s\"", server.url("/keys"));
    let gateway = Gateway::with_config(&upstream, &issuer(&name, &keys));
    server.fail_with(503);
    wait_for_key_requests(&server, server.key_requests() + 4).await;
    server.fail_with(200);
    let messages = |part: &str| {
        let log = secrets::logged_since(start);
        log.lines().filter(|line| line.contains(part) && line.contains(&name)).count()
    };
    eventually_within(TIMEOUT, "the log has the end", async || {
        match messages("the keys of an issuer can be read again") {
            1 => Ok(()),
            count => Err(format!("{count} messages")),
        }
    })
    .await;
    assert_eq!(messages("failed to get the keys of an issuer"), 1);
    drop(gateway);
}

#[tokio::test]
async fn the_last_keys_stay_in_use_while_the_source_fails() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let frequent = "refresh_min = \"1s\"\nrefresh_max = \"1s\"\nmax_age = \"1h\"";
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), frequent));
    assert_eq!((age(&gateway).await, readiness(&gateway).await.0), (0.0, 200));
    server.fail_with(503);
    let failed = fetches(&gateway, "failed").await;
    wait_for_fetch(&gateway, "failed", failed).await;
    gateway.advance(Duration::from_secs(3600));
    assert_eq!((age(&gateway).await, readiness(&gateway).await.0), (3600.0, 200));
    // Keys age while time passes, not because the clock is set.
    gateway.clock.set_back(Duration::from_secs(3600));
    assert_eq!((age(&gateway).await, readiness(&gateway).await.0), (3600.0, 200));
    gateway.clock.set_forward(Duration::from_secs(7200));
    assert_eq!((age(&gateway).await, readiness(&gateway).await.0), (3600.0, 200));
    assert_eq!(status(&gateway, &new_token(&gateway, &key)).await, 200);
    gateway.advance(Duration::from_secs(1));
    let (ready, reason) = readiness(&gateway).await;
    assert_eq!(ready, 503);
    assert_eq!(reason, format!("issuer {EXTERNAL_ISSUER}: its keys were confirmed 3601s ago"));
    assert_eq!(status(&gateway, &new_token(&gateway, &key)).await, 200, "stale keys stay in use");
    // An empty key set counts as a failed fetch.
    server.pages().keys.clear();
    server.fail_with(200);
    wait_for_key_requests(&server, server.key_requests() + 2).await;
    assert_eq!((status(&gateway, &new_token(&gateway, &key)).await, readiness(&gateway).await.0), (200, 503));
    server.publish(&[&key]);
    eventually_within(TIMEOUT, "the gateway is ready", async || match readiness(&gateway).await {
        (200, _) => Ok(()),
        (_, reason) => Err(reason),
    })
    .await;
    assert_eq!(age(&gateway).await, 0.0);
}

#[tokio::test]
async fn stale_keys_are_rejected_if_configured() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    let strict = "refresh_min = \"1s\"\nrefresh_max = \"1s\"\nmax_age = \"1h\"\non_stale = \"reject\"";
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), strict));
    let known = key.with_claims(gateway.now_secs(), json!({ "exp": gateway.now_secs() + 7200 }));
    assert_eq!(status(&gateway, &known).await, 200);
    server.fail_with(500);
    gateway.advance(Duration::from_secs(3601));
    wait_for_status(&gateway, &key, 503).await;
    let response = gateway.client().bearer(&known).get("/").await;
    response.assert_rejected(503, "temporarily_unavailable");
    let own = gateway.issue("alice", "").await.access;
    assert_eq!(status(&gateway, &own).await, 200, "tokens of other issuers are accepted");
    server.fail_with(200);
    wait_for_status(&gateway, &key, 200).await;
    assert_eq!(status(&gateway, &known).await, 200);
}

#[tokio::test]
async fn startup_continue_starts_without_keys() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    server.fail_with(503);
    let started = Instant::now();
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "startup = \"continue\""));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let response = gateway.client().bearer(&new_token(&gateway, &key)).get("/").await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(readiness(&gateway).await.0, 200);
    assert_eq!(status(&gateway, &gateway.issue("alice", "").await.access).await, 200);
    server.fail_with(200);
    wait_for_status(&gateway, &key, 200).await;
}

/// After 0.5, 1 and 2 s, each 25 % less or more.
#[tokio::test]
async fn a_failing_source_is_asked_less_and_less_often() {
    let upstream = Upstream::start();
    let server = KeyServer::start(&[&mint()]);
    server.fail_with(503);
    let started = Instant::now();
    let _gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "startup = \"continue\""));
    wait_for_key_requests(&server, 4).await;
    assert!(started.elapsed() >= Duration::from_millis(375 + 750 + 1500), "{:?}", started.elapsed());
}

#[tokio::test]
async fn startup_waits_for_keys_for_a_limited_time() {
    let upstream = Upstream::start();
    let key = mint();
    let server = KeyServer::start(&[&key]);
    server.pages().delay = Duration::from_millis(700);
    let started = Instant::now();
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert!(started.elapsed() >= Duration::from_millis(700));
    assert_eq!(status(&gateway, &new_token(&gateway, &key)).await, 200);
    drop(gateway);

    server.fail_with(500);
    let started = Instant::now();
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert!(started.elapsed() >= Duration::from_secs(10), "{:?}", started.elapsed());
    gateway.client().bearer(&new_token(&gateway, &key)).get("/").await.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(readiness(&gateway).await, (503, format!("issuer {EXTERNAL_ISSUER}: no keys yet")));
    server.fail_with(200);
    wait_for_status(&gateway, &key, 200).await;
    assert_eq!(readiness(&gateway).await.0, 200);
}

/// The test replaces the folder by a link, as Kubernetes does with a mounted secret.
#[tokio::test]
async fn a_changed_key_file_is_read_and_an_invalid_one_is_ignored() {
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
    let known = new_token(&gateway, &one);
    assert_eq!((status(&gateway, &known).await, status(&gateway, &new_token(&gateway, &two)).await), (200, 401));
    link("v2");
    wait_for_status(&gateway, &two, 200).await;
    assert_eq!(status(&gateway, &known).await, 401, "a cached token is rejected too");

    let failed = fetches(&gateway, "failed").await;
    link("v3");
    wait_for_fetch(&gateway, "failed", failed).await;
    gateway.advance(Duration::from_secs(60));
    assert_eq!(status(&gateway, &new_token(&gateway, &two)).await, 200);
    assert_eq!(age(&gateway).await, 60.0);
    let failed = fetches(&gateway, "failed").await;
    std::fs::remove_file(path("current")).expect("removed");
    wait_for_fetch(&gateway, "failed", failed).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &two)).await, 200, "a missing file is ignored too");
    link("v1");
    wait_for_status(&gateway, &one, 200).await;
    assert_eq!(age(&gateway).await, 0.0);
}

#[tokio::test]
async fn a_reload_keeps_current_keys_and_fetches_new_sources() {
    let upstream = Upstream::start();
    let (one, two) = (mint(), mint());
    let (first, second) = (KeyServer::start(&[&one]), KeyServer::start(&[&two]));
    let text = |issuers: &str| Gateway::config_text(&upstream.address.to_string(), issuers);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&first.url("/keys"), ""));
    let reload = |issuers: &str| {
        let config = config::parse(&text(issuers), gateway.path(), Probe::None).expect("a valid configuration");
        gateway.running().reload(config).expect("it reloads");
    };
    assert_eq!(status(&gateway, &new_token(&gateway, &one)).await, 200);

    // The policy of the issuer changes while its source fails. The gateway keeps the keys that it has.
    first.fail_with(500);
    reload(&fetched_from(&first.url("/keys"), "clock_skew = \"10s\""));
    assert_eq!(status(&gateway, &new_token(&gateway, &one)).await, 200);
    assert_eq!(readiness(&gateway).await.0, 200);

    // Another source: only its keys are valid.
    reload(&fetched_from(&second.url("/keys"), ""));
    assert_eq!(status(&gateway, &new_token(&gateway, &two)).await, 200);
    assert_eq!(status(&gateway, &new_token(&gateway, &one)).await, 401);

    // A reload fetches the keys at once, also during the cooldown.
    second.publish(&[&one]);
    reload(&fetched_from(&second.url("/keys"), ""));
    wait_for_status(&gateway, &two, 401).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &one)).await, 200);

    let requests = second.key_requests();
    reload("");
    assert_eq!(status(&gateway, &new_token(&gateway, &one)).await, 401, "the issuer was removed");
    // The time in which a fetch that must not happen would arrive.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(second.key_requests(), requests, "the gateway does not fetch its keys any more");
}
