//! `[[provider]]`

use std::path::Path;

use bearward::auth::oauth_client::ClientAuthentication;
use bearward::config::{self, Config, ConfigErrors, Probe};
use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::generate_pem;
use bearward::types::secret;
use tempfile::TempDir;

use super::with_upstream;

const GOOD: &str =
    "name = \"login\"\nissuer = \"https://login.example\"\nclient_id = \"bearward\"\nclient_secret_file = \"secret\"\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| secret::write_private(&folder.path().join(name), bytes).expect("written");
    write("secret", b"p a+%:\xc3\xa4\n");
    write("empty", b"\n");
    write("lines", b"one\ntwo\n");
    write("key.pem", generate_pem(Algorithm::ES256).expect("a key").expose());
    folder
}

fn parse(providers: &[String], folder: &Path) -> Result<Config, ConfigErrors> {
    let tables: String = providers.iter().map(|keys| format!("[[provider]]\n{keys}\n")).collect();
    config::parse(&with_upstream(&tables), folder, Probe::None)
}

fn without(key: &str) -> String {
    GOOD.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_provider_has_a_name_and_a_way_to_identify_itself() {
    let folder = folder();
    let with = |keys: &str| format!("{}{keys}\n", without("client_secret_file"));
    let good = |more: &str| format!("{GOOD}{more}\n");
    for (keys, key, says) in [
        (without("name"), "name", "is missing"),
        (without("issuer"), "issuer", "is missing"),
        (without("client_id"), "client_id", "is missing"),
        (without("client_secret_file"), "client_secret_file", "is missing"),
        (without("name") + "name = \"Login\"", "name", "in a path"),
        (without("name") + "name = \"../x\"", "name", "in a path"),
        (without("name") + "name = \"\"", "name", "in a path"),
        (without("issuer") + "issuer = \"http://login.example\"", "issuer", "cleartext"),
        (without("issuer") + "issuer = \"https://login.example?x\"", "issuer", "not a URL"),
        (without("client_id") + "client_id = \"é\"", "client_id", "not a client id"),
        (with("client_secret_file = \"none\""), "client_secret_file", "does not exist"),
        (with("client_secret_file = \"empty\""), "client_secret_file", "one line of text"),
        (with("client_secret_file = \"lines\""), "client_secret_file", "one line of text"),
        (good("assertion_key_file = \"key.pem\""), "assertion_key_file", "no effect with this `client_auth`"),
        (good("client_auth = \"none\""), "client_secret_file", "no effect with this `client_auth`"),
        (good("client_auth = \"private_key_jwt\""), "assertion_key_file", "is missing"),
        (with("client_auth = \"tls_client_auth\""), "client_certificate", "is missing"),
        (good("client_auth = \"basic\""), "client_auth", "client_secret_basic"),
        (good("algorithms = []"), "algorithms", "the list is empty"),
        (good("algorithms = [\"HS256\"]"), "algorithms[0]", "RS256"),
        (good("algorithms = [\"none\"]"), "algorithms[0]", "RS256"),
        (good("subject_prefix = \"a b\""), "subject_prefix", "subject"),
        (good("subject_prefix = \"client|\""), "subject_prefix", "OAuth clients"),
        (good("client_timeout = \"2m\""), "client_timeout", "1m"),
    ] {
        let errors = parse(std::slice::from_ref(&keys), folder.path()).expect_err(&keys);
        let error = errors.all().iter().find(|error| error.place.key == format!("provider[0].{key}"));
        let error = error.unwrap_or_else(|| panic!("no error at {key}:\n{keys}\n{errors:?}"));
        let text = [error.message.as_str(), &error.expected, &error.help].join("\n");
        assert!(text.contains(says), "{says:?} is not in the message: {errors:?}");
    }
}

#[test]
fn two_providers_are_never_the_same() {
    let folder = folder();
    let second = |name: &str, id: &str, more: &str| {
        GOOD.replace("\"login\"", &format!("\"{name}\"")).replace("\"bearward\"", &format!("\"{id}\"")) + more
    };
    for (other, says) in [
        (second("login", "b", ""), "the same name"),
        (second("b", "bearward", ""), "the same issuer and the same client_id"),
        (second("b", "b", "subject_prefix = \"login|\""), "two users could have the same subject"),
        // `x|y` of the first provider, and `y` of the other.
        (second("b", "b", "subject_prefix = \"login|x|\""), "two users could have the same subject"),
        (second("b", "b", "subject_prefix = \"\""), "two users could have the same subject"),
    ] {
        let errors = parse(&[GOOD.to_owned(), other.clone()], folder.path()).expect_err(&other);
        let [error] = errors.all() else { panic!("expected one error: {errors:?}") };
        assert!(error.message.contains(says), "{errors:?}");
    }
    let config = parse(&[GOOD.to_owned(), second("b", "b", "")], folder.path());
    let providers = config.unwrap_or_else(|errors| panic!("{errors}")).providers;
    let prefixes: Vec<_> = providers.iter().map(|provider| provider.subject_prefix.as_str()).collect();
    assert_eq!(prefixes, ["login|", "b|"]);
}

#[test]
fn a_secret_has_no_white_space_at_its_end_and_is_never_shown() {
    let folder = folder();
    let config = parse(&[GOOD.to_owned()], folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let ClientAuthentication::SecretBasic(secret) = &config.providers[0].client.authentication else {
        panic!("another method");
    };
    assert_eq!(secret.expose(), "p a+%:ä".as_bytes());
    assert!(!format!("{config:?}").contains("p a+%"));
    let changed = b"another\n";
    secret::write_private(&folder.path().join("new"), changed).expect("written");
    std::fs::rename(folder.path().join("new"), folder.path().join("secret")).expect("renamed");
    let reloaded = parse(&[GOOD.to_owned()], folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    assert_ne!(config.providers, reloaded.providers, "a reload notices a new secret in the same file");
}

#[test]
fn an_assertion_is_signed_by_the_configured_key() {
    let folder = folder();
    let keys = without("client_secret_file")
        + "client_auth = \"private_key_jwt\"\nassertion_key_file = \"key.pem\"\nassertion_key_id = \"gateway\"\n";
    let config = parse(&[keys], folder.path()).unwrap_or_else(|errors| panic!("{errors}"));
    let ClientAuthentication::Assertion(key) = &config.providers[0].client.authentication else {
        panic!("another method");
    };
    assert_eq!((key.kid.as_str(), key.key.algorithm), ("gateway", Algorithm::ES256));
}
