//! `GET /admin/v1/certificates` and `GET /admin/v1/issuers`: what expires, and which source fails.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::UnixTime;
use bearward::types::secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::tokens::Mint;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, KeyServer, OidcProvider, Upstream};

const DAY: u64 = 24 * 60 * 60;

fn write_certificate(folder: &Path, file: &str, names: &[&str], year: i32) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut certificate = rcgen::CertificateParams::new(names).expect("names");
    certificate.not_after = rcgen::date_time_ymd(year, 1, 1);
    certificate.distinguished_name.push(rcgen::DnType::CommonName, format!("{file} \u{1b}[2J"));
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = certificate.self_signed(&key).expect("a certificate");
    fs::write(folder.join(format!("{file}.pem")), certificate.pem()).expect("written");
    secret::write_private(&folder.join(format!("{file}.key")), key.serialize_pem().as_bytes()).expect("written");
}

async fn list(gateway: &Gateway, name: &str) -> Vec<Value> {
    let answer = gateway.admin_client().get(&format!("/admin/v1/{name}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let member = if name == "certificates" { "listeners" } else { name };
    answer.json()[member].as_array().unwrap_or_else(|| panic!("{answer:?}")).clone()
}

#[tokio::test]
async fn an_expired_certificate_has_negative_days_left() {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    write_certificate(folder.path(), "old", &["old.example", "192.0.2.7"], 2020);
    write_certificate(folder.path(), "new", &["*.new.example"], 2051);
    let upstream = Upstream::start();
    let pair = |file: &str| format!("{{ certificate = \"{file}.pem\", key = \"{file}.key\" }}");
    let text = Gateway::public_config(upstream.address, "")
        .replace("tls = \"self-signed\"", &format!("tls = [{}, {}]", pair("old"), pair("new")));
    let gateway = Gateway::in_folder(text, folder.clone(), Arc::new(ManualClock::new()));
    let listeners = list(&gateway, "certificates").await;
    let [cleartext, tls, admin] = &listeners[..] else { panic!("{listeners:?}") };
    assert_eq!((&cleartext["tls"], &cleartext["certificates"]), (&json!(false), &json!([])));
    assert_eq!((&admin["admin"], &admin["tls"]), (&json!(true), &json!(false)));
    assert_eq!(admin["address"], gateway.admin_address().to_string());
    assert_eq!((&tls["address"], &tls["admin"]), (&json!(gateway.tls_address().to_string()), &json!(false)));
    let [old, new] = [&tls["certificates"][0], &tls["certificates"][1]];
    assert_eq!(old["names"], json!(["old.example", "192.0.2.7"]));
    assert_eq!(old["notAfter"], "2020-01-01T00:00:00.000Z");
    let days = |year_end: &str| {
        let end = UnixTime::parse(year_end).expect("a time").as_secs() as i64;
        (end - gateway.now_secs() as i64).div_euclid(DAY as i64)
    };
    assert_eq!(old["daysLeft"], days("2020-01-01T00:00:00Z"));
    assert!(old["daysLeft"].as_i64().is_some_and(|days| days < -2_000), "{old}");
    assert_eq!(new["daysLeft"], days("2051-01-01T00:00:00Z"));
    assert_eq!(new["names"], json!(["*.new.example"]));
    assert_eq!(new["file"], folder.path().join("new.pem").display().to_string());
    assert!(new["issuer"].as_str().is_some_and(|issuer| issuer.contains("CN=new")), "{new}");

    // A renewed certificate is shown when it is active.
    write_certificate(folder.path(), "old", &["old.example"], 2049);
    assert!(
        list(&gateway, "certificates").await[1]["certificates"][0]["daysLeft"].as_i64().is_some_and(|days| days < 0)
    );
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!(list(&gateway, "certificates").await[1]["certificates"][0]["daysLeft"], days("2049-01-01T00:00:00Z"));
}

#[tokio::test]
async fn the_admin_listener_shows_its_own_certificate() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\ntls = \"self-signed\"\n"));
    let admin = gateway.admin_client().over_tls(&gateway.certificate());
    let shown = admin.get("/admin/v1/certificates").await.json();
    let own = &shown["listeners"][2];
    assert_eq!((&own["admin"], &own["tls"]), (&json!(true), &json!(true)), "{shown}");
    assert_eq!(own["certificates"][0]["names"], json!(["localhost", "127.0.0.1", "::1"]));
}

