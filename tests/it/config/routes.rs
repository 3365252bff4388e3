//! `[[route]]`: wrong paths, places of tokens, and rules.

use super::check;

#[test]
fn routes_are_checked() {
    check(&[
        ("[[route]]\npublic = true", "route[0].path", (1, 1), "`path` is missing"),
        ("[[route]]\npath = \"orders\"", "route[0].path", (2, 8), "write \"/orders\""),
        ("[[route]]\npath = \"/a//b\"", "route[0].path", (2, 8), "empty segment"),
        ("[[route]]\npath = \"/a/../b\"", "route[0].path", (2, 8), "dot segment"),
        ("[[route]]\npath = \"/a%20b\"", "route[0].path", (2, 8), "percent-encoded"),
        ("[[route]]\npath = \"/a;b\"", "route[0].path", (2, 8), "`;`"),
        ("[[route]]\npath = \"/a?b\"", "route[0].path", (2, 8), "`?`"),
        ("[[route]]\npath = \"/a#b\"", "route[0].path", (2, 8), "`#`"),
        ("[[route]]\npath = '/a\\b'", "route[0].path", (2, 8), "the path contains"),
        ("[[route]]\npath = \"/a\\u0007\"", "route[0].path", (2, 8), "`\\u{7}`"),
        ("[[route]]\npath = \"/a/*\"", "route[0].path", (2, 8), "remove the `*`"),
        ("[[route]]\npath = \"/user/refresh\"", "route[0].path", (2, 8), "/user/refresh is a path of the gateway"),
        ("[[route]]\npath = \"/token/\"", "route[0].path", (2, 8), "/token is a path of the gateway"),
        ("[[route]]\npath = \"/token/x\"", "route[0].path", (2, 8), "/token is a path of the gateway"),
        ("[[route]]\npath = \"/.well-known/jwks.json\"", "route[0].path", (2, 8), "itself"),
        (
            "[[route]]\npath = \"/.well-known/oauth-authorization-server\"",
            "route[0].path",
            (2, 8),
            "/.well-known/oauth-authorization-server is a path of the gateway",
        ),
        ("[[route]]\npath = \"/\"\nhost = \"a:80\"", "route[0].host", (3, 8), "the host has a port"),
        ("[[route]]\npath = \"/\"\nhost = \"*.a\"", "route[0].host", (3, 8), "wildcard"),
        ("[[route]]\npath = \"/\"\nhost = \"a b\"", "route[0].host", (3, 8), "not a host name"),
        ("[[route]]\npath = \"/\"\nmethods = [\"get\"]", "route[0].methods[0]", (3, 12), "upper case: \"GET\""),
        ("[[route]]\npath = \"/\"\nmethods = [\"CONNECT\"]", "route[0].methods[0]", (3, 12), "opens no tunnels"),
        ("[[route]]\npath = \"/\"\nmethods = [\"A B\"]", "route[0].methods[0]", (3, 12), "HTTP methods"),
        ("[[route]]\npath = \"/\"\nupstream = \"backed\"", "route[0].upstream", (3, 12), "did you mean `backend`?"),
        ("[[route]]\npath = \"/\"\nupstream = \"orders\"", "route[0].upstream", (3, 12), "expected one of backend"),
        ("[[route]]\npath = \"/\"\nscopes = [\"a b\"]", "route[0].scopes[0]", (3, 11), "[\"a\", \"b\"]"),
        (
            "[[route]]\npath = \"/\"\nscopes = [\"a\"]\n\
        public = true",
            "route[0].scopes",
            (3, 10),
            "`scopes` has no effect",
        ),
        (
            "[[route]]\npath = \"/\"\npublic = true\n\
        enforce = false",
            "route[0].enforce",
            (4, 11),
            "has no effect on a public route",
        ),
        ("[[route]]\npath = \"/\"\nproof = \"always\"", "route[0].proof", (3, 9), "if_bound"),
        (
            "[[route]]\npath = \"/\"\napi_keys = true\nproof = \"required\"",
            "route[0].proof",
            (4, 9),
            "never bound to a key",
        ),
        ("[[route]]\npath = \"/\"\npublic = true\nproof = \"off\"", "route[0].proof", (4, 9), "no effect"),
        ("[[route]]\npath = \"/\"\nenforce = \"no\"", "route[0].enforce", (3, 11), "true or false"),
        ("[identity]\nsubject = \"X_Auth_Observed\"", "identity.subject", (2, 11), "reserved for another purpose"),
        ("[[route]]\npath = \"/\"\nname = \"\"", "route[0].name", (3, 8), "1 to 64 characters"),
        ("[[route]]\npath = \"/\"\npaths = \"encoded\"", "route[0].paths", (3, 9), "unknown value \"encoded\""),
        ("[[route]]\npath = \"/\"\npaths = true", "route[0].paths", (3, 9), "expected a string"),
        (
            "[[route]]\npath = \"/\"\npaths = [\"strict\"]",
            "route[0].paths[0]",
            (3, 10),
            "expected `paths = \"strict\"`",
        ),
        ("[[route]]\npath = \"/\"\npaths = [\"semicolons\"]", "route[0].paths[0]", (3, 10), "mean \"semicolon\"?"),
        ("[[route]]\npath = \"/\"\nignore_case = 1", "route[0].ignore_case", (3, 15), "true or false"),
        (
            "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/A\"\nignore_case = true",
            "route[1].path",
            (4, 8),
            "two routes match the same requests",
        ),
        (
            "[[route]]\npath = \"/a\"\nignore_case = true\n[[route]]\npath = \"/A/b\"",
            "route[1].path",
            (5, 8),
            "needs `ignore_case = true`",
        ),
        (
            "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/a\"",
            "route[1].path",
            (4, 8),
            "two routes match the same requests",
        ),
        (
            "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/a\"\nmethods = [\"GET\"]",
            "route[1].path",
            (4, 8),
            "two routes",
        ),
        (
            "[[route]]\npath = \"/a\"\nhost = \"B.example\"\n[[route]]\npath = \"/a\"\nhost = \"b.EXAMPLE\"",
            "route[1].path",
            (5, 8),
            "two routes",
        ),
        (
            "[[route]]\npath = \"/\"\n[[upstream]]\nname = \"a\"\nservers = [\"http://a\"]\n[[upstream]]\n\
             name = \"b\"\nservers = [\"http://b\"]",
            "route[0].upstream",
            (1, 1),
            "expected one of a, b",
        ),
    ]);
}

