//! Reloads of `[[provider]]`: sessions of a provider that is gone, or has another issuer or other rules.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::admin::Reloaded;
use bearward::config::{self, Probe};
use bearward::tokens::family::refresh_token::Roots;
use bearward::tokens::sign_in::provider_tokens::{Place, ProviderTokens};
use bearward::types::ids::{TokenId, from_base62};
use bearward::types::secret::Secret;
use rusqlite::{Connection, Row};
use serde_json::{Value, json};

use super::callbacks::INVALID_GRANT;
use super::liar::{Liar, Lies};
use super::lies::{claims, map, raw, response};
use super::{APP, SIGNED_OUT, everything, gateway, is_ready, provider};
use crate::gateway::streams::{Socket, assert_open, close_frame, open_with, within_a_second};
use crate::support::visitor::{Visitor, parameter};
use crate::support::{Gateway, Upstream};

const KEYS: &str = "scopes = [\"openid\", \"offline_access\"]\nclaims = [\"email\"]";

fn metadata() -> Value {
    json!({ "end_session_endpoint": "ISSUER/end", "revocation_endpoint": "ISSUER/revoke" })
}

/// On another thread: a reload asks new providers, and those of the test run on this one.
async fn reload(gateway: &Arc<Gateway>, upstream: &Upstream, more: &str) -> Reloaded {
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    let config = config::parse(&text, gateway.path(), Probe::None).expect("a good configuration");
    let gateway = gateway.clone();
    let reloading = tokio::task::spawn_blocking(move || gateway.running().reload(config).expect("it reloads"));
    reloading.await.expect("no panic")
}

/// Alice has a session, with a refresh token of the provider, and an open WebSocket.
async fn signed_in(liar: &Liar, gateway: &Gateway) -> (Visitor, Socket) {
    let later = gateway.now_secs() + 36_000;
    let response = map(json!({ "refresh_token": "a-refresh-token" }));
    liar.tell(Lies { response, ..claims(json!({ "exp": later })) });
    let mut alice = Visitor::of(gateway);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    let cookie = format!("__Host-bearward={}", alice.session().expect("a session"));
    let mut socket = open_with(gateway, "app.example", &[("cookie", &cookie), ("origin", APP)]).await;
    assert_open(&mut socket).await;
    (alice, socket)
}

fn rejected() -> (u16, String) {
    (1008, "sign in again".into())
}

#[tokio::test]
async fn sessions_of_another_issuer_end_and_its_tokens_stay_here() {
    let (old, new, upstream) = (Liar::start(&metadata()), Liar::start(&metadata()), Upstream::start());
    let gateway = Arc::new(gateway(&upstream, &everything(&old.issuer, KEYS)).await);
    let (mut alice, mut socket) = signed_in(&old, &gateway).await;
    let reloaded = reload(&gateway, &upstream, &everything(&new.issuer, KEYS)).await;
    assert!(reloaded.warnings.iter().any(|warning| warning.contains(&old.issuer)), "{:?}", reloaded.warnings);
    assert_eq!(within_a_second(close_frame(&mut socket)).await, rejected());
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    // Also when its tokens are due.
    gateway.advance(Duration::from_secs(700));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_eq!(old.exchanges().len(), 1);
    let tried = new.exchanges();
    let is_invented =
        |form: &BTreeMap<String, String>| form["grant_type"] == "refresh_token" && form["refresh_token"].len() == 32;
    assert!(tried.iter().all(is_invented), "no refresh token went to the new issuer: {tried:?}");
    // Nor does the ID token, with a sign-out. The browser has the cookie still.
    let ended = alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    assert_eq!(ended.header("location"), Some(SIGNED_OUT));
    // The user signs in at the new one.
    is_ready(gateway.address()).await;
    let (mut alice, mut socket) = signed_in(&new, &gateway).await;
    let ended = alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    let location = ended.header("location").expect("a redirect").to_owned();
    assert!(location.starts_with(&new.issuer) && parameter(&location, "id_token_hint").is_some(), "{location}");
    assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008);
}

