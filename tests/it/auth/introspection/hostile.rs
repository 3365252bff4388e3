//! Endpoints that fail, that say something else, or that speak of another token.

use super::endpoint::{Endpoint, active, response};
use super::*;

const JSON: &str = "application/json";

/// Responses from which nothing can be concluded about a token.
fn unusable(gateway: &Gateway) -> Vec<(&'static str, Vec<u8>)> {
    let good = active("alice.1", &json!({})).to_string();
    let truncated =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\n\r\n{good}", good.len() + 1);
    let moved = format!("HTTP/1.1 307 Moved\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n", gateway.address());
    let with = |name: &str, value| active("alice.1", &json!({ name: value })).to_string();
    let twice = good.replacen('{', "{\"active\":false,", 1);
    let padded = format!("{}{good}", " ".repeat(2 << 20));
    vec![
        ("active: \"true\"", response("200 OK", JSON, with("active", json!("true")))),
        ("active: 1", response("200 OK", JSON, with("active", json!(1)))),
        ("active: null", response("200 OK", JSON, with("active", json!(null)))),
        ("active twice", response("200 OK", JSON, twice)),
        ("an array", response("200 OK", JSON, format!("[{good}]"))),
        ("HTML with 200", response("200 OK", "text/html", "<html>active</html>")),
        ("JSON as HTML", response("200 OK", "text/html", &good)),
        ("no body", response("200 OK", JSON, "")),
        ("201", response("201 Created", JSON, &good)),
        ("401", response("401 Unauthorized", JSON, "{\"error\":\"invalid_client\"}")),
        ("403 and inactive", response("403 Forbidden", JSON, "{\"active\":false}")),
        ("404", response("404 Not Found", JSON, "{\"active\":false}")),
        ("500", response("500 Internal Server Error", JSON, &good)),
        ("a truncated body", truncated.into()),
        ("2 MiB", response("200 OK", JSON, padded)),
        ("17 KiB", response("200 OK", JSON, format!("{}{good}", " ".repeat(17 << 10)))),
        ("a redirect", moved.into()),
        ("no HTTP", "SSH-2.0-OpenSSH_9.2\r\n".into()),
        ("silence", Vec::new()),
    ]
}

#[tokio::test]
async fn without_a_usable_answer_a_token_gets_503_and_never_200() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "client_timeout = \"300ms\"");
    for (number, (what, bytes)) in unusable(&gateway).into_iter().enumerate() {
        let asked = endpoint.count();
        endpoint.respond_with(bytes);
        let token = format!("alice.{number}");
        let rejected = client(&gateway, &token).get("/").await;
        rejected.assert_rejected(503, "temporarily_unavailable");
        assert!(rejected.header("retry-after").is_some() && rejected.header("www-authenticate").is_none(), "{what}");
        assert_eq!(endpoint.count(), asked + 1, "{what}: asked once");
        // Nothing was concluded.
        endpoint.answer_json(|_| json!({}));
        assert_eq!(status(&gateway, &token).await, 200, "{what}");
    }
    let line = gateway.log_line(|line| line["status"] == 503).await;
    assert_eq!(line["reason"], "introspection_unavailable");
    assert!(upstream.seen().iter().all(|seen| seen.header("x-auth-subject") == Some("alice")));
}

/// An answer that has become too old is not used.
#[tokio::test]
async fn a_provider_that_is_down_opens_nothing() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    assert_eq!(status(&gateway, "alice.1").await, 200);
    drop(endpoint);
    assert_eq!((status(&gateway, "alice.1").await, status(&gateway, "bob.1").await), (200, 503), "one is cached");
    gateway.advance(MINUTE);
    assert_eq!(status(&gateway, "alice.1").await, 503);
    assert_eq!(gateway.metric("bearward_introspections_total{outcome=\"failed\"}").await, 2.0);
}

