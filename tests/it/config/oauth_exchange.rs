//! `[[oauth.exchange]]`

use bearward::config::{self, Config, Probe};
use bearward::gateway::exchange_rule::{ExchangeClients, SubjectTokenType};
use bearward::tokens::jwt::Algorithm;

use super::with_upstream;
use crate::support::tokens::Mint;

const PARTIES: &str = r#"
[[issuer]]
issuer = "https://login.example"
audience = ["https://api.example"]
jwks_file = "keys.json"
algorithms = ["ES256"]
[[issuer]]
issuer = "https://any.example"
audience = "any"
jwks_file = "keys.json"
algorithms = ["ES256"]
[oauth]
token_endpoint = "/t"
[[oauth.client]]
client_id = "ci"
jwks_file = "keys.json"
algorithms = ["ES256"]
[[oauth.client]]
client_id = "app"
jwks_file = "keys.json"
algorithms = ["ES256"]
"#;

const GOOD: &str = "issuer = \"https://login.example\"\nclients = [\"ci\"]\nsubject_prefix = \"login|\"\n";

fn read(text: &str) -> Result<Config, (String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("keys.json"), Mint::new(Algorithm::ES256).jwks()).expect("written");
    let config = config::parse(&with_upstream(text), folder.path(), Probe::None);
    config.map_err(|errors| {
        let error = &errors.all()[0];
        (error.place.key.clone(), error.message.clone())
    })
}

#[test]
fn a_rule_names_its_parties_and_what_it_grants() {
    let replaced = |from: &str, to: &str| GOOD.replace(from, to);
    let with = |more: &str| format!("{GOOD}{more}\n");
    let id_token = "token_types = [\"id_token\"]\n";
    for (keys, key, says) in [
        (replaced("issuer = \"https://login.example\"\n", ""), "issuer", "is missing"),
        (replaced("https://login.example", "https://other.example"), "issuer", "there is no [[issuer]]"),
        (replaced("https://login.example", "https://localhost:8443"), "issuer", "there is no [[issuer]]"),
        (replaced("https://login.example", "https://any.example"), "audience", "is missing"),
        (replaced("clients = [\"ci\"]\n", ""), "clients", "is missing"),
        (replaced("\"ci\"", "\"other\""), "clients[0]", "there is no client"),
        (replaced("\"ci\"", ""), "clients", "empty"),
        (replaced("[\"ci\"]", "\"all\""), "clients", "unknown value"),
        (replaced("subject_prefix = \"login|\"\n", ""), "subject_prefix", "is missing"),
        (replaced("login|", "client|"), "subject_prefix", "subjects of clients"),
        (replaced("login|", &"x".repeat(65)), "subject_prefix", "not the beginning"),
        (with("token_types = [\"saml2\"]"), "token_types[0]", "unknown value"),
        (with("scopes = [\"a b\"]"), "scopes[0]", "not a scope"),
        (with("claims = [\"sub\"]"), "claims[0]", "only the gateway"),
        (with("audience = []"), "audience", "empty"),
        (with("claim = [{ pointer = \"/a\" }]"), "claim[0]", "no condition"),
        (with(id_token).replace("[\"ci\"]", "\"any\""), "clients", "ID tokens are for one client"),
        (
            with(&format!("{id_token}audience = [\"a\"]")).replace("[\"ci\"]", "[\"ci\", \"app\"]"),
            "clients",
            "ID tokens are for one client",
        ),
        (with(&format!("{id_token}scopes = [\"a\"]")), "scopes", "no scopes"),
    ] {
        let (found, message) = read(&format!("{PARTIES}[[oauth.exchange]]\n{keys}")).expect_err(&keys);
        assert!(found.starts_with("oauth.exchange[0]") && found.contains(key), "{keys}: {found}");
        assert!(message.contains(says), "{keys}: {message}");
    }
    let without = format!("{PARTIES}[[oauth.exchange]]\n{GOOD}").replace("token_endpoint = \"/t\"\n", "");
    assert_eq!(read(&without).expect_err("no endpoint").0, "oauth.client");
}

