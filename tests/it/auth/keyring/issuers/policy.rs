//! The policy of an issuer: what its tokens must have, and which routes accept them.

use serde_json::{Value, json};

use super::{folder, issuer, mint, start_in, status};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, Upstream};

const OTHER: &str = "https://other.example";

/// A gateway that trusts the keys of two issuers: those of `EXTERNAL_ISSUER` in `one.json`, and others in `two.json`.
fn start_with_two(upstream: &Upstream, config: &[String]) -> (Mint, Mint, Gateway) {
    let (one, two, folder) = (mint(), mint(), folder());
    for (name, mint) in [("one.json", &one), ("two.json", &two)] {
        std::fs::write(folder.path().join(name), mint.jwks()).expect("written");
    }
    let text = [issuer(EXTERNAL_ISSUER, "jwks_file = \"one.json\""), config.concat()].concat();
    let gateway = start_in(folder, upstream, &text);
    (one, two, gateway)
}

fn start_with_one(upstream: &Upstream) -> (Mint, Gateway) {
    let (key, folder) = (mint(), folder());
    std::fs::write(folder.path().join("keys.json"), key.jwks()).expect("written");
    let gateway = start_in(folder, upstream, &issuer(EXTERNAL_ISSUER, "jwks_file = \"keys.json\""));
    (key, gateway)
}

#[tokio::test]
async fn a_route_can_accept_some_issuers_only() {
    let upstream = Upstream::start();
    let config = [
        issuer(OTHER, "jwks_file = \"two.json\""),
        "[[route]]\npath = \"/\"\n".into(),
        format!("[[route]]\npath = \"/partner/\"\nissuers = [\"{EXTERNAL_ISSUER}\"]\n"),
        "[[route]]\npath = \"/own/\"\nissuers = [\"https://gateway.example\"]\n".into(),
        format!(
            "[[route]]\npath = \"/both/\"\nissuers = [\"{OTHER}\", \"https://gateway.example\"]\nscopes = [\"x\"]\n"
        ),
    ];
    let (one, two, gateway) = start_with_two(&upstream, &config);
    let now = gateway.now_secs();
    let external = one.valid_token(now);
    let other = two.with_claims(now, json!({ "iss": OTHER }));
    let own = gateway.issue("alice", "x").await.access;
    // Twice, because a token that is cached from one route must not be accepted on another.
    for _ in 0..2 {
        for (token, path, expected) in [
            (&external, "/", 200),
            (&other, "/", 200),
            (&own, "/", 200),
            (&external, "/partner/1", 200),
            (&other, "/partner/1", 401),
            (&own, "/partner/1", 401),
            (&external, "/own/1", 401),
            (&other, "/own/1", 401),
            (&own, "/own/1", 200),
            (&external, "/both/1", 401),
            (&other, "/both/1", 403),
            (&own, "/both/1", 200),
        ] {
            let response = gateway.client().bearer(token).get(path).await;
            assert_eq!(response.status, expected, "{path}: {response:?}");
            if expected == 401 {
                response.assert_rejected(401, "invalid_token");
            }
        }
    }
    let passed = upstream.seen().len();
    assert_eq!(passed, 12, "only the accepted requests are forwarded");
    let lines = gateway.log_lines(24).await;
    let rejected: Vec<&Value> = lines.iter().filter(|line| line["reason"] == "issuer_not_allowed").collect();
    assert_eq!(rejected.len(), 10);
    assert!(rejected.iter().all(|line| line["path"] != "/"), "{rejected:?}");
}

