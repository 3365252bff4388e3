//! `[[event_stream]]`

use std::path::Path;
use std::time::Duration;

use bearward::auth::credentials::Credentials;
use bearward::config::{self, Config, ConfigErrors, EventDelivery, Probe};
use bearward::types::secret;
use tempfile::TempDir;

use super::with_upstream;

const GOOD: &str = "name = \"corp\"\nissuer = \"https://login.example/tenant\"\naudience = \"https://gateway.example\"\n\
                    authorization_file = \"secret\"\n";
const POLL: &str = "poll_url = \"https://login.example/poll\"\n";
const CLIENT: &str = "[event_stream.client]\ntoken_endpoint = \"https://login.example/token\"\nclient_id = \"a\"\n\
                      client_secret_file = \"client\"\n";
const PUSH: &str = "path = \"/events/corp\"\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| secret::write_private(&folder.path().join(name), bytes).expect("written");
    write("client", b"of the client");
    write("secret", b"Bearer 0123456789abcdef0123456789abcdef\n");
    write("short", b"Bearer 0123\n");
    write("lines", b"Bearer 0123456789abcdef\n0123456789abcdef\n");
    folder
}

fn parse(streams: &[String], more: &str, folder: &Path) -> Result<Config, ConfigErrors> {
    let tables: String = streams.iter().map(|keys| format!("[[event_stream]]\n{keys}\n")).collect();
    config::parse(&with_upstream(&format!("{tables}{more}")), folder, Probe::None)
}