/// Every exchange would fail: a subject token is verified with keys.
#[test]
fn an_issuer_that_is_only_asked_has_no_rule() {
    let asked =
        "[issuer.introspection]\nendpoint = \"https://login.example/i\"\nclient_id = \"a\"\nclient_auth = \"none\"\n";
    let with = |keys: &str| {
        let issuer = format!(
            "[[issuer]]\nissuer = \"https://asked.example\"\naudience = [\"https://api.example\"]\n{keys}{asked}"
        );
        let rule = GOOD.replace("https://login.example", "https://asked.example");
        read(&format!("{issuer}{PARTIES}[[oauth.exchange]]\n{rule}"))
    };
    let (key, message) = with("").expect_err("no keys");
    assert_eq!(key, "oauth.exchange[0].issuer");
    assert!(message.contains("no source of keys"), "{message}");
    with("jwks_file = \"keys.json\"\nalgorithms = [\"ES256\"]\n").unwrap_or_else(|error| panic!("{error:?}"));
}

#[test]
fn a_rule_has_the_audience_of_its_issuer() {
    let text = format!("{PARTIES}[[oauth.exchange]]\n{GOOD}");
    let config = read(&text).unwrap_or_else(|error| panic!("{error:?}"));
    let rule = &config.oauth.exchange[0];
    assert_eq!((rule.audience.as_slice(), &rule.id_token_audience), (&["https://api.example".to_owned()][..], &None));
    assert_eq!(rule.token_types, [SubjectTokenType::AccessToken]);
    assert_eq!(rule.clients, ExchangeClients::Listed(vec!["ci".into()]));
    assert!(rule.limit_to_subject && !rule.refresh_token && !rule.single_use && rule.scopes.is_empty());
    let two = text.replace("[\"ci\"]", "[\"ci\", \"app\"]") + "token_types = [\"id_token\"]\n";
    read(&two).unwrap_or_else(|error| panic!("each client presents its own ID tokens: {error:?}"));
}

/// With one beginning for the users of two issuers, "alice" of one would be "alice" of the other.
#[test]
fn two_issuers_have_no_subject_in_common() {
    let rule = |issuer: &str, prefix: &str| {
        let rule = GOOD.replace("https://login.example", issuer).replace("login|", prefix);
        format!("[[oauth.exchange]]\n{rule}audience = [\"https://api.example\"]\n")
    };
    let login = "https://login.example";
    let any = "https://any.example";
    let provider = |prefix: &str| {
        format!(
            "[[provider]]\nname = \"main\"\nissuer = \"{any}\"\nclient_id = \"a\"\nclient_auth = \"none\"\n\
             subject_prefix = \"{prefix}\"\n"
        )
    };
    for (rules, reported) in [
        (rule(login, "a|") + &rule(login, "a|"), None),
        (rule(login, "a|") + &rule(any, "a|"), Some("oauth.exchange[1].subject_prefix")),
        (rule(any, "main|") + &provider("main|"), None),
        (rule(login, "other|") + &provider("main|"), None),
        (rule(login, "main|") + &provider("main|"), Some("oauth.exchange[0].subject_prefix")),
    ] {
        let found = read(&format!("{PARTIES}{rules}")).err();
        let says = "two issuers have the same `subject_prefix`";
        let found = found.as_ref().map(|(key, message)| (key.as_str(), message.starts_with(says)));
        assert_eq!(found, reported.map(|key| (key, true)), "{rules}");
    }
    // "b|alice" of one would be "alice" of the other.
    for (rules, reported) in [
        (rule(login, "a|") + &rule(any, "b|"), None),
        (rule(login, "a|") + &rule(any, "a|b|"), Some("oauth.exchange[1].subject_prefix")),
        (rule(login, "a|b|") + &rule(any, "a|"), Some("oauth.exchange[0].subject_prefix")),
        (rule(login, "") + &rule(any, "a|"), Some("oauth.exchange[1].subject_prefix")),
        (rule(login, "m") + &provider("main|"), Some("oauth.exchange[0].subject_prefix")),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("keys.json"), Mint::new(Algorithm::ES256).jwks()).expect("written");
        let text = with_upstream(&format!("{PARTIES}{rules}"));
        let (_, warnings) = config::parse_with_warnings(&text, folder.path(), Probe::None).expect("valid");
        let of_prefix = |warning: &&config::ConfigError| warning.message.contains("could have the subject of a user");
        let found = warnings.all().iter().find(of_prefix).map(|warning| warning.place.key.as_str());
        assert_eq!(found, reported, "{rules}");
    }
}
