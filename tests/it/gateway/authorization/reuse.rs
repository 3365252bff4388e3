//! `oauth.reuse`: a spent refresh token of a grant comes back without a proof.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{CALLBACK, Front, MCP, NOTES, OAUTH, Page, VERIFIER, authorize};
use crate::gateway::oauth::post;
use crate::support::prover::Prover;
use crate::support::visitor::parameter;
use crate::support::{Client, Gateway, TestResponse, secrets};

const HOME: &str = "192.0.2.7";
const CAFE: &str = "198.51.100.9";

/// Longer than `tokens.refresh_grace`.
const LATER: Duration = Duration::from_mins(5);

/// `keys`: of `[oauth]`. The address of a client is what it says, as if a proxy did.
async fn front(keys: &str) -> Front {
    let oauth = OAUTH.replace("[oauth]\n", &format!("[oauth]\n{keys}\n"));
    Front::with(&format!("{oauth}[forwarding]\ntrusted = [\"127.0.0.1\"]\n")).await
}

async fn same_address() -> Front {
    front("reuse = \"same_address\"").await
}

/// A client at this address.
fn client(gateway: &Gateway, address: &str) -> Client {
    gateway.client().host("app.example").header("x-forwarded-for", address)
}

/// Tokens, as a client keeps them.
#[derive(Clone)]
struct Kept {
    access: Value,
    refresh: String,
}

impl Kept {
    #[track_caller]
    fn of(response: &TestResponse) -> Kept {
        assert_eq!(response.status, 200, "{}", response.text());
        let tokens = response.json();
        let refresh = tokens["refresh_token"].as_str().expect("a token").to_owned();
        let access = tokens["access_token"].clone();
        secrets::remember(&refresh);
        secrets::remember(access.as_str().expect("a token"));
        Kept { access, refresh }
    }
}

async fn refresh(front: &Front, kept: &Kept, address: &str) -> TestResponse {
    refresh_by(client(&front.gateway, address), kept).await
}

async fn refresh_by(client: Client, kept: &Kept) -> TestResponse {
    let form = [("grant_type", "refresh_token"), ("refresh_token", &*kept.refresh), ("client_id", "spa")];
    post(client, "/oauth/token", &form).await
}

impl Front {
    /// The user agrees to this request, in the session of the browser if there is one.
    async fn grant(&mut self, url: &str) -> Kept {
        let code = match self.alice.session() {
            None => self.code(url).await,
            Some(_) => {
                let page = Page::of(&self.alice.navigate(url).await);
                parameter(&self.decide(&page, "allow").await, "code").expect("a code")
            }
        };
        Kept::of(&self.redeem(&code, &[]).await)
    }

    /// A grant, and the tokens after its first refresh, which came from this address and are in use.
    async fn refreshed_at(&mut self, address: &str) -> (Kept, Kept) {
        let first = self.grant(&authorize(&[])).await;
        let second = Kept::of(&refresh(self, &first, address).await);
        assert_eq!(self.status("/mcp", &second.access).await, 200);
        self.gateway.advance(LATER);
        (first, second)
    }

    async fn assert_lives(&self, kept: &Kept, address: &str) -> Kept {
        assert_eq!(self.status("/mcp", &kept.access).await, 200);
        Kept::of(&refresh(self, kept, address).await)
    }

    async fn assert_ended(&self, kept: &Kept, address: &str) {
        assert_eq!(self.status("/mcp", &kept.access).await, 401);
        refresh(self, kept, address).await.assert_rejected(400, "invalid_grant");
    }
}

/// Hostile case 64.
#[tokio::test]
async fn a_spent_token_from_another_address_ends_the_session() {
    let mut front = same_address().await;
    let (first, second) = front.refreshed_at(HOME).await;
    refresh(&front, &first, CAFE).await.assert_rejected(400, "invalid_grant");
    front.assert_ended(&second, HOME).await;
    front.gateway.log_line(|line| line["reason"] == "grant_reused").await;
}