fn without(key: &str) -> String {
    GOOD.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn each_wrong_key_of_a_stream_is_reported() {
    let folder = folder();
    let push = |text: String| format!("{text}{PUSH}");
    let good = |more: &str| format!("{GOOD}{PUSH}{more}\n");
    let poll = |more: &str| format!("{}{POLL}{more}\n", without("authorization_file"));
    for (keys, key, says) in [
        (push(without("name")), "name", "is missing"),
        (push(without("issuer")), "issuer", "is missing"),
        (push(without("audience")), "audience", "is missing"),
        (push(without("authorization_file")), "authorization_file", "is missing"),
        (push(without("name") + "name = \"a b\"\n"), "name", "not a name"),
        (push(without("issuer") + "issuer = \"http://login.example\"\n"), "issuer", "cleartext"),
        (push(without("audience") + "audience = \"\"\n"), "audience", "empty"),
        (push(without("authorization") + "authorization_file = \"none\"\n"), "authorization_file", "does not exist"),
        (push(without("authorization") + "authorization_file = \"short\"\n"), "authorization_file", "32 or more"),
        (push(without("authorization") + "authorization_file = \"lines\"\n"), "authorization_file", "not a value"),
        (GOOD.to_owned(), "path", "no delivery"),
        (good("poll_url = \"https://login.example/poll\""), "poll_url", "pushed and polled"),
        (good("poll_interval = \"1m\""), "poll_interval", "no effect"),
        (good("verify_interval = \"2h\""), "verify_interval", "no effect"),
        (good("stream_id = \"a\"\nverification_url = \"https://a.example\""), "verification_url", "no credentials"),
        (good(&format!("verification_url = \"https://a.example\"\n{CLIENT}")), "stream_id", "is missing"),
        (good("verification_url = \"http://login.example/verify\""), "verification_url", "cleartext"),
        (good(CLIENT), "client", "no effect on a pushed stream"),
        (poll(&format!("{CLIENT}scopes = [\"a b\"]")), "client.scopes[0]", "scope"),
        (
            poll("[event_stream.client]\nclient_id = \"a\"\nclient_auth = \"none\""),
            "client.token_endpoint",
            "is missing",
        ),
        (
            poll(&CLIENT.replace("client_secret_file = \"client\"", "client_auth = \"none\"")),
            "client.client_auth",
            "no token",
        ),
        (poll(&CLIENT.replace("https", "http")), "client.token_endpoint", "cleartext"),
        (GOOD.to_owned() + POLL + CLIENT, "authorization_file", "one `Authorization`"),
        (without("authorization_file") + POLL, "authorization_file", "is missing"),
        (GOOD.to_owned() + "path = \"events\"\n", "path", "does not start with `/`"),
        (GOOD.to_owned() + "path = \"/events/\"\n", "path", "not possible for an endpoint"),
        (GOOD.to_owned() + "path = \"/user/refresh\"\n", "path", "path of the gateway itself"),
        (GOOD.to_owned() + "path = \"/token/x\"\n", "path", "path of the gateway itself"),
        (GOOD.to_owned() + "path = \"/taken\"\n", "path", "a route has the same path"),
        (GOOD.to_owned() + "poll_url = \"http://login.example/poll\"\n", "poll_url", "cleartext"),
        (good("algorithms = []"), "algorithms", "the list is empty"),
        (good("algorithms = [\"HS256\"]"), "algorithms", "RS256"),
        (good("jwks_url = \"http://login.example/keys\""), "jwks_url", "cleartext"),
        (good("max_event_age = \"1s\""), "max_event_age", "1m"),
        (good("subject_issuers = [\"\"]"), "subject_issuers", "empty"),
        (good("subject_issuers = []"), "subject_issuers", "the list is empty"),
        (good("credential_change = 1"), "credential_change", "true or false"),
        (good("subject_issuers = [\"https://own.example\"]"), "subject_issuers", "the gateway itself"),
    ] {
        let result = parse(
            std::slice::from_ref(&keys),
            "[tokens]\nissuer = \"https://own.example\"\n[[route]]\npath = \"/taken\"\n[[route]]\npath = \"/\"\n",
            folder.path(),
        );
        let errors = result.err().unwrap_or_else(|| panic!("{keys} is accepted")).to_string();
        assert!(errors.contains(&format!("event_stream[0].{key}")) && errors.contains(says), "{keys}\n{errors}");
    }
}

#[test]
fn two_streams_differ_in_name() {
    let folder = folder();
    let stream = |name: &str, path: &str| format!("{}name = \"{name}\"\npath = \"{path}\"\n", without("name"));
    let errors = parse(&[stream("a", "/a"), stream("a", "/b")], "", folder.path()).expect_err("an error").to_string();
    assert!(errors.contains("two event streams have the same name"), "{errors}");
    assert!(parse(&[stream("a", "/a"), stream("b", "/b")], "", folder.path()).is_ok());
}

#[test]
fn the_defaults_of_a_stream_are_strict() {
    let folder = folder();
    let config = parse(&[format!("{GOOD}{PUSH}")], "", folder.path()).expect("valid");
    let stream = &config.event_streams[0];
    assert_eq!(stream.path(), Some("/events/corp"));
    assert_eq!(stream.policy.max_age, Duration::from_hours(24 * 7));
    assert_eq!(stream.effects.subject_issuers, ["https://login.example/tenant"]);
    assert_eq!((stream.effects.credential_change, stream.policy.legacy_subjects), (true, false));
    let EventDelivery::Push { authorization, client: None, .. } = &stream.delivery else { panic!("it is pushed") };
    assert_eq!(authorization.as_bytes(), b"Bearer 0123456789abcdef0123456789abcdef");
    assert_eq!(stream.verification, None);
    let poll = parse(&[format!("{GOOD}poll_url = \"https://login.example/poll\"\n")], "", folder.path());
    let EventDelivery::Poll { interval, .. } = &poll.expect("valid").event_streams[0].delivery else {
        panic!("it is polled")
    };
    assert_eq!(*interval, Duration::from_secs(5));
}

#[test]
fn a_polled_stream_can_get_tokens_and_be_verified() {
    let folder = folder();
    let keys = format!(
        "{}{POLL}stream_id = \"s\"\nverification_url = \"https://login.example/verify\"\n{CLIENT}",
        without("authorization_file")
    );
    let config = parse(&[keys], "", folder.path()).expect("valid");
    let stream = &config.event_streams[0];
    let Some(Credentials::Client(client)) = stream.delivery.credentials() else { panic!("a client") };
    assert_eq!((&*client.scope, &*client.client.issuer), ("ssf.read", "https://login.example/tenant"));
    let verification = stream.verification.as_ref().expect("it is verified");
    assert_eq!((&*verification.stream_id, verification.interval), ("s", Duration::from_hours(1)));
}

/// Each own path against each other one, in both orders of the file.
#[test]
fn no_two_own_paths_are_the_same() {
    let folder = folder();
    let provider = "[[provider]]\nname = \"login\"\nissuer = \"https://login.example\"\nclient_id = \"a\"\n\
                    client_auth = \"none\"\n";
    let sign_in = format!(
        "{provider}[sign_in]\npath = \"/in\"\nexternal_urls = [\"https://app.example\"]\n\
         [[route]]\npath = \"/\"\nsign_in = \"login\"\n"
    );
    let ask = |path: &str| format!("[forward_auth]\npath = \"{path}\"\ndialect = \"prefix\"\nfrom = [\"10.0.0.5\"]\n");
    let oauth = |key: &str, path: &str| format!("[oauth]\n{key} = \"{path}\"\n");
    let tenant = "[tokens]\nissuer = \"https://own.example/tenant\"\n";
    for (path, more, key, says) in [
        ("/o", oauth("token_endpoint", "/o"), "event_stream[0].path", "oauth.token_endpoint has the path /o"),
        ("/o", oauth("introspection_endpoint", "/o"), "event_stream[0].path", "oauth.introspection_endpoint"),
        ("/ask/events", ask("/ask"), "event_stream[0].path", "forward_auth has the path /ask"),
        ("/askevents", ask("/ask"), "event_stream[0].path", "forward_auth has the path /ask"),
        ("/oauth2/backchannel_logout/login", provider.to_owned(), "event_stream[0].path", "back-channel logout"),
        ("/in/backchannel_logout/login", sign_in.clone(), "event_stream[0].path", "back-channel logout"),
        ("/in/callback/login", sign_in.clone(), "event_stream[0].path", "a page of [sign_in]"),
        ("/in/signed_out", sign_in.clone(), "event_stream[0].path", "a page of [sign_in]"),
        ("/tenant/.well-known/openid-configuration", tenant.to_owned(), "event_stream[0].path", "gateway itself"),
        (
            "/e",
            format!("{}{provider}", oauth("revocation_endpoint", "/oauth2/backchannel_logout/login")),
            "provider[0].name",
            "oauth.revocation_endpoint has the path",
        ),
        (
            "/e",
            format!("{provider}{}", ask("/oauth2")),
            "forward_auth.path",
            "back-channel logout has the path /oauth2/backchannel_logout/login",
        ),
        ("/e", format!("{sign_in}{}", ask("/in/sign_")), "forward_auth.path", "a page of [sign_in]"),
        ("/e", format!("{sign_in}{}", oauth("token_endpoint", "/in/sign_out")), "oauth.token_endpoint", "[sign_in]"),
        (
            "/e",
            format!("{provider}[[route]]\npath = \"/oauth2/backchannel_logout/login\"\n"),
            "provider[0].name",
            "a route has the path",
        ),
        (
            "/e",
            format!("[[event_stream]]\n{}name = \"b\"\npath = \"/e\"\n", without("name")),
            "event_stream[1].path",
            "another event stream has the path /e",
        ),
    ] {
        let stream = format!("{GOOD}path = \"{path}\"\n");
        let errors = parse(&[stream], &more, folder.path());
        let errors = errors.err().unwrap_or_else(|| panic!("{path}\n{more} is accepted")).to_string();
        assert!(errors.contains(key) && errors.contains(says), "{path}\n{more}\n{errors}");
    }
    let free = format!("{sign_in}{}{}", ask("/ask"), oauth("token_endpoint", "/in/token"));
    let config = parse(&[format!("{GOOD}path = \"/in/events\"\n")], &free, folder.path());
    assert!(config.is_ok(), "{:?}", config.err());
}