#[tokio::test]
async fn an_answer_about_another_kind_of_token_is_rejected() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    for (number, (changes, reason)) in [
        (json!({ "aud": "https://other.example" }), "wrong_audience"),
        (json!({ "aud": null }), "wrong_audience"),
        (json!({ "token_type": null }), "wrong_type"),
        (json!({ "token_type": "refresh_token" }), "wrong_type"),
        (json!({ "token_use": "refresh_token" }), "wrong_type"),
        (json!({ "typ": "ID" }), "wrong_type"),
        (json!({ "iss": "https://other.example" }), "unknown_issuer"),
        (json!({ "cnf": { "x5t#S256": "x" } }), "bound_to_key"),
        (json!({ "token_type": "DPoP" }), "bound_to_key"),
        (json!({ "sub": null }), "bad_claims"),
        (json!({ "exp": 1 }), "expired"),
        (json!({ "exp": 1e17 }), "bad_claims"),
        (json!({ "exp": 200_000_000_000_u64 }), "lifetime_too_long"),
        (json!({ "nbf": 200_000_000_000_u64 }), "not_yet_valid"),
        (json!({ "scope": ["a b"] }), "bad_claims"),
    ]
    .into_iter()
    .enumerate()
    {
        let described = changes.to_string();
        endpoint.answer_json(move |_| changes.clone());
        let rejected = client(&gateway, &format!("alice.{number}")).get("/").await;
        assert_eq!(rejected.status, 401, "{described}");
        let logged = gateway.log_lines(number + 1).await;
        assert_eq!(logged[number]["reason"], reason, "{described}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn what_an_answer_need_not_have_is_the_choice_of_the_operator() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let of_issuer = "cnf = \"ignore\"\nrequire_subject = false";
    let lax = "require_token_type = false";
    for (more, changes, expected) in [
        (lax, json!({ "token_type": null, "iss": null, "cnf": {}, "sub": null }), 200),
        (lax, json!({ "token_type": "DPoP" }), 200),
        ("require_iss = true", json!({ "iss": null }), 401),
        ("require_iss = true", json!({}), 200),
    ] {
        let gateway = start(&upstream, &issuer(LOGIN, &endpoint, of_issuer, more));
        endpoint.answer_json(move |_| changes.clone());
        assert_eq!(status(&gateway, "alice.1").await, expected, "{more}");
    }
}

/// Nothing in an answer about an opaque token names it. So each question has a connection of its own, on which only the
/// first answer in time counts.
#[tokio::test]
async fn an_answer_about_another_token_is_never_used() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "client_timeout = \"300ms\"");
    let other = response("200 OK", JSON, active("root.1", &json!({ "scope": "write" })).to_string());
    let ahead = other.clone();
    endpoint.respond(move |token| {
        let own = response("200 OK", JSON, active(token, &json!({})).to_string());
        [own, ahead.clone(), ahead.clone()].concat()
    });
    for subject in ["alice", "bob"] {
        upstream.forget();
        assert_eq!(status(&gateway, &format!("{subject}.1")).await, 200);
        assert_eq!(upstream.only_request().header("x-auth-subject"), Some(subject));
    }
    // An answer that comes after the time limit, when the next token is asked about.
    endpoint.hold();
    assert_eq!(status(&gateway, "carol.1").await, 503);
    endpoint.respond(move |token| match token {
        "carol.1" => other.clone(),
        token => response("200 OK", JSON, active(token, &json!({})).to_string()),
    });
    endpoint.release(100);
    upstream.forget();
    assert_eq!(status(&gateway, "dora.1").await, 200);
    assert_eq!(upstream.only_request().header("x-auth-subject"), Some("dora"));
}

/// A JWT says itself which one it is.
#[tokio::test]
async fn an_answer_with_the_jti_of_another_jwt_is_none() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let claims = json!({ "iss": LOGIN, "jti": "of alice", "sub": "alice" });
    let jwt = Mint::new(Algorithm::ES256).with_claims(gateway.now_secs(), claims);
    endpoint.answer_json(|_| json!({ "jti": "of root", "sub": "root" }));
    client(&gateway, &jwt).get("/").await.assert_rejected(503, "temporarily_unavailable");
    assert!(upstream.seen().is_empty());
    endpoint.answer_json(|_| json!({ "jti": "of alice", "sub": "alice" }));
    assert_eq!(status(&gateway, &jwt).await, 200);
}
