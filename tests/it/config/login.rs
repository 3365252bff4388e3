//! `[login]`, and routes for logins and logouts.

use bearward::gateway::route::{Access, Capture};
use bearward::gateway::rules::Rules;

use super::{check, parse, with_upstream};

#[test]
fn login_headers_are_not_reserved_ones() {
    check(&[
        ("[login]\nsubject = \"\"", "login.subject", (2, 11), "not a header name"),
        ("[login]\nsubject = \"X Subject\"", "login.subject", (2, 11), "not a header name"),
        ("[login]\nscope = \"Set-Cookie\"", "login.scope", (2, 9), "reserved for another purpose"),
        ("[login]\nclaims = \"Content-Type\"", "login.claims", (2, 10), "reserved for another purpose"),
        ("[login]\nscope = \"x_bearward_subject\"", "login.scope", (2, 9), "have the same header"),
        ("[login]\nsubject = \"X-Bearward-Claims\"", "login.subject", (2, 11), "have the same header"),
        ("[login]\nmax_response_size = \"1KB\"", "login.max_response_size", (2, 21), "expected 1KiB to 16MiB"),
    ]);
}

#[test]
fn a_login_is_public_and_a_logout_needs_a_token() {
    let route = |keys: &str| format!("[[route]]\npath = \"/in\"\n{keys}");
    let rows = [
        (route("login = true"), "route[0].login", (3, 9), "public = true"),
        (route("login = true\nlogout = true\npublic = true"), "route[0].logout", (4, 10), "both login and logout"),
        (route("logout = true\npublic = true"), "route[0].logout", (3, 10), "expected `logout` or `public`"),
        (route("login = \"json\"\npublic = true"), "route[0].login", (3, 9), "cookie"),
        (route("login = \"cookie\""), "route[0].login", (3, 9), "public = true"),
        (route("token_from = [\"login_cookie\"]\nenforce = false"), "route[0].enforce", (4, 11), "enforce = true"),
        (route("token_from = [\"login_cookie:a\"]"), "route[0].token_from[0]", (3, 15), "takes no name"),
        (route("logout = true\nenforce = false"), "route[0].enforce", (4, 11), "expected `enforce = true`"),
        (route("logout = true\napi_keys = true"), "route[0].api_keys", (4, 12), "an API key has none"),
    ];
    for (text, key, place, says) in rows {
        check(&[(text.leak(), key, place, says)]);
    }
    check(&[(
        "[[route]]\npath = \"/out\"\nlogout = true\nissuers = [\"b\"]\n[[issuer]]\nissuer = \"b\"\n\
         audience = [\"b\"]\nalgorithms = [\"HS256\"]\nsecret_file = \"Cargo.toml\"",
        "route[0].issuers",
        (4, 11),
        "expected [\"https://localhost:8443\"] or no `issuers`",
    )]);
}

#[test]
fn a_cookie_login_may_have_origins() {
    let text = "[[route]]\npath = \"/in\"\npublic = true\nlogin = \"cookie\"\norigins = [\"https://a.example\"]\n\
                [[route]]\npath = \"/\"\ntoken_from = [\"login_cookie\", \"header\"]\n";
    let config = parse(&with_upstream(text)).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config.routes[0].capture, Some(Capture::CookieLogin));
    let places = &config.routes[1].places;
    assert!(places.login_cookie && places.has_cookies() && places.header);
}

#[test]
fn valid_values_are_read() {
    let text = "[[route]]\npath = \"/in\"\npublic = true\nlogin = true\n[[route]]\npath = \"/out\"\nlogout = true\n\
                [[route]]\npath = \"/\"\n[login]\nsubject = \"X-Who\"\nclaims = \"\"\nmax_response_size = \"1MiB\"\n";
    let config = parse(&with_upstream(text)).unwrap_or_else(|errors| panic!("{errors}"));
    let captures: Vec<_> = config.routes.iter().map(|route| route.capture).collect();
    assert_eq!(captures, [Some(Capture::Login), Some(Capture::Logout), None]);
    let own_alone = Rules { issuers: vec![config.tokens.issuer.clone()], ..Rules::default() };
    assert_eq!(config.routes[1].access, Access::Token(own_alone));
    let headers = &config.login.headers;
    assert_eq!((headers.subject.as_str(), &headers.claims, config.login.max_response_size), ("x-who", &None, 1 << 20));
    assert_eq!(headers.scope.as_ref().map(|name| name.as_str()), Some("x-bearward-scope"));
}