/// Hostile case 65.
#[tokio::test]
async fn a_spent_token_from_the_same_address_ends_nothing_until_the_user_agrees_again() {
    let mut front = same_address().await;
    let (first, second) = front.refreshed_at(HOME).await;
    let late = refresh(&front, &first, HOME).await;
    late.assert_rejected(400, "invalid_grant");
    assert!(late.json().get("access_token").is_none() && late.json().get("refresh_token").is_none());
    front.gateway.log_line(|line| line["reason"] == "grant_superseded" && line["status"] == 400).await;
    let third = front.assert_lives(&second, HOME).await;

    let new = front.grant(&authorize(&[])).await;
    front.assert_ended(&third, HOME).await;
    assert_eq!(front.status("/mcp", &new.access).await, 200);
    let event = |events: &[Value], name: &str, reason: &Value| {
        events.iter().any(|event| event["event"] == name && event["reason"] == *reason)
    };
    let events = front.gateway.audit_events(10).await;
    assert!(event(&events, "refresh.superseded", &Value::Null), "{events:?}");
    assert!(event(&events, "token.revoked", &json!("superseded")), "{events:?}");
    assert!(!events.iter().any(|event| event["event"] == "refresh.reuse_detected"), "{events:?}");
    let ended = front.gateway.admin_client().get("/admin/v1/tokens/ended?reason=superseded").await.json();
    assert_eq!(ended["ended"][0]["reason"], "superseded", "{ended}");
    let reused = front.gateway.admin_client().get("/admin/v1/tokens/ended?reason=reuse").await.json();
    assert_eq!(reused["ended"], json!([]));
    let sessions = front.gateway.admin_client().get("/admin/v1/subjects/main%7Calice/tokens").await.json();
    let reasons: Vec<_> = sessions["tokens"].as_array().expect("a list").iter().map(|token| &token["reason"]).collect();
    assert!(reasons.contains(&&json!("superseded")), "{sessions}");
}

/// The rule of RFC 9700 section 4.14.2, and the default.
#[tokio::test]
async fn by_default_each_spent_token_ends_the_session() {
    for keys in ["", "reuse = \"end\"\nreuse_window = \"2h\""] {
        let mut front = front(keys).await;
        let (first, second) = front.refreshed_at(HOME).await;
        refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
        front.assert_ended(&second, HOME).await;
    }
}

#[tokio::test]
async fn a_reload_changes_the_rule() {
    let mut front = front("").await;
    let (first, second) = front.refreshed_at(HOME).await;
    let text = front.gateway.configuration().replace("[oauth]\n", "[oauth]\nreuse = \"same_address\"\n");
    front.gateway.running().reload(front.gateway.parse(&text)).expect("it reloads");
    refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
    front.assert_lives(&second, HOME).await;
}

/// A command line refreshes in five processes at once. A copy of its store comes later.
#[tokio::test]
async fn of_two_copies_of_a_store_only_the_late_one_asks_its_user() {
    let mut front = same_address().await;
    let copied = front.grant(&authorize(&[])).await;
    let five = join_all((0..5).map(|_| refresh(&front, &copied, HOME))).await;
    let five: Vec<Kept> = five.iter().map(Kept::of).collect();
    assert!(five.iter().all(|kept| kept.refresh == five[0].refresh), "one child for all");
    assert_eq!(front.status("/mcp", &five[0].access).await, 200);
    front.gateway.advance(LATER);
    let newest = front.assert_lives(&five[0], HOME).await;
    assert_eq!(front.status("/mcp", &newest.access).await, 200);
    front.gateway.advance(LATER);
    refresh(&front, &copied, HOME).await.assert_rejected(400, "invalid_grant");
    front.assert_lives(&newest, HOME).await;
}

/// The same with keys: DPoP.
#[tokio::test]
async fn copies_of_a_store_with_the_key_ask_no_user_again() {
    let mut front = same_address().await;
    let prover = Prover::new();
    let code = front.code(&authorize(&[])).await;
    let send = async |form: &[(&str, &str)], address: &str| {
        let proof = prover.proof("POST", "http://app.example/oauth/token", "", front.gateway.now_secs());
        post(client(&front.gateway, address).header("dpop", &proof), "/oauth/token", form).await
    };
    let redeem = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("client_id", "spa"),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    let refreshed = async |kept: &Kept, address: &str| {
        let form = [("grant_type", "refresh_token"), ("refresh_token", &*kept.refresh), ("client_id", "spa")];
        Kept::of(&send(&form, address).await)
    };
    let copied = Kept::of(&send(&redeem, HOME).await);
    let five = join_all((0..5).map(|_| refreshed(&copied, HOME))).await;
    front.gateway.advance(LATER);
    let third = refreshed(&five[0], HOME).await;
    front.gateway.advance(LATER);
    for address in [HOME, CAFE] {
        assert_eq!(refreshed(&copied, address).await.refresh, third.refresh, "the newest one");
    }
    // Without the key, from anywhere.
    for address in [HOME, CAFE] {
        refresh(&front, &copied, address).await.assert_rejected(400, "invalid_dpop_proof");
    }
    refreshed(&third, HOME).await;
}

