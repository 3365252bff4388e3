//! `[[issuer]]`: the source of its keys and how they are refreshed; routes for some issuers only.

use std::time::Duration;

use bearward::auth::keyring::{KeySource, Location, OnStale, Remote, Startup};
use bearward::gateway::route::Access;
use bearward::protocols::url::SecureUrl;
use bearward::tokens::jwt::Audience;

use super::{check, parse, with_upstream};

/// The rest of an issuer with fetched keys. It starts at line 5.
macro_rules! issuer {
    ($rest:literal) => {
        concat!("[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\n", $rest)
    };
}

macro_rules! fetched {
    ($rest:literal) => {
        concat!(issuer!("jwks_url = \"https://a/k\"\n"), $rest)
    };
}

#[test]
fn an_issuer_has_one_safe_source_of_keys() {
    check(&[
        (issuer!("jwks_url = \"a/k\""), "issuer[0].jwks_url", (5, 12), "write the complete URL"),
        (issuer!("jwks_url = \"ftp://a/k\""), "issuer[0].jwks_url", (5, 12), "not a URL"),
        (issuer!("jwks_url = \"http://a/k\""), "issuer[0].jwks_url", (5, 12), "allow_http = true"),
        (issuer!("jwks_url = \"https://me:pw@a/k\""), "issuer[0].jwks_url", (5, 12), "public keys need none"),
        (issuer!("jwks_url = \"https://a/k#1\""), "issuer[0].jwks_url", (5, 12), "remove `#` and the text after it"),
        (issuer!("jwks_url = 1"), "issuer[0].jwks_url", (5, 12), "this is a number"),
        (issuer!("discover = false"), "issuer[0].jwks_file", (1, 1), "expected `jwks_url`, `discover = true`"),
        (issuer!("discover = \"yes\""), "issuer[0].discover", (5, 12), "expected true or false"),
        (fetched!("discover = true"), "issuer[0].discover", (6, 12), "two sources"),
        (
            "[[issuer]]\nissuer = \"accounts\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\ndiscover = true",
            "issuer[0].discover",
            (5, 12),
            "expected `issuer` to be a URL",
        ),
        (
            "[[issuer]]\nissuer = \"http://a\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\ndiscover = true",
            "issuer[0].discover",
            (5, 12),
            "in cleartext",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nalgorithms = [\"HS256\"]\njwks_url = \"https://a/k\"",
            "issuer[0].algorithms",
            (4, 14),
            "HMAC secrets cannot be fetched",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nalgorithms = [\"HS256\"]\nsecret_file = \"Cargo.toml\"\n\
             max_age = \"1h\"",
            "issuer[0].max_age",
            (6, 11),
            "`max_age` has no effect on keys from a file",
        ),
    ]);
}

#[test]
fn refresh_settings_of_keys_are_in_range() {
    check(&[
        (fetched!("ca_file = \"no.pem\""), "issuer[0].ca_file", (6, 11), "does not exist"),
        (fetched!("ca_file = \"Cargo.toml\""), "issuer[0].ca_file", (6, 11), "no certificate"),
        (fetched!("refresh_min = \"500ms\""), "issuer[0].refresh_min", (6, 15), "expected 1s to 1d"),
        (fetched!("refresh_min = \"16m\""), "issuer[0].refresh_min", (6, 15), "at most 15m, which is refresh_max"),
        (fetched!("refresh_max = \"59s\""), "issuer[0].refresh_max", (6, 15), "at least 1m, which is refresh_min"),
        (fetched!("refresh_max = \"25h\""), "issuer[0].refresh_max", (6, 15), "expected 1s to 1d"),
        (fetched!("max_age = \"14m\""), "issuer[0].max_age", (6, 11), "at least 15m, which is refresh_max"),
        (fetched!("refetch_cooldown = \"0s\""), "issuer[0].refetch_cooldown", (6, 20), "expected 1s to 1h"),
        (fetched!("on_stale = \"drop\""), "issuer[0].on_stale", (6, 12), "expected \"keep\", \"reject\""),
        (fetched!("startup = \"open\""), "issuer[0].startup", (6, 11), "expected \"wait\", \"continue\""),
        (fetched!("allow_http = 1"), "issuer[0].allow_http", (6, 14), "expected true or false"),
        (fetched!("cnf = \"refuse\""), "issuer[0].cnf", (6, 7), "reject"),
        (fetched!("jwks_hosts = [\"a\"]"), "issuer[0].jwks_hosts", (6, 14), "no effect without discovery"),
        (issuer!("discover = true\njwks_hosts = [\"a:1\"]"), "issuer[0].jwks_hosts[0]", (6, 15), "not a host"),
        (fetched!("require_subject = \"no\""), "issuer[0].require_subject", (6, 19), "expected true or false"),
        (fetched!("max_lifetime = \"0s\""), "issuer[0].max_lifetime", (6, 16), "expected 1s to 366d"),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = \"all\"\nalgorithms = [\"ES256\"]\njwks_url = \"https://a/k\"",
            "issuer[0].audience",
            (3, 12),
            "write it in brackets",
        ),
    ]);
}

#[test]
fn a_route_names_known_issuers() {
    check(&[
        (
            "[[route]]\npath = \"/\"\nissuers = [\"https://localhost:8444\"]",
            "route[0].issuers[0]",
            (3, 12),
            "did you mean \"https://localhost:8443\"?",
        ),
        ("[[route]]\npath = \"/\"\nissuers = [\"x\"]", "route[0].issuers[0]", (3, 12), "add an [[issuer]]"),
        ("[[route]]\npath = \"/\"\nissuers = \"x\"", "route[0].issuers", (3, 11), "write it in brackets"),
        (
            "[[route]]\npath = \"/\"\npublic = true\nissuers = [\"https://localhost:8443\"]",
            "route[0].issuers",
            (4, 11),
            "`issuers` has no effect on a public route",
        ),
        // An issuer with an error is known to routes anyway.
        (
            "[[issuer]]\nissuer = \"x\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\n[[route]]\npath = \"/\"\n\
             issuers = [\"x\"]",
            "issuer[0].jwks_file",
            (1, 1),
            "no source of keys",
        ),
    ]);
}

#[test]
fn valid_values_are_read() {
    let text = with_upstream(concat!(
        issuer!("discover = true\n"),
        "[[issuer]]\nissuer = \"http://b/realm/\"\naudience = \"any\"\nalgorithms = [\"RS256\"]\ndiscover = true\n",
        "allow_http = true\nrefresh_min = \"5s\"\nrefresh_max = \"5s\"\nrefetch_cooldown = \"1s\"\nmax_age = \"1m\"\n",
        "on_stale = \"reject\"\nstartup = \"continue\"\nrequire_subject = false\n",
        "[[issuer]]\nissuer = \"c\"\naudience = [\"b\"]\nalgorithms = [\"ES256\"]\n\
         jwks_url = \"http://127.0.0.1:1/k?v=1\"\n",
        "[[route]]\npath = \"/\"\nissuers = [\"https://localhost:8443\", \"c\"]\n",
    ));
    let config = parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let remote = |place: usize| match &config.issuers[place].keys {
        KeySource::Remote(remote) => &**remote,
        other => panic!("{other:?}"),
    };
    // What is shown of a URL has no query.
    let whole = |url: &SecureUrl| format!("http{}://{}{}", if url.tls { "s" } else { "" }, url.authority, url.target);
    let urls = |location: &Location| match location {
        Location::Jwks(url) => vec![whole(url)],
        Location::EventTransmitter(place) => vec![whole(place)],
        Location::Discovery(places) => places.iter().map(whole).collect(),
    };
    let Remote { location, refresh, refetch_cooldown, max_age, on_stale, startup, allow_http, jwks_hosts, ca_file } =
        remote(0);
    assert_eq!(
        urls(location),
        ["https://a/.well-known/openid-configuration", "https://a/.well-known/oauth-authorization-server"]
    );
    assert_eq!(*refresh, Duration::from_mins(1)..=Duration::from_mins(15));
    assert_eq!((*refetch_cooldown, *max_age), (Duration::from_secs(30), Duration::from_hours(24)));
    assert_eq!((*on_stale, *startup, *allow_http, ca_file), (OnStale::Keep, Startup::Wait, false, &None));
    assert!(jwks_hosts.is_empty());
    let policy = &config.issuers[0].policy;
    assert_eq!((policy.require_subject, &policy.audience), (true, &Audience::OneOf(vec!["b".into()])));

    let second = remote(1);
    assert_eq!(
        urls(&second.location),
        ["http://b/realm/.well-known/openid-configuration", "http://b/.well-known/oauth-authorization-server/realm"]
    );
    assert_eq!(second.refresh, Duration::from_secs(5)..=Duration::from_secs(5));
    assert_eq!((second.on_stale, second.startup, second.allow_http), (OnStale::Reject, Startup::Continue, true));
    let policy = &config.issuers[1].policy;
    assert_eq!((policy.require_subject, &policy.audience), (false, &Audience::Any));
    assert_eq!(urls(&remote(2).location), ["http://127.0.0.1:1/k?v=1"]);
    let Access::Token(bearward::gateway::rules::Rules { issuers, .. }) = &config.routes[0].access else {
        panic!("{:?}", config.routes)
    };
    assert_eq!(*issuers, ["https://localhost:8443", "c"]);
}
