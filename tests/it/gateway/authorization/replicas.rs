//! Two gateways on one PostgreSQL: the browser and the client may be at another one at each step.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tempfile::TempDir;

use super::{CALLBACK, OAUTH, Page, VERIFIER, authorize};
use crate::gateway::oauth::post;
use crate::gateway::sign_in::liar::Liar;
use crate::gateway::streams;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::visitor::{APP, Visitor, parameter};
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, TestResponse, Upstream};

struct Replicas {
    liar: Liar,
    _upstream: Upstream,
    gateways: [Gateway; 2],
    alice: Visitor,
    /// The configuration of both.
    text: String,
}

impl Replicas {
    async fn start() -> Replicas {
        Replicas::with(OAUTH).await
    }

    /// `oauth`: the configuration after the provider.
    async fn with(oauth: &str) -> Replicas {
        let liar = Liar::start(&json!({}));
        let upstream = Upstream::start();
        let store = PostgresServer::shared().store_keys();
        let more = format!(
            "[store]\n{store}\n[[provider]]\nname = \"main\"\nissuer = \"{}\"\nclient_id = \"gateway\"\n\
             client_secret_file = \"client.secret\"\n{oauth}",
            liar.issuer
        );
        let text = Gateway::config_text(&upstream.address.to_string(), &more).replace("https://gateway.example", APP);
        let clock = Arc::new(ManualClock::new());
        let folders = [(), ()].map(|()| Arc::new(TempDir::new().expect("a folder")));
        for folder in &folders {
            let secret = folder.path().join("client.secret");
            bearward::types::secret::write_private(&secret, b"of the gateway").expect("written");
        }
        let start = |number: usize| Gateway::in_folder(text.clone(), folders[number].clone(), clock.clone());
        let first = start(0);
        let root = |number: usize| folders[number].path().join("bearward.secret");
        std::fs::copy(root(0), root(1)).expect("copied");
        let gateways = [first, start(1)];
        for gateway in &gateways {
            eventually_within(TIMEOUT, "the metadata of the provider are known", async || {
                match Visitor::of(gateway).load(&format!("{APP}/oauth2/sign_in/main")).await.status.as_u16() {
                    302 => Ok(()),
                    status => Err(status.to_string()),
                }
            })
            .await;
        }
        let alice = Visitor::of(&gateways[0]);
        Replicas { liar, _upstream: upstream, gateways, alice, text }
    }

    /// The browser goes on at this gateway.
    fn move_to(&mut self, number: usize) {
        self.alice.move_to(&self.gateways[number]);
    }

    /// The code, with each step at the other gateway.
    async fn code(&mut self) -> String {
        let request = self.alice.load(&authorize(&[])).await;
        let consent = request.header("location").expect("the consent page").to_owned();
        self.move_to(1);
        let out = self.alice.navigate_until(&consent, &self.liar.issuer).await;
        self.move_to(0);
        let back = self.liar.agree(&out);
        let returned = self.alice.load(&back).await;
        let consent = returned.header("location").expect("the consent page").to_owned();
        self.move_to(1);
        let page = Page::of(&self.alice.load(&consent).await);
        self.move_to(0);
        let answer = self.alice.submit(&format!("{APP}/oauth/consent"), &page.form("allow")).await;
        parameter(answer.header("location").expect("the client"), "code").expect("a code")
    }

    async fn redeem(&self, number: usize, code: &str) -> TestResponse {
        post(self.gateways[number].client().host("app.example"), "/oauth/token", &redeemed(code)).await
    }

    async fn refresh(&self, number: usize, token: &str) -> TestResponse {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token), ("client_id", "spa")];
        post(self.gateways[number].client().host("app.example"), "/oauth/token", &form).await
    }

    async fn status(&self, number: usize, token: &str) -> u16 {
        self.gateways[number].client().host("app.example").bearer(token).get("/mcp").await.status.as_u16()
    }
}

/// The form of a client that redeems a code.
fn redeemed(code: &str) -> [(&str, &str); 5] {
    [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("client_id", "spa"),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ]
}