#[tokio::test]
async fn subject_and_audience_are_optional_only_if_configured() {
    let upstream = Upstream::start();
    let any_audience = format!(
        "[[issuer]]\nissuer = \"{OTHER}\"\naudience = \"any\"\nalgorithms = [\"ES256\"]\n\
         jwks_file = \"two.json\"\nrequire_subject = false\n"
    );
    let (strict, lenient, gateway) = start_with_two(&upstream, &[any_audience]);
    let now = gateway.now_secs();
    for (changes, by_strict, by_lenient) in [
        (json!({}), 200, 200),
        (json!({ "sub": null }), 401, 200),
        (json!({ "sub": "" }), 401, 200),
        (json!({ "sub": 5 }), 401, 401),
        (json!({ "aud": null }), 401, 200),
        (json!({ "aud": "https://elsewhere.example" }), 401, 200),
        (json!({ "aud": 5 }), 401, 200),
        (json!({ "exp": null }), 401, 401),
        (json!({ "nbf": now + 60 }), 401, 401),
    ] {
        assert_eq!(status(&gateway, &strict.with_claims(now, changes.clone())).await, by_strict, "{changes}");
        let mut changes = changes;
        changes["iss"] = json!(OTHER);
        assert_eq!(status(&gateway, &lenient.with_claims(now, changes.clone())).await, by_lenient, "{changes}");
    }
    // Without a subject, the backend receives no subject header, also if the client sends one.
    let no_subject = lenient.with_claims(now, json!({ "iss": OTHER, "sub": null, "jti": "no-subject" }));
    let response = gateway.client().bearer(&no_subject).header("X-Auth-Subject", "root").get("/no-subject").await;
    assert_eq!(response.status, 200);
    let seen = upstream.seen().pop().expect("it arrived");
    assert_eq!((seen.header("x-auth-subject"), seen.header("x-auth-issuer")), (None, Some(OTHER)));
}

/// RFC 7800: only the client with the key may use such a token. The gateway cannot see who has it.
#[tokio::test]
async fn a_token_bound_to_a_key_is_no_bearer_unless_configured() {
    let upstream = Upstream::start();
    let ignoring = issuer(OTHER, "jwks_file = \"two.json\"\ncnf = \"ignore\"");
    let (strict, lenient, gateway) = start_with_two(&upstream, &[ignoring]);
    let now = gateway.now_secs();
    for cnf in [json!({ "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" }), json!({ "x5t#S256": "x" }), json!({})]
    {
        let bound = strict.with_claims(now, json!({ "cnf": cnf }));
        gateway.client().bearer(&bound).get("/").await.assert_rejected(401, "invalid_token");
        let ignored = lenient.with_claims(now, json!({ "iss": OTHER, "cnf": cnf }));
        assert_eq!(status(&gateway, &ignored).await, 200, "{cnf}");
    }
    assert_eq!(status(&gateway, &strict.valid_token(now)).await, 200);
    let lines = gateway.log_lines(7).await;
    assert_eq!(lines.iter().filter(|line| line["reason"] == "bound_to_key").count(), 3);
}

#[tokio::test]
async fn the_log_says_that_a_token_has_no_typ() {
    let upstream = Upstream::start();
    let (key, gateway) = start_with_one(&upstream);
    for typ in [Value::Null, json!("JWT")] {
        assert_eq!(status(&gateway, &key.with_header(gateway.now_secs(), json!({ "typ": typ }))).await, 401);
    }
    // The workers write their lines in any order.
    let mut details: Vec<_> = gateway.log_lines(2).await.iter().map(|line| line["detail"].to_string()).collect();
    details.sort();
    assert_eq!(
        details,
        [r#""no typ, which counts as JWT; accepted: at+jwt""#, r#""typ is \"JWT\"; accepted: at+jwt""#]
    );
}

/// Otherwise a backend could take the `jti` of another issuer for a token id of this gateway.
#[tokio::test]
async fn a_token_of_another_issuer_has_no_token_id() {
    let upstream = Upstream::start();
    let (key, gateway) = start_with_one(&upstream);
    let own = gateway.issue("alice", "").await;
    let foreign = key.with_claims(gateway.now_secs(), json!({ "jti": own.token_id, "sid": own.token_id }));
    for (token, expected) in [(&foreign, None), (&own.access, Some(own.token_id.as_str()))] {
        let response = gateway.client().bearer(token).header("X-Auth-Token-Id", "forged").get("/").await;
        assert_eq!(response.status, 200);
        assert_eq!(upstream.seen().pop().expect("it arrived").header("x-auth-token-id"), expected);
    }
}
