use base64::engine::general_purpose::STANDARD;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Response, StatusCode, header};
use serde_json::Value;

use super::*;
use crate::tokens::jwt::Algorithm;
use crate::tokens::jwt::sign::{SigningKey, generate_pem};
use crate::types::secret::Secret;

const NOW: UnixTime = UnixTime::from_secs(1_000);

fn secret(text: &str) -> Arc<Secret> {
    Arc::new(Secret::new(text.as_bytes().to_vec()))
}

fn fields(authentication: &ClientAuthentication) -> (Vec<(&'static str, String)>, Option<String>) {
    let proof = authentication.prove("a:b c", "https://login.example", NOW).expect("a proof");
    let authorization = proof.authorization.map(|value| {
        assert!(value.is_sensitive());
        let text = value.to_str().expect("text").strip_prefix("Basic ").expect("Basic").to_owned();
        String::from_utf8(STANDARD.decode(text).expect("Base64")).expect("UTF-8")
    });
    (proof.fields, authorization)
}

#[test]
fn a_secret_goes_where_the_server_expects_it() {
    let id = ("client_id", "a:b c".to_owned());
    assert_eq!(fields(&ClientAuthentication::Public), (vec![id.clone()], None));
    let basic = fields(&ClientAuthentication::SecretBasic(secret("x+%:y")));
    assert_eq!(basic, (Vec::new(), Some("a%3Ab%20c:x%2B%25%3Ay".to_owned())));
    let post = fields(&ClientAuthentication::SecretPost(secret("x+%:y")));
    assert_eq!(post, (vec![id, ("client_secret", "x+%:y".to_owned())], None));
}

#[test]
fn each_assertion_is_for_the_issuer_and_new() {
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let key = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key");
    let authentication = ClientAuthentication::Assertion(AssertionKey { key: Arc::new(key), kid: "gateway".into() });
    let claims_of = || {
        let (fields, _) = fields(&authentication);
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["client_id", "client_assertion_type", "client_assertion"]);
        let part = |index| fields[2].1.split('.').nth(index).expect("three parts").to_owned();
        let json = |text| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).expect("Base64url")).expect("JSON");
        let header: Value = json(part(0));
        let claims: Value = json(part(1));
        assert_eq!(
            (&header["alg"], &header["typ"], &header["kid"]),
            (&"ES256".into(), &"JWT".into(), &"gateway".into())
        );
        claims
    };
    let first = claims_of();
    let second = claims_of();
    for (name, expected) in [("iss", "a:b c"), ("sub", "a:b c"), ("aud", "https://login.example")] {
        assert_eq!(first[name], expected, "{name}");
    }
    assert_eq!((&first["iat"], &first["exp"]), (&1_000.into(), &1_060.into()));
    assert_ne!(first["jti"], second["jti"]);
}

#[test]
fn only_json_with_status_200_is_an_object() {
    let response = |status, media_type: &str, body: &'static str| OAuthResponse {
        status,
        media_type: media_type.to_owned(),
        body: Bytes::from_static(body.as_bytes()),
    };
    let good = response(StatusCode::OK, "application/json", r#"{"active":true}"#);
    assert_eq!(good.object().expect("an object")["active"], true);
    for (status, media_type, body) in [
        (StatusCode::OK, "text/html", r#"{"active":true}"#),
        (StatusCode::OK, "", r#"{"active":true}"#),
        (StatusCode::OK, "application/json", r#"["active"]"#),
        (StatusCode::OK, "application/json", r#"{"active":true"#),
        (StatusCode::OK, "application/json", r#"{"active":false,"active":true}"#),
        (StatusCode::CREATED, "application/json", r#"{"active":true}"#),
        (StatusCode::BAD_REQUEST, "application/json", r#"{"active":true}"#),
    ] {
        assert!(response(status, media_type, body).object().is_none(), "{status} {media_type} {body}");
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_response() {
    let body = Bytes::from_static("\u{feff}{\"access_token\":\"a\"}".as_bytes());
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).expect("a response");
    let read = OAuthResponse::of(response).unwrap_or_else(|_| panic!("it is readable"));
    assert_eq!(read.object().expect("an object")["access_token"], "a");
}

#[test]
fn a_body_that_is_json_has_no_coding() {
    let read = |coding: &str, body: &'static [u8]| {
        let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
        let response = response.header(header::CONTENT_ENCODING, coding).body(Bytes::from_static(body));
        OAuthResponse::of(response.expect("a response")).ok().map(|read| read.object().is_some())
    };
    for coding in ["", "identity", "Identity", "none", "utf-8", "gzip"] {
        assert_eq!(read(coding, b" {\"access_token\":\"a\"}"), Some(true), "{coding}");
    }
    assert_eq!(read("", b"<html>"), Some(false));
    assert_eq!(read("none", b"<html>"), None);
    assert_eq!(read("gzip", b"\x1f\x8b\x08"), None);
    assert_eq!(read("br", b"{\xff"), None);
}

#[test]
fn the_error_is_read_from_json() {
    let error = |status, body: &'static str| {
        let body = Bytes::from_static(body.as_bytes());
        OAuthResponse { status, media_type: String::new(), body }.error()
    };
    let bad = StatusCode::BAD_REQUEST;
    assert_eq!(error(bad, r#"{"error":"invalid_grant"}"#).as_deref(), Some("invalid_grant"));
    assert_eq!(error(StatusCode::OK, r#"{"error":"invalid_grant"}"#), None);
    assert_eq!(error(bad, r#"{"error_description":"invalid_grant"}"#), None);
    assert_eq!(error(bad, "{\"error\":\"a\\nb\"}"), None);
    assert_eq!(error(bad, "error=invalid_grant"), None);
}
