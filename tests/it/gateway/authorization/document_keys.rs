//! Clients with a key in their document, with which they authenticate (`private_key_jwt`).

use std::time::Duration;

use bearward::protocols::http::parameters;
use bearward::tokens::jwt::Algorithm;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::documents::{CALLBACK, document, front, status, url};
use super::{Front, Page, VERIFIER, authorize, counted};
use crate::gateway::oauth::clients::{MachineKey, TYPE};
use crate::gateway::oauth::post;
use crate::support::tokens::{Mint, claims_of, forged_refresh};
use crate::support::visitor::{APP, parameter};
use crate::support::wait::eventually;
use crate::support::{KeyServer, TestResponse, Wire};

/// A client with a key in its document, and an assertion of it for this gateway.
fn assertion(key: &MachineKey, id: &str, now: u64, changes: Value) -> String {
    let mut claims = json!({ "iss": id, "sub": id, "aud": APP });
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    key.with_claims(now, claims)
}

fn with_key(server: &KeyServer, keys: &Value) -> Value {
    let mut document = document(server);
    document["token_endpoint_auth_method"] = json!("private_key_jwt");
    for (name, value) in keys.as_object().expect("an object") {
        document[name] = value.clone();
    }
    document
}

/// The member of a document that names its keys at this server.
fn keys_of(server: &KeyServer) -> Value {
    json!({ "jwks_uri": format!("https://localhost:{}/keys.json", server.address.port()) })
}

/// The code of a client of a document, which `alice` has agreed to.
async fn code(front: &mut Front, id: &str) -> String {
    let page = Page::of(&front.alice.navigate(&authorize(&[("client_id", id), ("redirect_uri", CALLBACK)])).await);
    let answer = front.decide(&page, "allow").await;
    parameter(&answer, "code").expect("a code")
}

/// Hostile cases 55 and 56.
#[tokio::test]
async fn a_client_with_a_key_in_its_document_must_use_it() {
    let (mut front, server, _folder) = front("[\"localhost\"]").await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let (key, stranger) = (MachineKey::new(), MachineKey::new());
    let id = url(&server);
    let set: Value = serde_json::from_str(&key.0.jwks()).expect("JSON");
    for (number, keys) in [json!({ "jwks": set }), keys_of(&server)].into_iter().enumerate() {
        // Another document than before, and not more than 10 fetches a minute.
        front.gateway.clock.advance(Duration::from_mins(16));
        let document = ("/client.json".to_owned(), with_key(&server, &keys).to_string());
        server.fail_with(200);
        server.pages().documents = vec![document, ("/keys.json".to_owned(), key.0.jwks())];
        let now = front.gateway.now_secs();
        let client = [("client_id", &*id), ("redirect_uri", CALLBACK)];
        let code = code(&mut front, &id).await;
        let good = assertion(&key, &id, now, json!({}));
        for (wrong, what) in [
            (String::new(), "no assertion"),
            (assertion(&stranger, &id, now, json!({})), "the key of another client"),
            (assertion(&key, &id, now, json!({ "aud": "https://other.example" })), "another audience"),
            (assertion(&key, "ci", now, json!({})), "another name"),
        ] {
            let kind = if wrong.is_empty() { "" } else { TYPE };
            let proof = [("client_assertion", &*wrong), ("client_assertion_type", kind)];
            let response = front.redeem(&code, &[&client[..], &proof].concat()).await;
            assert_eq!(response.json()["error"], "invalid_client", "{number}: {what}: {}", response.text());
        }
        let proof = [("client_assertion", &*good), ("client_assertion_type", TYPE)];
        let tokens = front.redeem(&code, &[&client[..], &proof].concat()).await;
        assert_eq!(tokens.status, 200, "{number}: {}", tokens.text());
        let claims = claims_of(tokens.json()["access_token"].as_str().expect("a token"));
        assert_eq!(claims["client_auth"], "private_key_jwt");
        // The name of the client and its refresh token are not enough, also where the document is away.
        server.pages().documents.clear();
        let refresh = tokens.json()["refresh_token"].as_str().expect("a token").to_owned();
        let form = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*id)];
        let rejected = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
        rejected.assert_rejected(401, "invalid_client");
        let revoke = [("token", &*refresh), ("client_id", &*id)];
        let revoked = post(front.gateway.client().host("app.example"), "/oauth/revoke", &revoke).await;
        revoked.assert_rejected(401, "invalid_client");
        let again = assertion(&key, &id, now, json!({}));
        let proof = [("client_assertion", &*again), ("client_assertion_type", TYPE)];
        let form = [&form[..], &proof].concat();
        let refreshed = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
        assert_eq!(refreshed.status, 200, "{number}: {}", refreshed.text());
        let used = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
        used.assert_rejected(401, "invalid_client");
        // A document that cannot be fetched again asks users on, and proves no key: the client may have removed it.
        front.gateway.clock.advance(Duration::from_mins(16));
        server.fail_with(503);
        server.pages().documents = vec![("/client.json".to_owned(), String::new())];
        assert_eq!(status(&front, &id).await, 303);
        let late = assertion(&key, &id, front.gateway.now_secs(), json!({}));
        let refresh = refreshed.json()["refresh_token"].as_str().expect("a token").to_owned();
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", &*refresh),
            ("client_id", &*id),
            ("client_assertion", &*late),
            ("client_assertion_type", TYPE),
        ];
        let before = counted(&front, "client_documents").await["stale"];
        let stale = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
        stale.assert_rejected(503, "temporarily_unavailable");
        assert_eq!(counted(&front, "client_documents").await["stale"], before + 1);
    }
}