#[tokio::test]
async fn sessions_of_a_removed_provider_end_with_their_streams() {
    let (main, other, upstream) = (Liar::start(&metadata()), Liar::start(&metadata()), Upstream::start());
    let both = |route: &str| {
        let route = format!("[[route]]\npath = \"/\"\nsign_in = \"{route}\"\n");
        format!("[sign_in]\nexternal_urls = [\"{APP}\"]\n{route}{}", provider("other", &other.issuer, KEYS))
    };
    let with_main = format!("{}{}", both("main"), provider("main", &main.issuer, KEYS));
    for without_main in [both("other"), "[[route]]\npath = \"/\"\npublic = true\n".to_owned()] {
        let gateway = Arc::new(gateway(&upstream, &with_main).await);
        let (mut alice, mut socket) = signed_in(&main, &gateway).await;
        let reloaded = reload(&gateway, &upstream, &without_main).await;
        assert!(reloaded.warnings.iter().any(|warning| warning.contains("main was removed")), "{reloaded:?}");
        assert_eq!(within_a_second(close_frame(&mut socket)).await, rejected());
        if without_main.contains("sign_in") {
            alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
        }
        // The provider is there again.
        assert!(reload(&gateway, &upstream, &with_main).await.warnings.is_empty());
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    }
}

#[tokio::test]
async fn a_reload_with_other_rules_says_how_to_end_the_sessions() {
    let (liar, upstream) = (Liar::start(&metadata()), Upstream::start());
    let gateway = Arc::new(gateway(&upstream, &everything(&liar.issuer, KEYS)).await);
    let (mut alice, mut socket) = signed_in(&liar, &gateway).await;
    for (keys, warns) in [
        (format!("{KEYS}\nmax_staleness = \"1h\""), false),
        (format!("{KEYS}\ngroups = [\"staff\"]"), true),
        (format!("{KEYS}\nauthorization_parameters = [\"acr_values=mfa\"]\ngroups = [\"staff\"]"), true),
    ] {
        let reloaded = reload(&gateway, &upstream, &everything(&liar.issuer, &keys)).await;
        assert_eq!(reloaded.warnings.len(), usize::from(warns), "{keys}: {:?}", reloaded.warnings);
        if warns {
            let command = format!("bearward token revoke --all --issuer {}", liar.issuer);
            assert!(reloaded.warnings[0].ends_with(&command), "{:?}", reloaded.warnings);
        }
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "{keys}");
        assert_open(&mut socket).await;
    }
    // What the command sends. The provider has dated the session by the clock of the system, which goes on.
    gateway.advance(Duration::from_mins(1));
    let all = json!({ "all": true, "issuer": liar.issuer });
    let revoked = gateway.admin_client().post("/admin/v1/revocations", &all).await;
    assert!(revoked.status.is_success(), "{revoked:?}");
    assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008);
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}

/// The provider has no UserInfo, and responds to refreshes without an ID token.
#[tokio::test]
async fn other_rules_reach_a_session_at_its_next_refresh() {
    let liar = Liar::start(&metadata());
    let upstream = Upstream::start();
    let gateway = Arc::new(gateway(&upstream, &everything(&liar.issuer, KEYS)).await);
    let (mut alice, mut socket) = signed_in(&liar, &gateway).await;
    liar.tell(response(json!({ "id_token": null, "refresh_token": "a-refresh-token" })));
    for keys in [format!("{KEYS}\nemail_domains = [\"ours.example\"]"), KEYS.to_owned()] {
        reload(&gateway, &upstream, &everything(&liar.issuer, &keys)).await;
        gateway.advance(Duration::from_secs(700));
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "{keys}");
        assert_open(&mut socket).await;
    }
    let stricter = format!("{KEYS}\nemail_domains = [\"other.example\"]");
    reload(&gateway, &upstream, &everything(&liar.issuer, &stricter)).await;
    gateway.advance(Duration::from_secs(700));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008);
}

/// Makes the only login in the store one of an older version of the gateway, which kept no claims beside the family.
fn make_older(folder: &Path, issuer: &str) {
    type Login = (String, u8, Vec<u8>, u64);
    let secret = std::fs::read_to_string(folder.join("bearward.secret")).expect("read");
    let secret = secret.trim().split_once(' ').and_then(|(_, secret)| from_base62::<32>(secret)).expect("a secret");
    let roots = Roots::new((1, Secret::new(secret.to_vec())), vec![]);
    let database = Connection::open(folder.join("bearward.db")).expect("it opens");
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?.unsigned_abs()));
    let login: Result<Login, _> = database.query_row("select id, root, sealed, version from provider_logins", [], read);
    let (id, root, sealed, version) = login.expect("a login");
    let place = Place { family: TokenId::parse(&id).expect("an id"), issuer, version };
    let mut tokens = ProviderTokens::open(root, &sealed, place, &roots).expect("it opens");
    tokens.claims = None;
    let (_, sealed) = tokens.seal(place, &roots).expect("sealed");
    database.execute("update provider_logins set sealed = ?1", [sealed]).expect("written");
}