#[tokio::test]
async fn a_thief_elsewhere_who_refreshed_first_is_noticed_by_the_owner() {
    let mut front = same_address().await;
    let stolen = front.grant(&authorize(&[])).await;
    let of_thief = Kept::of(&refresh(&front, &stolen, CAFE).await);
    assert_eq!(front.status("/mcp", &of_thief.access).await, 200);
    front.gateway.advance(LATER);
    refresh(&front, &stolen, HOME).await.assert_rejected(400, "invalid_grant");
    front.assert_ended(&of_thief, CAFE).await;
}

/// Both clients have its address, and only one is the owner.
#[tokio::test]
async fn the_address_of_a_proxy_that_names_no_client_is_that_of_no_client() {
    let mut front = same_address().await;
    let first = front.grant(&authorize(&[])).await;
    let unnamed = async |kept: &Kept| refresh_by(front.gateway.client().host("app.example"), kept).await;
    let second = Kept::of(&unnamed(&first).await);
    assert_eq!(front.status("/mcp", &second.access).await, 200);
    front.gateway.advance(LATER);
    unnamed(&first).await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/mcp", &second.access).await, 401);
    front.gateway.log_line(|line| line["reason"] == "grant_reused").await;
}

/// The accepted risk, and its end.
#[tokio::test]
async fn a_thief_at_the_address_of_the_owner_ends_when_the_owner_agrees_again() {
    let mut front = same_address().await;
    let stolen = front.grant(&authorize(&[])).await;
    let of_thief = Kept::of(&refresh(&front, &stolen, HOME).await);
    assert_eq!(front.status("/mcp", &of_thief.access).await, 200);
    front.gateway.advance(LATER);
    refresh(&front, &stolen, HOME).await.assert_rejected(400, "invalid_grant");
    let of_thief = front.assert_lives(&of_thief, HOME).await;
    let of_owner = front.grant(&authorize(&[])).await;
    front.assert_ended(&of_thief, HOME).await;
    front.assert_lives(&of_owner, HOME).await;
}

#[tokio::test]
async fn the_eleventh_late_refresh_and_one_after_the_window_end_the_session() {
    let mut front = same_address().await;
    let (first, second) = front.refreshed_at(HOME).await;
    for _ in 0..10 {
        refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
    }
    // A refresh begins no window of its own.
    let third = front.assert_lives(&second, HOME).await;
    assert_eq!(front.status("/mcp", &third.access).await, 200);
    front.gateway.advance(LATER);
    refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/mcp", &third.access).await, 401);

    let (first, second) = front.refreshed_at(HOME).await;
    front.gateway.advance(Duration::from_hours(1));
    refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
    refresh(&front, &second, HOME).await.assert_rejected(400, "invalid_grant");
}

/// Another resource, another client and another user have sessions of their own.
#[tokio::test]
async fn only_a_grant_of_the_same_client_and_resource_ends_the_session() {
    let mut front = same_address().await;
    let (first, second) = front.refreshed_at(HOME).await;
    refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
    front.grant(&authorize(&[("resource", NOTES)])).await;
    let page = Page::of(&front.alice.navigate(&authorize(&[("client_id", "cli"), ("redirect_uri", LOOPBACK)])).await);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    let of_cli = front.redeem(&code, &[("client_id", "cli"), ("redirect_uri", LOOPBACK)]).await;
    assert_eq!(of_cli.status, 200, "{}", of_cli.text());
    let third = front.assert_lives(&second, HOME).await;
    front.grant(&format!("{}&resource={MCP}&resource={NOTES}", authorize(&[]))).await;
    front.assert_ended(&third, HOME).await;
}

const LOOPBACK: &str = "http://127.0.0.1:1/callback";

/// A session that no late refresh has marked goes on beside a new grant: another device.
#[tokio::test]
async fn a_grant_ends_no_session_without_a_late_refresh() {
    let mut front = same_address().await;
    let (_, second) = front.refreshed_at(HOME).await;
    front.grant(&authorize(&[])).await;
    front.assert_lives(&second, HOME).await;
}

/// The rule is about grants at the authorization endpoint.
#[tokio::test]
async fn a_login_that_no_user_granted_keeps_its_rule() {
    let front = same_address().await;
    let login = json!({ "sub": "main|alice", "clientId": "spa" });
    let login = front.gateway.request_tokens(&login).await.json();
    let first = login["refreshToken"].as_str().expect("a token").to_owned();
    let first = Kept { access: login["accessToken"].clone(), refresh: first };
    let second = Kept::of(&refresh(&front, &first, HOME).await);
    let status = async |kept: &Kept| front.status("/orders", &kept.access).await;
    assert_eq!(status(&second).await, 200);
    front.gateway.advance(LATER);
    refresh(&front, &first, HOME).await.assert_rejected(400, "invalid_grant");
    assert_eq!(status(&second).await, 401);
}