/// A key set that grew since it was fetched is fetched again, at most once in 30 seconds.
#[tokio::test]
async fn a_new_key_of_a_document_is_found() {
    let (mut front, server, _folder) = front("[\"localhost\"]").await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let (old, new) =
        (MachineKey(Mint::new(Algorithm::ES256).named("old")), MachineKey(Mint::new(Algorithm::ES256).named("new")));
    let id = url(&server);
    let document = ("/client.json".to_owned(), with_key(&server, &keys_of(&server)).to_string());
    let publish = |key: &MachineKey| {
        server.pages().documents = vec![document.clone(), ("/keys.json".to_owned(), key.0.jwks())];
    };
    let mut statuses = Vec::new();
    for (key, wait) in [(&old, 0), (&new, 0), (&new, 31)] {
        front.gateway.clock.advance(Duration::from_secs(wait));
        publish(key);
        let code = code(&mut front, &id).await;
        let proof = assertion(key, &id, front.gateway.now_secs(), json!({}));
        let changed = [
            ("client_id", &*id),
            ("redirect_uri", CALLBACK),
            ("client_assertion", &*proof),
            ("client_assertion_type", TYPE),
        ];
        statuses.push(front.redeem(&code, &changed).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 401, 200]);
}

/// The client tries again later: its code is not used up.
#[tokio::test]
async fn a_key_server_that_is_down_costs_the_client_nothing() {
    let (mut front, server, _folder) = front("[\"localhost\"]").await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let key = MachineKey::new();
    let id = url(&server);
    let document = ("/client.json".to_owned(), with_key(&server, &keys_of(&server)).to_string());
    server.pages().documents = vec![document];
    let code = code(&mut front, &id).await;
    for (status, expected) in [(503, 503), (429, 503), (200, 200)] {
        // The gateway knows the document for minutes.
        server.fail_with(status);
        server.pages().documents = vec![("/keys.json".to_owned(), key.0.jwks())];
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("code_verifier", VERIFIER),
            ("redirect_uri", CALLBACK),
        ];
        let response = call(&front, &key, &id, &form).await;
        assert_eq!(response.status, expected, "{status}: {}", response.text());
        if expected == 503 {
            assert_eq!(response.json()["error"], "temporarily_unavailable");
            assert!(response.header("retry-after").is_some());
        }
        // Not more fetches of one host than are allowed.
        front.gateway.clock.advance(Duration::from_secs(5));
    }
}

/// Many calls at once fetch the key set once. A stranger's call to push a request or to revoke writes nothing, so that
/// the assertion is good again; to get a token, it is good once.
#[tokio::test]
async fn an_assertion_is_used_up_only_where_it_gets_tokens() {
    let (mut front, server, _folder) = front("[\"localhost\"]").await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let key = MachineKey::new();
    let id = url(&server);
    let document = ("/client.json".to_owned(), with_key(&server, &keys_of(&server)).to_string());
    server.pages().documents = vec![document, ("/keys.json".to_owned(), key.0.jwks())];
    let code = code(&mut front, &id).await;
    let proof = assertion(&key, &id, front.gateway.now_secs(), json!({}));
    let proof = [("client_id", &*id), ("client_assertion", &*proof), ("client_assertion_type", TYPE)];
    server.pages().delay = Duration::from_millis(300);
    let request = authorize(&[("client_id", ""), ("redirect_uri", CALLBACK)]);
    let request = parameters::read(request.split_once('?').expect("a query").1).expect("parameters");
    let request: Vec<_> = request.iter().map(|(name, value)| (&**name, &**value)).collect();
    let form = [&request[..], &proof].concat();
    let push = || post(front.gateway.client().host("app.example"), "/oauth/par", &form);
    let pushed = join_all([push(), push(), push()]).await;
    let statuses: Vec<_> = pushed.iter().map(|response| response.status.as_u16()).collect();
    assert_eq!(statuses, [201; 3], "{}", pushed[0].text());
    let fetched = server.pages().seen.iter().filter(|(path, _)| path == "/keys.json").count();
    assert_eq!(fetched, 1);
    let revoke = [&[("token", "unknown")][..], &proof].concat();
    for _ in 0..2 {
        let revoked = post(front.gateway.client().host("app.example"), "/oauth/revoke", &revoke).await;
        assert_eq!(revoked.status, 200, "{}", revoked.text());
    }
    let redirect = [("redirect_uri", CALLBACK)];
    let redeemed = front.redeem(&code, &[&redirect[..], &proof].concat()).await;
    assert_eq!(redeemed.status, 200, "{}", redeemed.text());
    front.redeem(&code, &[&redirect[..], &proof].concat()).await.assert_rejected(401, "invalid_client");
}

