//! `[[event_stream]]`

use std::path::Path;
use std::time::Duration;

use bearward::config::{self, Config, ConfigErrors, EventDelivery, Probe};
use bearward::types::secret;
use tempfile::TempDir;

use super::with_upstream;

const GOOD: &str = "name = \"corp\"\nissuer = \"https://login.example/tenant\"\naudience = \"https://gateway.example\"\n\
                    authorization_file = \"secret\"\n";
const PUSH: &str = "path = \"/events/corp\"\n";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| secret::write_private(&folder.path().join(name), bytes).expect("written");
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
        (good("credential_change = 1"), "credential_change", "true or false"),
        (good("subject_issuers = [\"https://own.example\"]"), "subject_issuers", "the gateway itself"),
        (GOOD.to_owned() + "path = \"/oauth2/backchannel_logout/login\"\n", "path", "path of the gateway itself"),
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
fn two_streams_differ_in_name_and_path() {
    let folder = folder();
    let stream = |name: &str, path: &str| format!("{}name = \"{name}\"\npath = \"{path}\"\n", without("name"));
    for (streams, says) in [
        ([stream("a", "/a"), stream("a", "/b")], "the same name"),
        ([stream("a", "/a"), stream("b", "/a")], "the same path"),
    ] {
        let errors = parse(&streams, "", folder.path()).expect_err("an error").to_string();
        assert!(errors.contains(says), "{errors}");
    }
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
    assert_eq!(stream.authorization.as_bytes(), b"Bearer 0123456789abcdef0123456789abcdef");
    let poll = parse(&[format!("{GOOD}poll_url = \"https://login.example/poll\"\n")], "", folder.path());
    let EventDelivery::Poll { interval, .. } = &poll.expect("valid").event_streams[0].delivery else {
        panic!("it is polled")
    };
    assert_eq!(*interval, Duration::from_secs(5));
}
