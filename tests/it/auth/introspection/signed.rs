//! Signed answers (RFC 9701).

use serde_json::Value;

use super::endpoint::{Endpoint, active, response};
use super::*;

const SIGNED: &str = "application/token-introspection+jwt";

/// A gateway that wants signed answers, and the key that signs them.
fn asking_for_signed(upstream: &Upstream, endpoint: &Endpoint) -> (Gateway, Mint) {
    let mint = Mint::new(Algorithm::ES256);
    let folder = Arc::new(TempDir::new().expect("a folder"));
    write_client_secret(folder.path());
    std::fs::write(folder.path().join("jwks.json"), mint.jwks()).expect("written");
    let keys = "algorithms = [\"ES256\"]\njwks_file = \"jwks.json\"";
    let text =
        Gateway::config_text(&upstream.address.to_string(), &issuer(LOGIN, endpoint, keys, "response = \"jwt\""));
    (Gateway::in_folder(text, folder, Arc::new(ManualClock::new())), mint)
}

fn sign(mint: &Mint, now: u64, header: Value, outer: Value, inner: &Value) -> String {
    let mut head = mint.header();
    head["typ"] = json!("token-introspection+jwt");
    head.as_object_mut().expect("an object").extend(header.as_object().expect("an object").clone());
    let mut claims =
        json!({ "iss": LOGIN, "aud": "gate way", "iat": now, "token_introspection": active("alice.1", inner) });
    claims.as_object_mut().expect("an object").extend(outer.as_object().expect("an object").clone());
    mint.sign(&head, &claims)
}

#[tokio::test]
async fn only_a_signed_answer_to_this_client_counts() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let (gateway, mint) = asking_for_signed(&upstream, &endpoint);
    let (now, none) = (gateway.now_secs(), json!({}));
    let answer = |header: Value, outer: Value| sign(&mint, now, header, outer, &none);
    let good = answer(none.clone(), none.clone());
    let stranger = sign(&Mint::new(Algorithm::ES256), now, none.clone(), none.clone(), &none);
    let (start, end) = good.rsplit_once('.').expect("a signature");
    let forged = format!("{start}.{}", end.chars().rev().collect::<String>());
    for (number, (what, media_type, body, expected)) in [
        ("good", SIGNED, good.clone(), 200),
        ("with the long typ", SIGNED, answer(json!({ "typ": SIGNED }), none.clone()), 200),
        ("several audiences", SIGNED, answer(none.clone(), json!({ "aud": ["x", "gate way"] })), 200),
        ("unsigned", "application/json", active("alice.1", &none).to_string(), 503),
        ("signed, as JSON", "application/json", good.clone(), 503),
        ("unsigned, as signed", SIGNED, active("alice.1", &none).to_string(), 503),
        ("for another client", SIGNED, answer(none.clone(), json!({ "aud": "other" })), 503),
        ("for our API", SIGNED, answer(none.clone(), json!({ "aud": AUDIENCE })), 503),
        ("of another issuer", SIGNED, answer(none.clone(), json!({ "iss": "https://other.example" })), 503),
        ("an access token", SIGNED, answer(json!({ "typ": "at+jwt" }), none.clone()), 503),
        ("no typ", SIGNED, answer(json!({ "typ": null }), none.clone()), 503),
        ("a minute old", SIGNED, answer(none.clone(), json!({ "iat": now - 91 })), 503),
        ("of the future", SIGNED, answer(none.clone(), json!({ "iat": now + 31 })), 503),
        ("without iat", SIGNED, answer(none.clone(), json!({ "iat": null })), 503),
        ("expired", SIGNED, answer(none.clone(), json!({ "exp": now - 31 })), 503),
        ("no object", SIGNED, answer(none.clone(), json!({ "token_introspection": true })), 503),
        ("active outside", SIGNED, answer(none.clone(), json!({ "token_introspection": {}, "active": true })), 503),
        ("another key", SIGNED, stranger, 503),
        ("another signature", SIGNED, forged, 503),
    ]
    .into_iter()
    .enumerate()
    {
        endpoint.respond_with(response("200 OK", media_type, body));
        assert_eq!(status(&gateway, &format!("alice.{number}")).await, expected, "{what}");
    }
    let asked = endpoint.questions();
    assert!(asked[0].head.contains(&format!("accept: {SIGNED}\r\n")), "{}", asked[0].head);
    // The answer itself is no access token.
    assert_eq!((status(&gateway, &good).await, endpoint.count()), (401, asked.len()));
}

#[tokio::test]
async fn the_inner_part_of_a_signed_answer_is_judged() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let (gateway, mint) = asking_for_signed(&upstream, &endpoint);
    for (number, (inner, expected)) in [
        (json!({ "aud": "https://other.example" }), 401),
        (json!({ "active": false }), 401),
        (json!({ "active": "true" }), 503),
        (json!({ "token_type": null }), 401),
        (json!({ "iss": "https://other.example" }), 401),
    ]
    .into_iter()
    .enumerate()
    {
        // Its own audience and issuer are good.
        let answer = sign(&mint, gateway.now_secs(), json!({}), json!({}), &inner);
        endpoint.respond_with(response("200 OK", SIGNED, answer));
        assert_eq!(status(&gateway, &format!("alice.{number}")).await, expected, "{inner}");
    }
}