fn issuer(name: &str, keys: &str) -> String {
    format!("[[issuer]]\nissuer = \"{name}\"\naudience = [\"https://api.example\"]\nalgorithms = [\"ES256\"]\n{keys}\n")
}

#[tokio::test]
async fn an_issuer_shows_its_keys_and_why_its_source_fails() {
    let upstream = Upstream::start();
    let key = Mint::new(Algorithm::ES256);
    let server = KeyServer::start(&[&key, &Mint::new(Algorithm::ES256)]);
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    fs::write(folder.path().join("keys.json"), key.jwks()).expect("written");
    let url = format!("jwks_url = \"{}\"\nmax_age = \"2h\"\n", server.url("/keys?secret=hidden"));
    let never = "jwks_url = \"http://127.0.0.1:9/keys\"\nstartup = \"continue\"\n";
    let issuers = issuer("https://url.example", &url)
        + &issuer("https://file.example", "jwks_file = \"keys.json\"")
        + &issuer("https://never.example", never);
    let text = Gateway::config_text(&upstream.address.to_string(), &issuers);
    let gateway = Gateway::in_folder(text, folder.clone(), Arc::new(ManualClock::new()));

    let shown = list(&gateway, "issuers").await;
    let names: Vec<_> = shown.iter().map(|shown| shown["issuer"].clone()).collect();
    assert_eq!(names, ["https://url.example", "https://file.example", "https://never.example"]);
    let [by_url, by_file, _] = &shown[..] else { panic!("{shown:?}") };
    assert_eq!(
        (&by_url["state"], &by_url["keys"], &by_url["kind"]),
        (&json!("current"), &json!(2), &json!("jwks_url"))
    );
    assert_eq!(by_url["source"], server.url("/keys"), "without the query, which can have a secret");
    assert_eq!((&by_url["ageSeconds"], &by_url["maxAgeSeconds"]), (&json!(0), &json!(7200)));
    assert_eq!(by_url["confirmedAt"], by_url["lastAttemptAt"]);
    assert!(by_url["lastError"].is_null(), "{by_url}");
    assert_eq!(
        (&by_file["state"], &by_file["keys"], &by_file["kind"]),
        (&json!("current"), &json!(1), &json!("jwks_file"))
    );
    assert!(by_file["maxAgeSeconds"].is_null(), "a file is never too old: {by_file}");

    eventually_ok("the source that never answered has an error", async || {
        let never = list(&gateway, "issuers").await[2].clone();
        let error = never["lastError"].as_str().unwrap_or_default();
        let fails = never["state"] == "missing" && never["keys"] == 0 && error.contains("127.0.0.1:9");
        let has_times = never["confirmedAt"].is_null() && never["lastAttemptAt"].is_string();
        if fails && has_times { Ok(()) } else { Err(never.to_string()) }
    })
    .await;

    server.fail_with(500);
    fs::write(folder.path().join("keys.json"), "{").expect("written");
    gateway.advance(Duration::from_secs(3600));
    // A token with an unknown key makes the gateway ask at once.
    let unknown = Mint::new(Algorithm::ES256).with_claims(gateway.now_secs(), json!({ "iss": "https://url.example" }));
    gateway.client().bearer(&unknown).get("/").await;
    let failing = eventually_ok("both sources fail", async || {
        let shown = list(&gateway, "issuers").await;
        let fail = shown[..2].iter().all(|shown| shown["state"] == "failing" && shown["lastError"].is_string());
        fail.then(|| shown.clone()).ok_or(format!("{shown:?}"))
    })
    .await;
    assert!(failing[0]["lastError"].as_str().is_some_and(|error| error.contains("500")), "{failing:?}");
    assert!(!failing[0].to_string().contains("hidden"), "the query is in no error: {failing:?}");
    assert_eq!((&failing[0]["keys"], &failing[0]["ageSeconds"]), (&json!(2), &json!(3600)), "the keys stay in force");
    assert!(failing[1]["lastError"].as_str().is_some_and(|error| error.contains("keys.json")), "{failing:?}");

    gateway.advance(Duration::from_secs(3601));
    assert_eq!(list(&gateway, "issuers").await[0]["state"], "stale");
}

