//! `[[token_exchange]]` and `route.token = "exchange"`.

use bearward::config::{self, Config, ConfigError, Probe};
use bearward::gateway::route::TokenForwarding;
use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::generate_pem;
use bearward::types::secret;

use super::with_upstream;

const GOOD: &str = "name = \"orders\"\ntoken_endpoint = \"https://login.example/token\"\nclient_id = \"gateway\"\n\
    client_secret_file = \"client.secret\"\naudience = [\"https://orders.internal\"]\n";
const PROVIDER: &str = "[[provider]]\nname = \"main\"\nissuer = \"https://login.example\"\nclient_id = \"a\"\n\
    client_auth = \"none\"\n[sign_in]\nexternal_urls = [\"https://app.example\"]\n";
const ROUTE: &str = "[[route]]\npath = \"/\"\ntoken = \"exchange\"\ntoken_exchange = \"orders\"\n";

/// The key and the message of an error or a warning.
type Found = (String, String);

fn read(text: &str) -> Result<Config, Found> {
    read_with_warnings(text).map(|(config, _)| config)
}

fn read_with_warnings(text: &str) -> Result<(Config, Vec<Found>), Found> {
    let folder = tempfile::tempdir().expect("a folder");
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    for (name, content) in [("client.secret", &b"of the client"[..]), ("client.key", pem.expose())] {
        secret::write_private(&folder.path().join(name), content).expect("written");
    }
    let shown = |error: &ConfigError| (error.place.key.clone(), error.message.clone());
    let read = config::parse_with_warnings(&with_upstream(text), folder.path(), Probe::None);
    let (config, warnings) = read.map_err(|errors| shown(&errors.all()[0]))?;
    Ok((config, warnings.all().iter().map(shown).collect()))
}

#[test]
fn an_exchange_has_an_endpoint_a_client_and_a_target() {
    let replaced = |from: &str, to: &str| GOOD.replace(from, to);
    let with = |more: &str| format!("{GOOD}{more}\n");
    let assertion = "client_auth = \"private_key_jwt\"\nassertion_key_file = \"client.key\"";
    for (keys, key, says) in [
        (replaced("name = \"orders\"\n", ""), "name", "is missing"),
        (replaced("\"orders\"", "\"\""), "name", "not valid"),
        (replaced("token_endpoint = \"https://login.example/token\"\n", ""), "token_endpoint", "is missing"),
        (replaced("https://login", "http://login"), "token_endpoint", "http"),
        (replaced("https://login", "https://me:x@login"), "token_endpoint", ""),
        (replaced("client_id = \"gateway\"\n", ""), "client_id", "is missing"),
        (replaced("client.secret", "no.secret"), "client_secret_file", "does not exist"),
        (replaced("audience = [\"https://orders.internal\"]\n", ""), "audience", "the target is missing"),
        (with("scopes = [\"a b\"]"), "scopes[0]", "not a scope"),
        (with("consecutive_timeouts = 1001"), "consecutive_timeouts", "out of range"),
        (with("subject_audience = [\"https://localhost:8443\"]"), "subject_audience", "an audience of this gateway"),
        (replaced("client_secret_file = \"client.secret\"", assertion), "issuer", "is missing"),
    ] {
        let (found, message) = read(&format!("[[token_exchange]]\n{keys}")).expect_err(&keys);
        assert_eq!(found, format!("token_exchange[0].{key}"), "{keys}");
        assert!(message.contains(says), "{keys}: {message}");
    }
    let twice = format!("[[token_exchange]]\n{GOOD}[[token_exchange]]\n{GOOD}");
    assert_eq!(read(&twice).expect_err("twice").0, "token_exchange[1].name");
    let with_issuer =
        replaced("client_secret_file = \"client.secret\"", assertion) + "issuer = \"https://login.example\"\n";
    read(&format!("[[token_exchange]]\n{with_issuer}")).unwrap_or_else(|error| panic!("{error:?}"));
}

#[test]
fn a_route_names_its_exchange() {
    let with = |route: &str| read(&format!("[[token_exchange]]\n{GOOD}{route}"));
    let config = with(ROUTE).unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(config.routes[0].token_forwarding, TokenForwarding::Exchange(0));
    for (route, key, says) in [
        (ROUTE.replace("token_exchange = \"orders\"\n", ""), "token", "`token_exchange` is missing"),
        (ROUTE.replace("\"orders\"", "\"stock\""), "token_exchange", "there is no token exchange"),
        (ROUTE.replace("token = \"exchange\"\n", ""), "token_exchange", "needs `token = \"exchange\"`"),
        (format!("{ROUTE}token_audience = [\"a\"]\n"), "token_audience", "needs `token = \"replace\"`"),
        (format!("{ROUTE}api_keys = true\n"), "token_exchange", "an API key cannot be exchanged"),
        (format!("{ROUTE}sign_in = \"main\"\n{PROVIDER}"), "token_exchange", "the cookie of a sign-in cannot be"),
    ] {
        let (found, message) = with(&route).expect_err(&route);
        assert_eq!(found, format!("route[0].{key}"), "{route}");
        assert!(message.contains(says), "{route}: {message}");
    }
    let exchange = format!("{GOOD}subject_audience = [\"https://login.example\"]\n");
    for more in ["api_keys = true\n".to_owned(), format!("sign_in = \"main\"\n{PROVIDER}")] {
        let read = read(&format!("[[token_exchange]]\n{exchange}{ROUTE}{more}"));
        assert!(read.is_ok(), "{:?}", read.err());
    }
}

/// The gateway shows an opaque token to its issuer alone.
#[test]
fn a_route_with_opaque_tokens_that_cannot_be_exchanged_is_reported() {
    let issuer = |name: &str, more: &str| format!("[[issuer]]\nissuer = \"{name}\"\naudience = [\"b\"]\n{more}");
    let opaque = "[issuer.introspection]\nendpoint = \"https://a/i\"\nclient_id = \"c\"\nclient_auth = \"none\"\n";
    let keys = "discover = true\nalgorithms = [\"ES256\"]\n";
    let (asked, verified) = (issuer("https://a", opaque), issuer("https://b", keys));
    let with_both = issuer("https://a", &format!("{keys}{opaque}"));
    let subject = "subject_audience = [\"https://login.example\"]\n";
    for (exchange, issuers, route, warns) in [
        ("", format!("{verified}{asked}"), "", true),
        ("", with_both, "", true),
        ("", format!("{verified}{asked}"), "issuers = [\"https://b\"]\n", false),
        ("", format!("{verified}{asked}"), "issuers = [\"https://b\", \"https://a\"]\n", true),
        (subject, asked, "", false),
        ("", verified, "", false),
    ] {
        let text = format!("[[token_exchange]]\n{GOOD}{exchange}{issuers}{ROUTE}{route}");
        let (_, warnings) = read_with_warnings(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let expected =
            ("route[0].token_exchange".to_owned(), "opaque tokens of https://a cannot be exchanged".to_owned());
        assert_eq!(warnings, if warns { vec![expected] } else { Vec::new() }, "{text}");
    }
}