#[tokio::test]
async fn each_step_can_be_at_the_other_gateway() {
    let mut both = Replicas::start().await;
    let code = both.code().await;
    let tokens = both.redeem(1, &code).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    let access = tokens.json()["access_token"].as_str().expect("a token").to_owned();
    for number in [0, 1] {
        assert_eq!(both.status(number, &access).await, 200);
    }
    // The second use, at the other gateway, ends the session at both.
    both.redeem(0, &code).await.assert_rejected(400, "invalid_grant");
    assert_eq!(both.status(0, &access).await, 401);
    eventually_within(TIMEOUT, "the other gateway knows it", async || match both.status(1, &access).await {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}

#[tokio::test]
async fn of_two_uses_at_two_gateways_at_once_one_gets_tokens() {
    let mut both = Replicas::start().await;
    for _ in 0..5 {
        let code = both.code_again().await;
        let (one, other) = tokio::join!(both.redeem(0, &code), both.redeem(1, &code));
        let mut statuses = [one.status.as_u16(), other.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400], "{} {}", one.text(), other.text());
        let tokens = if one.status == 200 { one.json() } else { other.json() };
        let access = tokens["access_token"].as_str().expect("a token").to_owned();
        for number in [0, 1] {
            eventually_within(TIMEOUT, "the session has ended", async || match both.status(number, &access).await {
                401 => Ok(()),
                status => Err(status.to_string()),
            })
            .await;
        }
    }
}

impl Replicas {
    /// A code of the session that the browser has, or gets.
    async fn code_again(&mut self) -> String {
        if self.alice.session().is_none() {
            return self.code().await;
        }
        let page = Page::of(&self.alice.navigate(&authorize(&[])).await);
        let answer = self.alice.submit(&format!("{APP}/oauth/consent"), &page.form("allow")).await;
        parameter(answer.header("location").expect("the client"), "code").expect("a code")
    }
}

fn text(tokens: &TestResponse, member: &str) -> String {
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    tokens.json()[member].as_str().expect("a text").to_owned()
}

/// Hostile case 67. Both gateways are at the address of the client, so that all late refreshes come from it.
#[tokio::test]
async fn a_late_refresh_and_the_next_grant_count_at_both_gateways() {
    let rule = "[oauth]\nreuse = \"same_address\"\n";
    let mut both = Replicas::with(&OAUTH.replace("[oauth]\n", rule)).await;
    let code = both.code().await;
    let first = text(&both.redeem(1, &code).await, "refresh_token");
    let five = join_all((0..5).map(|number| both.refresh(number % 2, &first))).await;
    let second = text(&five[0], "refresh_token");
    assert!(five.iter().all(|tokens| text(tokens, "refresh_token") == second), "one child for all");
    let access = text(&five[0], "access_token");
    for number in [0, 1] {
        assert_eq!(both.status(number, &access).await, 200);
    }
    both.gateways[0].clock.advance(Duration::from_mins(5));
    let late = join_all((0..10).map(|number| both.refresh(number % 2, &first))).await;
    for tokens in late {
        tokens.assert_rejected(400, "invalid_grant");
    }
    for number in [0, 1] {
        assert_eq!(both.status(number, &access).await, 200);
    }
    let third = text(&both.refresh(0, &second).await, "refresh_token");
    let code = both.code_again().await;
    let new = text(&both.redeem(0, &code).await, "access_token");
    assert_eq!(both.status(0, &access).await, 401);
    both.refresh(1, &third).await.assert_rejected(400, "invalid_grant");
    eventually_within(TIMEOUT, "the other gateway knows it", async || match both.status(1, &access).await {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    assert_eq!(both.status(1, &new).await, 200);
}

/// The eleventh ends the session, wherever it comes.
#[tokio::test]
async fn late_refreshes_at_two_gateways_at_once_end_the_session_once() {
    let rule = "[oauth]\nreuse = \"same_address\"\n";
    let mut both = Replicas::with(&OAUTH.replace("[oauth]\n", rule)).await;
    let code = both.code().await;
    let first = text(&both.redeem(1, &code).await, "refresh_token");
    let access = text(&both.refresh(0, &first).await, "access_token");
    for number in [0, 1] {
        assert_eq!(both.status(number, &access).await, 200);
    }
    both.gateways[0].clock.advance(Duration::from_mins(5));
    let late = join_all((0..14).map(|number| both.refresh(number % 2, &first))).await;
    for tokens in late {
        tokens.assert_rejected(400, "invalid_grant");
    }
    let mut counts = [0.0; 2];
    for (number, outcome) in [(0, "superseded"), (1, "reused")] {
        for gateway in &both.gateways {
            counts[number] += gateway.metric(&format!("bearward_refreshes_total{{outcome=\"{outcome}\"}}")).await;
        }
    }
    assert_eq!(counts, [10.0, 1.0]);
    eventually_within(TIMEOUT, "both gateways know it", async || {
        match [both.status(0, &access).await, both.status(1, &access).await] {
            [401, 401] => Ok(()),
            statuses => Err(format!("{statuses:?}")),
        }
    })
    .await;
}

/// Hostile case 86. The operator is at one gateway, the stream at the other.
#[tokio::test]
async fn a_stream_of_a_revoked_client_ends_at_the_other_gateway() {
    let mut both = Replicas::start().await;
    let code = both.code().await;
    let tokens = both.redeem(1, &code).await.json();
    let bearer = format!("Bearer {}", tokens["access_token"].as_str().expect("a token"));
    let mut stream =
        streams::open_at(&both.gateways[1], "ws://app.example/mcp", &[("authorization", bearer.as_str())]).await;
    streams::assert_open(&mut stream).await;
    let revoke = both.gateways[0].admin_client();
    let ended = streams::within_a_second(async {
        assert_eq!(revoke.delete("/admin/v1/clients/spa/tokens").await.status, 200);
        streams::close_frame(&mut stream).await
    });
    assert_eq!(ended.await, streams::revoked());
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", "spa")];
    for gateway in &both.gateways {
        let refreshed = post(gateway.client().host("app.example"), "/oauth/token", &form).await;
        refreshed.assert_rejected(400, "invalid_grant");
    }
    for gateway in &both.gateways {
        gateway.advance(std::time::Duration::from_secs(1));
    }
    let code = both.code_again().await;
    let later = both.redeem(0, &code).await;
    assert_eq!(later.status, 200, "{}", later.text());
    assert_eq!(both.status(1, later.json()["access_token"].as_str().expect("a token")).await, 200);
}

/// A client repeats its request at another gateway, and the one that was stopped reads the old request when it goes on.
#[tokio::test]
async fn a_stopped_gateway_takes_no_repeated_code_for_theft() {
    let mut both = Replicas::with(&format!("[timeouts]\nstore = \"1s\"\n{OAUTH}")).await;
    let folder = TempDir::new().expect("a folder");
    for name in ["bearward.secret", "client.secret"] {
        std::fs::copy(both.gateways[0].path().join(name), folder.path().join(name)).expect("copied");
    }
    std::fs::write(folder.path().join("gateway.toml"), &both.text).expect("written");
    let third = GatewayProcess::start(folder.path());
    let code = both.code().await;
    third.program.signal("STOP");
    let client = third.client().host("app.example");
    let sent = code.clone();
    let old = tokio::spawn(async move { post(client, "/oauth/token", &redeemed(&sent)).await });
    // Longer than `timeouts.store`.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let tokens = both.redeem(0, &code).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    third.program.signal("CONT");
    let old = old.await.expect("no panic");
    assert_eq!((old.status.as_u16(), &old.json()["error"]), (503, &json!("temporarily_unavailable")), "{}", old.text());
    let refreshed = both.refresh(0, &text(&tokens, "refresh_token")).await;
    assert_eq!(refreshed.status, 200, "{}", refreshed.text());
}