/// It has only the claims of `provider.claims`. They decide as far as they can.
#[tokio::test]
async fn a_session_of_an_older_version_is_judged_by_what_is_known() {
    let liar = Liar::start(&metadata());
    let upstream = Upstream::start();
    let email = "claims = [\"email\", \"email_verified\"]";
    for (rule, status) in [
        ("groups = [\"staff\"]", 200),
        ("groups = [\"staff\"]\nemail_domains = [\"ours.example\"]", 200),
        ("groups = [\"staff\"]\nemail_domains = [\"other.example\"]", 401),
    ] {
        let gateway = Arc::new(gateway(&upstream, &everything(&liar.issuer, email)).await);
        let (mut alice, socket) = signed_in(&liar, &gateway).await;
        drop(socket);
        let gateway = Arc::into_inner(gateway).expect("no reload runs");
        let folder = gateway.path().to_owned();
        let gateway = gateway.restart_with(|text| {
            make_older(&folder, &liar.issuer);
            text.replace(email, &format!("{email}\n{rule}"))
        });
        is_ready(gateway.address()).await;
        alice.move_to(&gateway);
        liar.tell(response(json!({ "id_token": null })));
        gateway.advance(Duration::from_secs(700));
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, status, "{rule}");
    }
}

/// Its refresh tokens are of the old client, so that the provider rejects them.
#[tokio::test]
async fn a_reload_with_another_client_says_how_to_end_the_sessions() {
    let liar = Liar::start(&metadata());
    let upstream = Upstream::start();
    let gateway = Arc::new(gateway(&upstream, &everything(&liar.issuer, KEYS)).await);
    let (mut alice, mut socket) = signed_in(&liar, &gateway).await;
    let other = everything(&liar.issuer, KEYS).replace("client_id = \"gateway\"", "client_id = \"another\"");
    let reloaded = reload(&gateway, &upstream, &other).await;
    let warnings = &reloaded.warnings;
    let command = format!("bearward token revoke --all --issuer {}", liar.issuer);
    assert!(warnings.len() == 1 && warnings[0].contains("another client_id"), "{warnings:?}");
    assert!(warnings[0].ends_with(&command), "{warnings:?}");
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    assert_open(&mut socket).await;
    // Both: the rules, and the client.
    let both = everything(&liar.issuer, &format!("{KEYS}\ngroups = [\"staff\"]"));
    assert_eq!(reload(&gateway, &upstream, &both).await.warnings.len(), 2);
    liar.tell(raw(INVALID_GRANT));
    gateway.advance(Duration::from_secs(700));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008);
}

/// Its route asks for more, for another provider, or for no sign-in at all.
#[tokio::test]
async fn streams_of_a_sign_in_end_with_the_route_that_accepted_it() {
    let (main, other, upstream) = (Liar::start(&metadata()), Liar::start(&metadata()), Upstream::start());
    let base = format!("{}{}", everything(&main.issuer, KEYS), provider("other", &other.issuer, KEYS));
    let gateway = Arc::new(gateway(&upstream, &base).await);
    let another = "[[route]]\npath = \"/login/\"\nsign_in = \"main\"\n";
    let (mut alice, _) = signed_in(&main, &gateway).await;
    for (change, status, reason) in [
        (base.replace("sign_in = \"main\"\n", "sign_in = \"other\"\n"), 401, "bad_session"),
        (base.replace("sign_in = \"main\"\n", ""), 401, "bad_session"),
        (
            format!("{base}[[route.claim]]\npointer = \"/email\"\nequals = \"bob@ours.example\"\n"),
            403,
            "claim_rejected",
        ),
    ] {
        let base = format!("{another}{base}");
        reload(&gateway, &upstream, &base).await;
        let cookie = format!("__Host-bearward={}", alice.session().expect("a session"));
        let mut socket = open_with(&gateway, "app.example", &[("cookie", &cookie), ("origin", APP)]).await;
        assert_open(&mut socket).await;
        reload(&gateway, &upstream, &format!("{another}{change}")).await;
        assert_eq!(within_a_second(close_frame(&mut socket)).await.0, 1008, "{reason}");
        let line = gateway.log_line(|line| line["ended"] == reason).await;
        assert_eq!(line["complete"], false, "{line}");
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, status, "{reason}");
    }
}