/// A call of the token endpoint by a client that authenticates with its document.
async fn call(front: &Front, key: &MachineKey, id: &str, form: &[(&str, &str)]) -> TestResponse {
    let proof = assertion(key, id, front.gateway.now_secs(), json!({}));
    let proof = [("client_id", id), ("client_assertion", &*proof), ("client_assertion_type", TYPE)];
    post(front.gateway.client().host("app.example"), "/oauth/token", &[form, &proof].concat()).await
}

fn publish_with_key(server: &KeyServer, key: &MachineKey) {
    let set: Value = serde_json::from_str(&key.0.jwks()).expect("JSON");
    let document = with_key(server, &json!({ "jwks": set }));
    server.pages().documents = vec![("/client.json".to_owned(), document.to_string())];
}

/// Anyone can make a document with a key.
#[tokio::test]
async fn a_stranger_with_a_document_writes_nothing() {
    let (front, server, _folder) = front("[\"localhost\"]").await;
    let key = MachineKey::new();
    publish_with_key(&server, &key);
    let unknown = &*forged_refresh("0000000000000000000001");
    for (grant, name, token) in [("authorization_code", "code", "none"), ("refresh_token", "refresh_token", unknown)] {
        let response = call(&front, &key, &url(&server), &[("grant_type", grant), (name, token)]).await;
        assert_eq!(response.json()["error"], "invalid_grant", "{grant}: {}", response.text());
    }
    let database = rusqlite::Connection::open(front.gateway.folder.path().join("bearward.db")).expect("opens");
    let marks: i64 = database.query_row("select count(*) from marks", [], |row| row.get(0)).expect("a number");
    assert_eq!(marks, 0);
}

/// The status of the request of a stranger with this last byte of the address.
async fn slowly(front: &Front, from: u8, client_id: &str) -> u16 {
    let request = authorize(&[("client_id", client_id), ("redirect_uri", CALLBACK)]);
    let path = request.strip_prefix(APP).expect("a URL of the gateway");
    let mut stranger = Wire::connect_from([127, 0, 0, from].into(), front.gateway.address()).await;
    stranger.send(format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n")).await;
    stranger.read_response().await.status
}

/// Each of them takes nearly as long as a fetch may.
#[tokio::test]
async fn fetches_of_new_documents_stop_no_client_that_users_have() {
    let (mut front, server, _folder) = front("[\"localhost\"]").await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let key = MachineKey::new();
    let id = url(&server);
    publish_with_key(&server, &key);
    let code = code(&mut front, &id).await;
    let verified = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("code_verifier", VERIFIER),
        ("redirect_uri", CALLBACK),
    ];
    let tokens = call(&front, &key, &id, &verified).await.json();
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    front.gateway.clock.advance(Duration::from_mins(16));
    server.pages().delay = Duration::from_millis(2_500);
    let asked =
        async |number: u8| slowly(&front, 10 + number / 4, &id.replace("client.json", &format!("{number}.json"))).await;
    let flood = join_all((0..32).map(asked));
    let refreshed = async {
        eventually("all of them are fetched", || server.pages().seen.len() >= 33).await;
        // The document of the client is there at once.
        server.pages().delay = Duration::ZERO;
        call(&front, &key, &id, &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
    };
    let (_, refreshed) = tokio::join!(flood, refreshed);
    assert_eq!(refreshed.status, 200, "{}", refreshed.text());
}

/// Hostile case 54: slow servers of two strangers.
#[tokio::test]
async fn strangers_with_slow_servers_make_no_other_one_wait() {
    const SLOW: Duration = Duration::from_millis(2_500);
    let (front, server, _folder) = front("[\"localhost\"]").await;
    server.pages().delay = SLOW;
    let base = url(&server);
    let asked = async |number: u8| {
        slowly(&front, 2 + number % 2, &base.replace("client.json", &format!("{number}.json"))).await
    };
    let flood = join_all((0..20).map(asked));
    let honest = async {
        eventually("the strangers are served", || server.pages().seen.len() >= 8).await;
        server.pages().delay = Duration::ZERO;
        server.pages().documents = vec![("/client.json".to_owned(), document(&server).to_string())];
        status(&front, &base).await
    };
    let (flood, honest) = tokio::join!(flood, honest);
    assert_eq!(honest, 303);
    assert_eq!(flood.iter().filter(|status| **status == 503).count(), 12, "four for each address: {flood:?}");
}