/// A route with a token in a cookie, and its origins.
macro_rules! origins {
    ($list:literal) => {
        concat!("[[route]]\npath = \"/\"\ntoken_from = [\"cookie:a\"]\norigins = [", $list, "]")
    };
}

#[test]
fn the_places_of_a_token_are_checked() {
    let from = "route[0].token_from[0]";
    check(&[
        ("[[route]]\npath = \"/\"\ntoken_from = \"header\"", "route[0].token_from", (3, 14), "write it in brackets"),
        ("[[route]]\npath = \"/\"\napi_keys = 1", "route[0].api_keys", (3, 12), "true"),
        ("[[route]]\npath = \"/\"\npublic = true\napi_keys = true", "route[0].api_keys", (4, 12), "not both"),
        ("[[route]]\npath = \"/\"\ntoken_from = []", "route[0].token_from", (3, 14), "at least one place"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"heade\"]", from, (3, 15), "did you mean \"header\"?"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"cooke:a\"]", from, (3, 15), "did you mean \"cookie:a\"?"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"body\"]", from, (3, 15), "\"query:NAME\""),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"cookie\"]", from, (3, 15), "\"cookie:access_token\""),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"query:\"]", from, (3, 15), "\"\" is not a valid query parameter"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"query:a b\"]", from, (3, 15), "not a valid query parameter"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"cookie:a;b\"]", from, (3, 15), "not a cookie name"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"header:X-Token\"]", from, (3, 15), "takes no name"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"header\", \"header\"]", "route[0].token_from[1]", (3, 25), "twice"),
        (
            "[[route]]\npath = \"/\"\npublic = true\ntoken_from = [\"header\"]",
            "route[0].token_from",
            (4, 14),
            "has no effect on a public route",
        ),
        ("[[route]]\npath = \"/\"\norigins = [\"https://a\"]", "route[0].origins", (3, 11), "expected a cookie"),
        (origins!("\"a.example\""), "route[0].origins[0]", (4, 12), "not an origin"),
        (origins!("\"https://a/b\""), "route[0].origins[0]", (4, 12), "except scheme, host and port"),
        (origins!("\"https://me@a\""), "route[0].origins[0]", (4, 12), "except scheme, host and port"),
        (origins!("\"ftp://a\""), "route[0].origins[0]", (4, 12), "not an origin"),
        (origins!("\"*\""), "route[0].origins[0]", (4, 12), "any website"),
        (origins!("\"null\""), "route[0].origins[0]", (4, 12), "any website"),
        (origins!("\"https://*.a\""), "route[0].origins[0]", (4, 12), "not a host name"),
        (origins!("\"https://A\", \"https://a:443\""), "route[0].origins[1]", (4, 25), "twice"),
        ("[[route]]\npath = \"/\"\ntoken = \"keep\"", "route[0].token", (3, 9), "\"pass\", \"drop\""),
        ("[[route]]\npath = \"/\"\ntoken = \"replace\"", "route[0].token", (3, 9), "expected `token_audience`"),
        (
            "[[route]]\npath = \"/\"\ntoken = \"replace\"\ntoken_audience = []",
            "route[0].token_audience",
            (4, 18),
            "the `aud` of the tokens",
        ),
        (
            "[[route]]\npath = \"/\"\ntoken = \"replace\"\ntoken_audience = [\"https://localhost:8443\"]",
            "route[0].token_audience",
            (4, 18),
            "is an audience of this gateway",
        ),
        (
            "[[route]]\npath = \"/\"\ntoken = \"drop\"\ntoken_audience = [\"a\"]",
            "route[0].token_audience",
            (4, 18),
            "needs `token = \"replace\"`",
        ),
    ]);
}

