//! `[issuer.introspection]`: endpoints, clients and prefixes.

use bearward::config::{self, Probe};
use bearward::tokens::jwt::introspected::AnswerRules;

use super::{check, warnings};

/// The first six lines of an issuer without keys, and the rest.
macro_rules! asked {
    ($rest:literal) => {
        concat!(
            "[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\n[issuer.introspection]\n",
            "endpoint = \"https://a/i\"\nclient_id = \"c\"\n",
            $rest
        )
    };
}

/// The same with another name, and the rest.
macro_rules! second {
    ($first:literal, $rest:literal) => {
        concat!(
            "[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\n[issuer.introspection]\n",
            "endpoint = \"https://a/i\"\nclient_id = \"c\"\nclient_auth = \"none\"\n",
            $first,
            "\n[[issuer]]\nissuer = \"https://d\"\naudience = [\"b\"]\n[issuer.introspection]\n",
            "endpoint = \"https://d/i\"\nclient_id = \"c\"\nclient_auth = \"none\"\n",
            $rest
        )
    };
}

#[test]
fn introspection_is_checked() {
    check(&[
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\n[issuer.introspection]\nclient_id = \"c\"\nclient_auth = \"none\"",
            "issuer[0].introspection.endpoint",
            (4, 1),
            "`endpoint` is missing",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\n[issuer.introspection]\nendpoint = \"https://a/i\"\n\
             client_auth = \"none\"",
            "issuer[0].introspection.client_id",
            (4, 1),
            "`client_id` is missing",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\n[issuer.introspection]\nendpoint = \"http://a/i\"\n\
             client_id = \"c\"\nclient_auth = \"none\"",
            "issuer[0].introspection.endpoint",
            (5, 12),
            "allow_http = true",
        ),
        (asked!(""), "issuer[0].introspection.client_secret_file", (4, 1), "`client_secret_file` is missing"),
        (
            asked!("client_auth = \"none\"\nresponse = \"jwt\""),
            "issuer[0].introspection.response",
            (8, 12),
            "signed answers need the keys",
        ),
        (
            asked!("client_auth = \"none\"\ntoken_prefix = [\"bwk_x\"]"),
            "issuer[0].introspection.token_prefix[0]",
            (8, 17),
            "tokens of the gateway itself",
        ),
        (
            asked!("client_auth = \"none\"\ntoken_prefix = [\"a b\"]"),
            "issuer[0].introspection.token_prefix[0]",
            (8, 17),
            "no token begins with this",
        ),
        (
            asked!("client_auth = \"none\"\ntoken_prefix = [\"\"]"),
            "issuer[0].introspection.token_prefix[0]",
            (8, 17),
            "no token begins with this",
        ),
        (asked!("client_auth = \"none\"\ncache = \"0s\""), "issuer[0].introspection.cache", (8, 9), "1s to 10m"),
        (
            asked!("client_auth = \"none\"\nconcurrency = 0"),
            "issuer[0].introspection.concurrency",
            (8, 15),
            "1 to 10000",
        ),
        (
            asked!("client_auth = \"none\"\nconsecutive_timeouts = 1001"),
            "issuer[0].introspection.consecutive_timeouts",
            (8, 24),
            "0 to 1000",
        ),
        (
            asked!("client_auth = \"none\"\nrequire_token_type = 1"),
            "issuer[0].introspection.require_token_type",
            (8, 22),
            "expected true or false",
        ),
        (
            asked!("client_auth = \"none\"\nca_file = \"missing.pem\""),
            "issuer[0].introspection.ca_file",
            (8, 11),
            "missing.pem",
        ),
    ]);
}

#[test]
fn an_issuer_without_keys_has_no_keys_about_keys() {
    check(&[
        (
            "[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\n[issuer.introspection]\n\
             endpoint = \"https://a/i\"\nclient_id = \"c\"\nclient_auth = \"none\"",
            "issuer[0].algorithms",
            (4, 14),
            "no effect without keys",
        ),
        (
            "[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\nrefresh_min = \"5s\"\n[issuer.introspection]\n\
             endpoint = \"https://a/i\"\nclient_id = \"c\"\nclient_auth = \"none\"",
            "issuer[0].refresh_min",
            (4, 15),
            "no effect without keys",
        ),
    ]);
}

#[test]
fn the_token_tells_which_issuer_is_asked() {
    check(&[
        (second!("", ""), "issuer[1].issuer", (10, 10), "two issuers are asked about all opaque tokens"),
        (
            second!("token_prefix = [\"x_\"]", "token_prefix = [\"y_\", \"x_at_\"]"),
            "issuer[1].issuer",
            (10, 10),
            "\"x_at_\" can be of two issuers",
        ),
        (
            second!("token_prefix = [\"x_at_\"]", "token_prefix = [\"x_\"]"),
            "issuer[1].issuer",
            (10, 10),
            "\"x_\" can be of two issuers",
        ),
    ]);
}

#[test]
fn introspection_has_defaults() {
    let rest = "client_auth = \"none\"\ntoken_prefix = [\"x_\"]\n";
    let text = format!("{}{rest}\n[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n", asked!(""));
    let folder = tempfile::tempdir().expect("a folder");
    let config = config::parse(&text, folder.path(), Probe::None).expect("a valid configuration");
    let settings = config.issuers[0].introspection.as_ref().expect("it is asked");
    assert_eq!((settings.cache.as_secs(), settings.concurrency, settings.consecutive_timeouts), (60, 64, 3));
    assert_eq!(settings.rules, AnswerRules { token_type: true, issuer: false });
    assert_eq!((&*settings.client.client_id, &*settings.client.issuer), ("c", "https://a"));
    assert!(!settings.verifies_jwts && config.issuers[0].policy.algorithms.is_empty());
}

#[test]
fn accepting_answers_without_token_type_is_reported() {
    warnings::check(&[(
        asked!("client_auth = \"none\"\nrequire_token_type = false"),
        &[("issuer[0].introspection.require_token_type", 10, "refresh tokens of this issuer")],
    )]);
}

/// Without a handshake, the server would not know who asks.
#[test]
fn a_client_certificate_needs_https() {
    let by_certificate = "client_auth = \"tls_client_auth\"\nclient_certificate = \"a.pem\"\nclient_key = \"a.key\"";
    let upstream = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";
    for (scheme, expected) in
        [("https", vec![]), ("http", vec!["issuer[0].introspection.endpoint", "token_exchange[0].token_endpoint"])]
    {
        let text = format!(
            "[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\n[issuer.introspection]\n\
             endpoint = \"{scheme}://127.0.0.1/i\"\nclient_id = \"c\"\n{by_certificate}\n{upstream}\
             [[token_exchange]]\nname = \"orders\"\ntoken_endpoint = \"{scheme}://127.0.0.1/t\"\nclient_id = \"c\"\n\
             audience = [\"d\"]\n{by_certificate}\n"
        );
        let folder = super::secrets::folder();
        let errors = config::parse(&text, folder.path(), Probe::None).err();
        let keys = errors.iter().flat_map(|errors| errors.all()).map(|error| error.place.key.clone());
        assert_eq!(keys.collect::<Vec<_>>(), expected, "{scheme}");
    }
}
