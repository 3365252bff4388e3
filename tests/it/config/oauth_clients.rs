//! `[[oauth.client]]`

use std::time::Duration;

use bearward::config::{self, Config, Probe};
use bearward::tokens::jwt::Algorithm;

use super::with_upstream;
use crate::support::tokens::Mint;

const GOOD: &str = "client_id = \"ci\"\njwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\n";

/// The configuration with these tables, or the key and the message of its first error.
fn read(more: &str) -> Result<Config, (String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ci.json"), Mint::new(Algorithm::ES256).jwks()).expect("written");
    std::fs::write(folder.path().join("bad.json"), "{}").expect("written");
    let config = config::parse(&with_upstream(more), folder.path(), Probe::None);
    config.map_err(|errors| {
        let error = &errors.all()[0];
        (error.place.key.clone(), error.message.clone())
    })
}

fn client(keys: &str) -> String {
    format!("[oauth]\ntoken_endpoint = \"/t\"\n[[oauth.client]]\n{keys}")
}

#[test]
fn a_client_has_a_name_one_source_of_keys_and_limits() {
    let good = GOOD.to_owned();
    let replaced = |from: &str, to: &str| GOOD.replace(from, to);
    for (keys, key, says) in [
        (replaced("client_id = \"ci\"\n", ""), "client_id", "is missing"),
        (replaced("\"ci\"", "\"a:b\""), "client_id", "not a client id"),
        (replaced("\"ci\"", &format!("\"{}\"", "x".repeat(201))), "client_id", "too long"),
        (replaced("jwks_file = \"ci.json\"\n", ""), "", "no keys"),
        (replaced("ci.json", "no.json"), "jwks_file", "does not exist"),
        (replaced("ci.json", "bad.json"), "jwks_file", "keys"),
        (good.clone() + "pem_file = \"ci.json\"\n", "pem_file", "two sources"),
        (good.clone() + "jwks_url = \"https://a/k\"\n", "jwks_url", "two sources"),
        (good.clone() + "allow_http = true\n", "allow_http", "no effect"),
        (replaced("jwks_file = \"ci.json\"", "jwks_url = \"http://ci.example/k\""), "jwks_url", "http"),
        (replaced("ES256", "none"), "algorithms[0]", "unsigned"),
        (replaced("\"ES256\"", ""), "algorithms", "empty"),
        (replaced("ES256", "HS256"), "algorithms", "shared secret"),
        (good.clone() + "scopes = [\"a b\"]\n", "scopes[0]", "not a scope"),
        (good.clone() + "audience = [\"https://other.example\"]\n", "audience", "would reject"),
        (good.clone() + "lifetime = \"16m\"\n", "lifetime", "longer than tokens.access_lifetime"),
        (good.clone() + "lifetime = \"0s\"\n", "lifetime", "too small"),
        (good.clone() + "client_credentials = false\nscopes = [\"a\"]\n", "scopes", "no effect"),
        (good.clone() + "client_credentials = false\nlifetime = \"1m\"\n", "lifetime", "no effect"),
    ] {
        let (found, message) = read(&client(&keys)).expect_err(&keys);
        assert!(found.starts_with("oauth.client[0]") && found.ends_with(key), "{keys}: {found}");
        assert!(message.contains(says), "{keys}: {message}");
    }
    let (key, message) = read(&client(&format!("{GOOD}[[oauth.client]]\n{GOOD}"))).expect_err("twice");
    assert_eq!((key.as_str(), message.contains("the same client_id")), ("oauth.client[1].client_id", true));
}

#[test]
fn a_client_is_no_issuer_and_needs_the_token_endpoint() {
    let (key, message) = read(&format!("[[oauth.client]]\n{GOOD}")).expect_err("no endpoint");
    assert_eq!((key.as_str(), message.contains("`token_endpoint`")), ("oauth.client", true));
    let issuer = "[[issuer]]\nissuer = \"ci\"\njwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\naudience = [\"a\"]\n";
    let (key, message) = read(&(client(GOOD) + issuer)).expect_err("an issuer");
    assert_eq!((key.as_str(), message.contains("an issuer has the same name")), ("oauth.client[0].client_id", true));
}

#[test]
fn a_client_has_the_defaults_of_tokens() {
    let config = read(&client(GOOD)).unwrap_or_else(|error| panic!("{error:?}"));
    let client = &config.oauth.clients[0];
    assert_eq!((client.lifetime, &client.audience), (Duration::from_mins(15), &config.tokens.audience));
    assert!(client.client_credentials && client.scopes.is_empty());
    assert_eq!(client.subject(), "client|ci");
}