/// A route, and the first line of a rule about a claim.
macro_rules! claim {
    ($rest:literal) => {
        concat!("[[route]]\npath = \"/\"\n[[route.claim]]\n", $rest)
    };
}

#[test]
fn rules_about_scopes_and_claims_are_checked() {
    let claim = "route[0].claim[0]";
    let at = |key: &str| -> &'static str { format!("{claim}.{key}").leak() };
    check(&[
        ("[[route]]\npath = \"/\"\nany_scope = [\"a\\\\\"]", "route[0].any_scope[0]", (3, 14), "is not a scope"),
        (
            "[[route]]\npath = \"/\"\nany_scope = [\"a\"]\npublic = true",
            "route[0].any_scope",
            (3, 13),
            "`any_scope` has no effect",
        ),
        (claim!("equals = 1"), at("pointer"), (3, 1), "`pointer` is missing"),
        (claim!("pointer = \"\"\nequals = 1"), at("pointer"), (4, 11), "begins with `/`"),
        (claim!("pointer = \"realm_access.roles\"\nequals = 1"), at("pointer"), (4, 11), "\"/realm_access/roles\""),
        (claim!("pointer = \"#/a\"\nequals = 1"), at("pointer"), (4, 11), "write \"/a\""),
        (
            claim!("pointer = \"https://a.example/b\"\nequals = 1"),
            at("pointer"),
            (4, 11),
            "\"/https:~1~1a.example~1b\"",
        ),
        (claim!("pointer = \"/a~b\"\nequals = 1"), at("pointer"), (4, 11), "`~0`"),
        (claim!("pointer = \"/a\""), at("equals"), (3, 1), "no condition"),
        (claim!("pointer = \"/a\"\nequals = 1\npresent = true"), at("present"), (6, 11), "two conditions"),
        (claim!("pointer = \"/a\"\nequals = 1.5"), at("equals"), (5, 10), "a whole number"),
        (claim!("pointer = \"/a\"\nequals = [\"b\"]"), at("equals"), (5, 10), "this is a list"),
        (claim!("pointer = \"/a\"\nequals = 9223372036854775808"), at("equals"), (5, 10), "64-bit number"),
        (claim!("pointer = \"/a\"\none_of = []"), at("one_of"), (5, 10), "the list is empty"),
        (claim!("pointer = \"/a\"\none_of = \"b\""), at("one_of"), (5, 10), "write it in brackets"),
        (claim!("pointer = \"/a\"\none_of = [\"b\", 2026-01-01]"), "route[0].claim[0].one_of[1]", (5, 16), "a date"),
        (claim!("pointer = \"/a\"\npresent = false"), at("present"), (5, 11), "present = true"),
        (claim!("pointer = \"/a\"\nequal = 1\ncontains = 1"), at("equal"), (5, 1), "did you mean `equals`?"),
        (
            "[[route]]\npath = \"/\"\npublic = true\n[[route.claim]]\npointer = \"/a\"\nequals = 1",
            "route[0].claim",
            (4, 1),
            "`claim` has no effect",
        ),
        (
            "[[route]]\npath = \"/\"\nclaim = { pointer = \"/a\", equals = 1 }",
            "route[0].claim",
            (3, 9),
            "where several are possible",
        ),
    ]);
}
