//! `prompt=login` and `max_age`: how new the authentication of the user must be, at the provider.

use serde_json::json;

use super::{CALLBACK, Front, OAUTH, Page, authorize};
use crate::gateway::sign_in::liar::{Liar, Lies};
use crate::support::tokens::claims_of;
use crate::support::visitor::{APP, parameter};

/// The gateway lets users choose between two providers. `more`: keys of the client `spa`.
async fn two_providers(more: &str) -> (Front, Liar) {
    let other = Liar::start(&json!({}));
    let second = format!(
        "[[provider]]\nname = \"other\"\nissuer = \"{}\"\nclient_id = \"gateway\"\n\
         client_secret_file = \"client.secret\"\n",
        other.issuer
    );
    let both = OAUTH.replace("sign_in = \"main\"\n[[oauth.scope]]", "sign_in = [\"main\", \"other\"]\n[[oauth.scope]]");
    let both = both.replace("client_id = \"spa\"\n", &format!("client_id = \"spa\"\n{more}"));
    (Front::with(&format!("{second}{both}")).await, other)
}

/// The URL of the first provider that the page of both links to.
async fn chosen(front: &mut Front, url: &str) -> String {
    let html = front.alice.navigate(url).await.text();
    let link = html.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let out = front.alice.load(&format!("{APP}{}", link.replace("&amp;", "&"))).await;
    out.header("location").expect("the provider").to_owned()
}

#[tokio::test]
async fn each_of_several_providers_learns_what_the_client_asks() {
    for (name, value) in [("prompt", "login"), ("max_age", "30"), ("login_hint", "alice"), ("ui_locales", "de en")] {
        let (mut front, _other) = two_providers("").await;
        let now = front.gateway.now_secs();
        front.liar.tell(Lies { claims: [("auth_time", json!(now))].into(), ..Lies::default() });
        let out = chosen(&mut front, &authorize(&[(name, value)])).await;
        assert!(out.starts_with(&front.liar.issuer), "{out}");
        assert_eq!(parameter(&out, name).as_deref(), Some(value));
        let page = front.alice.navigate(&front.liar.agree(&out)).await;
        assert!(page.text().contains("name=\"decision\""), "{name}: {}", page.text());
    }
}

#[tokio::test]
async fn the_users_of_a_client_sign_in_at_its_provider() {
    let (mut front, other) = two_providers("sign_in = [\"other\"]\n").await;
    // A session that began at the other provider does not count.
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let out = front.alice.navigate_until(&authorize(&[]), &other.issuer).await;
    let page = Page::of(&front.alice.navigate(&other.agree(&out)).await);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    let trusted = front.alice.navigate_until(&authorize(&[("client_id", "trusted")]), CALLBACK).await;
    assert!(parameter(&trusted, "code").is_some(), "all providers are good for it: {trusted}");
}

/// The user can remove the parameter from the URL, and the provider can ignore it.
#[tokio::test]
async fn an_authentication_that_is_too_old_is_none() {
    for (name, value) in [("prompt", "login"), ("max_age", "30")] {
        let mut front = Front::start().await;
        let yesterday = front.gateway.now_secs() - 86_400;
        front.liar.tell(Lies { claims: [("auth_time", json!(yesterday))].into(), ..Lies::default() });
        let out = front.alice.navigate_until(&authorize(&[(name, value)]), &front.liar.issuer).await;
        let page = front.alice.navigate(&front.liar.agree(&out)).await;
        assert!(!page.text().contains("name=\"decision\""), "{name}: {}", page.text());
        assert_eq!(front.alice.session(), None, "{name}");
    }
}

#[tokio::test]
async fn the_token_says_when_the_user_was_authenticated() {
    let mut front = Front::start().await;
    let yesterday = front.gateway.now_secs() - 86_400;
    front.liar.tell(Lies { claims: [("auth_time", json!(yesterday))].into(), ..Lies::default() });
    let out = front.alice.navigate_until(&authorize(&[]), &front.liar.issuer).await;
    let page = Page::of(&front.alice.navigate(&front.liar.agree(&out)).await);
    let code = parameter(&front.decide(&page, "allow").await, "code").expect("a code");
    let tokens = front.redeem(&code, &[]).await.json();
    assert_eq!(claims_of(tokens["access_token"].as_str().expect("a token"))["auth_time"], json!(yesterday));
    // The session is too old for another client that asks.
    let out = front.alice.navigate(&authorize(&[("max_age", "3600")])).await;
    assert!(
        out.header("location").is_some_and(|to| to.starts_with(&front.liar.issuer)) || out.status != 200,
        "{out:?}"
    );
}
