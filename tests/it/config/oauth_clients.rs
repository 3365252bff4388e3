//! `[[oauth.client]]`

use std::time::Duration;

use bearward::config::{self, Config, Probe};
use bearward::tokens::jwt::Algorithm;

use super::with_upstream;
use crate::support::certificates::Authority;
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

const ANY: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nclient_certificate = \"any\"\n";
const VERIFYING: &str =
    "[[listener]]\naddress = \"127.0.0.1:0\"\nclient_certificate = \"optional\"\nclient_ca = \"ca.pem\"\n";

/// As [`read`], with a certificate in `ca.pem`.
fn read_with_certificates(more: &str) -> Result<Config, (String, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ci.json"), Mint::new(Algorithm::ES256).jwks()).expect("written");
    std::fs::write(folder.path().join("ca.pem"), Authority::new().pem()).expect("written");
    let config = config::parse(&with_upstream(more), folder.path(), Probe::None);
    config.map_err(|errors| {
        let error = &errors.all()[0];
        (error.place.key.clone(), error.message.clone())
    })
}

/// RFC 8705 section 2.
#[test]
fn a_client_with_a_certificate_has_one_name_or_its_certificates() {
    let id = "client_id = \"ci\"\n";
    let by_name = |name: &str| format!("{id}client_auth = \"tls_client_auth\"\ncertificate_name = \"{name}\"\n");
    let own = format!("{id}client_auth = \"self_signed_tls_client_auth\"\n");
    let hash = "A".repeat(43);
    let by_hash = format!("{own}certificate_sha256 = [\"{hash}\"]\n");
    for (listener, keys, key, says) in [
        (VERIFYING, format!("{GOOD}client_auth = \"tls\"\n"), "client_auth", "unknown value"),
        (VERIFYING, format!("{id}client_auth = \"tls_client_auth\"\n"), "client_auth", "has no name"),
        (VERIFYING, by_name("orders"), "certificate_name", "not a name of a client"),
        (VERIFYING, by_name("cn:orders"), "certificate_name", "not a name of a client"),
        (VERIFYING, by_name("dns:*.internal"), "certificate_name", "not a name of a client"),
        (VERIFYING, by_name("subject:orders"), "certificate_name", "not a name of a client"),
        (VERIFYING, by_name("subject:serialNumber=7"), "certificate_name", "not a name of a client"),
        (ANY, by_name("dns:orders"), "client_auth", "no request would have a verified certificate"),
        ("", by_hash.clone(), "client_auth", "no request would have a certificate"),
        (ANY, own.clone(), "client_auth", "has no certificate"),
        (ANY, format!("{own}certificate_sha256 = [\"{}\"]\n", &hash[1..]), "certificate_sha256[0]", "not the SHA-256"),
        (ANY, format!("{own}certificate_sha256 = []\n"), "client_auth", "has no certificate"),
        (ANY, format!("{own}certificate_file = \"no.pem\"\n"), "certificate_file", "does not exist"),
        (ANY, format!("{own}certificate_file = \"ci.json\"\n"), "certificate_file", "no certificate"),
        (ANY, format!("{by_hash}certificate_name = \"dns:a\"\n"), "certificate_name", "no effect"),
        (VERIFYING, by_name("dns:a") + "certificate_file = \"ca.pem\"\n", "certificate_file", "no effect"),
        (VERIFYING, by_name("dns:a") + "jwks_file = \"ci.json\"\n", "jwks_file", "no effect"),
        (VERIFYING, by_name("dns:a") + "algorithms = [\"ES256\"]\n", "algorithms", "no effect"),
        (ANY, format!("{GOOD}certificate_name = \"dns:a\"\n"), "certificate_name", "no effect"),
        ("", format!("{GOOD}certificate_bound = true\n"), "certificate_bound", "no request would have a certificate"),
    ] {
        let (found, message) = read_with_certificates(&(listener.to_owned() + &client(&keys))).expect_err(&keys);
        assert!(found.starts_with("oauth.client[0]") && found.ends_with(key), "{keys}: {found}");
        assert!(message.contains(says), "{keys}: {message}");
    }
    for (listener, keys, method, bound) in [
        (VERIFYING, by_name("dns:orders.internal"), Some("tls_client_auth"), true),
        (VERIFYING, by_name("subject:CN=orders, O=Example"), Some("tls_client_auth"), true),
        (VERIFYING, by_name("ip:192.0.2.1") + "certificate_bound = false\n", Some("tls_client_auth"), false),
        (ANY, by_hash, Some("self_signed_tls_client_auth"), true),
        (VERIFYING, format!("{own}certificate_file = \"ca.pem\"\n"), Some("self_signed_tls_client_auth"), true),
        (ANY, GOOD.to_owned(), None, false),
        (ANY, format!("{GOOD}certificate_bound = true\n"), None, true),
    ] {
        let config = read_with_certificates(&(listener.to_owned() + &client(&keys)));
        let config = config.unwrap_or_else(|error| panic!("{keys}: {error:?}"));
        let client = &config.oauth.clients[0];
        assert_eq!(client.certificate().map(|expected| expected.method()), method, "{keys}");
        assert_eq!(client.certificate_bound, bound, "{keys}");
    }
}

/// `mtls_endpoint_aliases` (RFC 8705 section 5).
#[test]
fn the_other_address_is_that_of_a_listener() {
    let oauth = |listener: &str, url: &str| {
        read_with_certificates(&format!("{listener}[oauth]\ntoken_endpoint = \"/t\"\nmtls_url = \"{url}\"\n"))
    };
    for url in ["http://a", "https://", "https://a/path", "https://a/?q", "https://user@a", "https://a#b"] {
        let (key, message) = oauth(ANY, url).expect_err(url);
        assert_eq!((key.as_str(), message.contains("not the address")), ("oauth.mtls_url", true), "{url}: {message}");
    }
    let (key, message) = oauth("", "https://a").expect_err("no listener");
    assert_eq!((key.as_str(), message.contains("no request would have a certificate")), ("oauth.mtls_url", true));
    for (url, expected) in [("https://a:8444", Some("https://a:8444")), ("https://a/", Some("https://a")), ("", None)] {
        let config = oauth(ANY, url).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(config.oauth.mtls_url.as_deref(), expected);
    }
}