#[tokio::test]
async fn a_key_says_when_its_state_changes() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let keys = async || gateway.admin_client().get("/admin/v1/keys").await.json();
    let first = keys().await;
    assert_eq!(first["keys"][0]["nextStepAt"], first["nextRotation"], "the active key retires then");
    let next = first["nextRotation"].as_str().and_then(UnixTime::parse).expect("a time");
    let days = next.since(UnixTime::from_secs(gateway.now_secs())).as_secs() / 86_400;
    assert_eq!(first["keys"][0]["daysLeft"], days, "{first}");
    assert_eq!(gateway.admin_client().post("/admin/v1/keys/rotate", &json!({})).await.status, 200);
    let rotating = keys().await;
    for key in rotating["keys"].as_array().expect("a list") {
        assert_eq!(key["nextStepAt"], rotating["nextRotation"], "{rotating}");
    }
    assert!(rotating["nextRotation"].as_str() < first["nextRotation"].as_str(), "{rotating}");
    assert_eq!(gateway.admin_client().post("/admin/v1/keys/rotate", &json!({ "now": true })).await.status, 200);
    let rotated = keys().await;
    let retired = rotated["keys"].as_array().expect("a list").iter().find(|key| key["state"] == "retired");
    let next = retired.expect("the first one")["nextStepAt"].as_str().and_then(UnixTime::parse).expect("a time");
    // Its last access token ends within minutes; then it is accepted only at refreshes, until the last of them ends.
    let wait = next.since(UnixTime::from_secs(gateway.now_secs())) + Duration::from_secs(1);
    gateway.advance(wait);
    let later = keys().await;
    let state = later["keys"].as_array().expect("a list").iter().find(|key| key["kid"] == retired.expect("one")["kid"]);
    let state = state.expect("it is kept for refreshes");
    assert_eq!(state["state"], "refresh-only", "{later}");
    assert!(state["nextStepAt"].as_str().and_then(UnixTime::parse).is_some_and(|deleted| deleted > next), "{later}");
}

/// A real provider. Its tokens are no Bearer tokens: only an `[[issuer]]` makes them that.
#[tokio::test]
async fn a_provider_shows_its_keys_and_makes_no_token_valid() {
    const API: &str = "https://api.example";
    let upstream = Upstream::start();
    let provider = OidcProvider::start(&json!({
        "accounts": { "alice": {} },
        "resources": { API: { "scope": "read", "accessTokenFormat": "jwt", "jwt": { "sign": { "alg": "RS256" } } } },
        "clients": [{
            "client_id": "app", "client_secret": "of the app", "redirect_uris": ["https://app.example/callback"],
            "scope": "openid read",
        }],
    }));
    let keys = format!("issuer = \"{}\"\nclient_id = \"app\"\nclient_auth = \"none\"", provider.issuer);
    let gateway = Gateway::with_config(&upstream, &format!("[[provider]]\nname = \"login\"\n{keys}\n"));
    let shown = eventually_ok("the keys of the provider are known", async || {
        let shown = list(&gateway, "issuers").await[0].clone();
        if shown["state"] == "current" { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!((&shown["kind"], &shown["issuer"]), (&json!("provider"), &json!(provider.issuer)));
    assert_eq!(shown["source"], format!("{}/.well-known/openid-configuration", provider.issuer));
    let request = json!({ "account": "alice", "client_id": "app", "scope": "read", "resource": API });
    let (token, _) = provider.tokens(&request).await;
    let response = gateway.client().bearer(&token).get("/").await;
    assert_eq!(response.status, 401);
    assert_eq!(response.json()["error"], "invalid_token");
    let revocation = json!({ "issuer": provider.issuer, "session": "s" });
    let revoked = gateway.admin_client().post("/admin/v1/revocations", &revocation).await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
}
