//! Configurations that are broken in what they say, section by section; and their neighbours, which are right.

use super::{check, parse, with_upstream};

#[test]
fn listeners_and_the_admin_address_are_checked() {
    check(&[
        ("[[listener]]\ntls = \"off\"", "listener[0].address", (1, 1), "`address` is missing"),
        ("[[listener]]\naddress = \":8443\"", "listener[0].address", (2, 11), "stands for all IPv4 addresses"),
        ("[[listener]]\naddress = \"0.0.0.0\"", "listener[0].address", (2, 11), "\"0.0.0.0:8443\""),
        ("[[listener]]\naddress = \"::1\"", "listener[0].address", (2, 11), "\"[::1]:8443\""),
        ("[[listener]]\naddress = \"localhost:80\"", "listener[0].address", (2, 11), "\"127.0.0.1:80\""),
        ("[[listener]]\naddress = \"https://1.2.3.4\"", "listener[0].address", (2, 11), "no scheme here"),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"on\"",
            "listener[0].tls",
            (3, 7),
            "expected \"self-signed\", \"off\" or {",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\ntls = \"selfsigned\"",
            "listener[0].tls",
            (3, 7),
            "did you mean \"self-signed\"?",
        ),
        ("[[listener]]\naddress = \"0.0.0.0:1\"\ntls = []", "listener[0].tls", (3, 7), "no certificate is named"),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\n[[listener]]\naddress = \"0.0.0.0:1\"",
            "listener[1].address",
            (4, 11),
            "two listeners on 0.0.0.0:1",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\n[[listener]]\naddress = \"127.0.0.1:1\"",
            "listener[1].address",
            (4, 11),
            "overlap",
        ),
        (
            "[[listener]]\naddress = \"0.0.0.0:1\"\nproxy_protocol = true",
            "listener[0].proxy_protocol",
            (3, 18),
            "nobody is trusted",
        ),
        ("[admin]\naddress = \"127.0.0.1:8443\"", "admin.address", (2, 11), "overlap"),
        ("[admin]\naddress = \"0.0.0.0:9443\"", "admin.address", (2, 11), "tls = \"off\""),
        ("[admin]\ntoken_file = \"\"", "admin.token_file", (2, 14), "the path is empty"),
        ("[admin]\ntoken_env = \"s3cret!\"", "admin.token_env", (2, 13), "name the variable"),
        ("[admin]\ntoken_env = \"BEARWARD_NOT_SET\"", "admin.token_env", (2, 13), "is not set"),
        ("[admin]\ntoken_file = \"a\"\ntoken_env = \"PATH\"", "admin.token_env", (3, 13), "two places"),
    ]);
}

#[test]
fn rates_are_checked() {
    check(&[
        ("[[rate]]\nrequests = 1", "rate[0].per", (1, 1), "`per` is missing"),
        ("[[rate]]\nper = \"subject\"", "rate[0].requests", (1, 1), "`requests` is missing"),
        ("[[rate]]\nper = \"ip\"\nrequests = 1", "rate[0].per", (2, 7), "\"address\", \"subject\", \"route\""),
        ("[[rate]]\nper = \"route\"\nrequests = 0", "rate[0].requests", (3, 12), "from 1 to 1000000"),
        ("[[rate]]\nper = \"route\"\nrequests = 1\nwindow = \"1ms\"", "rate[0].window", (4, 10), "1s to 1d"),
        ("[[rate]]\nper = \"route\"\nrequests = 1\nname = \"a b\"", "rate[0].name", (4, 8), "no spaces"),
        ("[[rate]]\nper = \"route\"\nrequests = 1\nburst = 0", "rate[0].burst", (4, 9), "from 1 to 1000000"),
    ]);
}

#[test]
fn audit_events_go_to_one_safe_place() {
    check(&[
        ("[audit]\nfile = \"stdout\"", "audit.file", (2, 8), "name a file or a webhook"),
        ("[audit]\nfile = \"none/audit.jsonl\"", "audit.file", (2, 8), "mkdir -p"),
        ("[audit]\nfile = 1", "audit.file", (2, 8), "this is a number"),
        ("[audit]\nwebhook = \"https://a/\"\nfile = \"a\"", "audit.file", (3, 8), "two places"),
        ("[audit]\nwebhook = \"a\"", "audit.webhook", (2, 11), "write it in full"),
        ("[audit]\nwebhook = \"http://a/\"", "audit.webhook", (2, 11), "webhook_allow_http = true"),
        ("[audit]\nwebhook = \"https://a:b@c/\"", "audit.webhook", (2, 11), "webhook_authorization_file"),
        ("[audit]\nwebhook = \"https://a/#b\"", "audit.webhook", (2, 11), "leave out what follows `#`"),
        ("[audit]\nwebhook_allow_http = true", "audit.webhook_allow_http", (2, 22), "there is none"),
        (
            "[audit]\nwebhook = \"https://a/\"\nwebhook_authorization_file = \"none\"",
            "audit.webhook_authorization_file",
            (3, 30),
            "does not exist",
        ),
        ("[audit]\noutbox = 999", "audit.outbox", (2, 10), "1000"),
    ]);
    for right in ["file = \"off\"", "webhook = \"https://a/b?c\"", "webhook = \"http://127.0.0.1:9/\"", "outbox = 1000"]
    {
        parse(&with_upstream(&format!("[audit]\n{right}"))).expect(right);
    }
}

#[test]
fn the_gateways_own_tokens_are_checked() {
    check(&[
        ("[tokens]\nissuer = \"gateway\"", "tokens.issuer", (2, 10), "expected https:// and a host"),
        ("[tokens]\nissuer = \"https://a/?b\"", "tokens.issuer", (2, 10), "leave out"),
        ("[tokens]\naudience = []", "tokens.audience", (2, 12), "the list is empty"),
        ("[tokens]\naudience = [\"a\", \"a\"]", "tokens.audience[1]", (2, 18), "twice"),
        ("[tokens]\nalgorithm = \"HS256\"", "tokens.algorithm", (2, 13), "\"ES256\", \"ES384\", \"EdDSA\", \"RS256\""),
        ("[tokens]\naccess_lifetime = \"30s\"", "tokens.access_lifetime", (2, 19), "expected 1m to 1d"),
        ("[tokens]\nrefresh_grace = \"61s\"", "tokens.refresh_grace", (2, 17), "expected 0s to 1m"),
        ("[tokens]\nclock_skew = \"6m\"", "tokens.clock_skew", (2, 14), "expected 0s to 5m"),
        ("[tokens]\nrefresh_idle = \"31d\"", "tokens.refresh_idle", (2, 16), "expected at most 30d"),
        ("[tokens]\nkey_lifetime = \"59m\"", "tokens.key_lifetime", (2, 16), "expected 1h to"),
        ("[tokens]\nkey_ahead = \"59s\"", "tokens.key_ahead", (2, 13), "expected 1m to"),
        ("[tokens]\nkey_ahead = \"91d\"", "tokens.key_ahead", (2, 13), "longer than key_lifetime (90d)"),
        ("[tokens]\nkey_lifetime = \"2h\"", "tokens.key_lifetime", (2, 16), "key_ahead (1d) is longer"),
        ("[tokens]\nrefresh_absolute = \"1d\"", "tokens.refresh_absolute", (2, 20), "expected at least 7d"),
        ("[tokens]\naccess_lifetime = \"2h\"\nrefresh_idle = \"1h\"", "tokens.access_lifetime", (2, 19), "at most 1h"),
        ("[tokens]\nexpires_at = \"millis\"", "tokens.expires_at", (2, 14), "did you mean \"milliseconds\"?"),
    ]);
}

/// The rest of an issuer. `Cargo.toml` stands for any file that is there.
macro_rules! issuer {
    ($rest:literal) => {
        concat!("[[issuer]]\nissuer = \"https://a\"\naudience = [\"b\"]\n", $rest)
    };
}

#[test]
fn issuers_are_checked() {
    check(&[
        (
            "[[issuer]]\naudience = [\"b\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[0].issuer",
            (1, 1),
            "`issuer` is missing",
        ),
        (
            "[[issuer]]\nissuer = \"a b\"\naudience = [\"b\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[0].issuer",
            (2, 10),
            "byte for byte",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[0].audience",
            (1, 1),
            "`audience` is missing",
        ),
        (issuer!("algorithms = [\"ES256\"]"), "issuer[0].jwks_file", (1, 1), "this issuer has no keys"),
        (issuer!("secret_file = \"Cargo.toml\""), "issuer[0].algorithms", (1, 1), "`algorithms` is missing"),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = []"),
            "issuer[0].algorithms",
            (5, 14),
            "no algorithm is accepted",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"none\"]"),
            "issuer[0].algorithms[0]",
            (5, 15),
            "unsigned tokens",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS512\", \"HS25\"]"),
            "issuer[0].algorithms[1]",
            (5, 24),
            "did you mean \"HS256\"?",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\", \"RS256\"]"),
            "issuer[0].algorithms",
            (5, 14),
            "mixed",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"RS256\"]"),
            "issuer[0].algorithms",
            (5, 14),
            "HMAC alone",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\ntypes = []"),
            "issuer[0].types",
            (6, 9),
            "list is empty",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\nclock_skew = \"10m\""),
            "issuer[0].clock_skew",
            (6, 14),
            "to 5m",
        ),
        (
            issuer!("jwks_file = \"no.json\"\nalgorithms = [\"ES256\"]"),
            "issuer[0].jwks_file",
            (4, 13),
            "no.json does not exist",
        ),
        (
            issuer!("jwks_file = \"Cargo.toml\"\nalgorithms = [\"ES256\"]"),
            "issuer[0].jwks_file",
            (4, 13),
            "is not JSON",
        ),
        (
            issuer!("pem_file = \"Cargo.toml\"\nalgorithms = [\"ES256\"]"),
            "issuer[0].pem_file",
            (4, 12),
            "not a PEM public key",
        ),
        (
            issuer!("secret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\n[tokens]\nissuer = \"https://a\""),
            "issuer[0].issuer",
            (2, 10),
            "the gateway's own issuer",
        ),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"b\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]\n\
          [[issuer]]\nissuer = \"a\"\naudience = [\"c\"]\nsecret_file = \"Cargo.toml\"\nalgorithms = [\"HS256\"]",
            "issuer[1].issuer",
            (7, 10),
            "two issuers are called \"a\"",
        ),
    ]);
}

#[test]
fn upstreams_are_checked() {
    check(&[
        ("# [[upstream]]", "upstream", (1, 1), "there is no upstream"),
        ("[[upstream]]", "upstream[0].servers", (1, 1), "`servers` is missing"),
        ("[[upstream]]\nservers = []", "upstream[0].servers", (2, 11), "there is no server"),
        (
            "[[upstream]]\nservers = [\"http://a\"]\nprotocol = \"h2\"\nproxy_protocol = \"v2\"",
            "upstream[0].proxy_protocol",
            (4, 18),
            "one client for a whole connection",
        ),
        (
            "[[upstream]]\nservers = [\"127.0.0.1:3000\"]",
            "upstream[0].servers[0]",
            (2, 12),
            "\"http://127.0.0.1:3000\"",
        ),
        ("[[upstream]]\nservers = [\"ftp://a\"]", "upstream[0].servers[0]", (2, 12), "ftp:// cannot be reached"),
        ("[[upstream]]\nservers = [\"h2c://a\"]", "upstream[0].servers[0]", (2, 12), "protocol = \"h2\""),
        ("[[upstream]]\nservers = [\"http://a/api\"]", "upstream[0].servers[0]", (2, 12), "a URL with a path"),
        ("[[upstream]]\nservers = [\"http://a#b\"]", "upstream[0].servers[0]", (2, 12), "a URL with a path"),
        ("[[upstream]]\nservers = [\"http://me:pw@a\"]", "upstream[0].servers[0]", (2, 12), "nothing secret"),
        ("[[upstream]]\nservers = [\"http://a:99999\"]", "upstream[0].servers[0]", (2, 12), "port"),
        ("[[upstream]]\nservers = [\"http://a:0\"]", "upstream[0].servers[0]", (2, 12), "1 to 65535"),
        ("[[upstream]]\nservers = [\"http://127.0.0.256\"]", "upstream[0].servers[0]", (2, 12), "not an IPv4 address"),
        ("[[upstream]]\nservers = [\"http://bücher.example\"]", "upstream[0].servers[0]", (2, 12), "URL"),
        ("[[upstream]]\nservers = [\"http://\"]", "upstream[0].servers[0]", (2, 12), "URL"),
        ("[[upstream]]\nservers = [\"http://a:80\", \"http://A\"]", "upstream[0].servers[1]", (2, 27), "twice"),
        ("[[upstream]]\nservers = [\"http://a\"]\nname = \"a b\"", "upstream[0].name", (3, 8), "letters, digits"),
        (
            "[[upstream]]\nservers = [\"http://a\"]\nprotocol = \"http2\"",
            "upstream[0].protocol",
            (3, 12),
            "did you mean \"http1\"?",
        ),
        (
            "[[upstream]]\nservers = [\"http://a\"]\n[[upstream]]\nservers = [\"http://b\"]\n[[route]]\npath = \"/\"\nupstream = \"backend\"",
            "upstream[1].name",
            (3, 1),
            "two upstreams are called `backend`",
        ),
        (
            "[[upstream]]\nname = \"a\"\nservers = [\"http://a\"]\n[[upstream]]\nname = \"b\"\nservers = [\"http://b\"]",
            "route",
            (1, 1),
            "there are several upstreams and no route",
        ),
    ]);
}

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
        ("[[route]]\npath = '/a\\b'", "route[0].path", (2, 8), "cannot stand in a route's path"),
        ("[[route]]\npath = \"/a\\u0007\"", "route[0].path", (2, 8), "`\\u{7}`"),
        ("[[route]]\npath = \"/a/*\"", "route[0].path", (2, 8), "leave out the `*`"),
        ("[[route]]\npath = \"/user/refresh\"", "route[0].path", (2, 8), "answers /user/refresh itself"),
        ("[[route]]\npath = \"/token/\"", "route[0].path", (2, 8), "answers /token itself"),
        ("[[route]]\npath = \"/token/x\"", "route[0].path", (2, 8), "answers /token itself"),
        ("[[route]]\npath = \"/.well-known/jwks.json\"", "route[0].path", (2, 8), "itself"),
        (
            "[[route]]\npath = \"/.well-known/oauth-authorization-server\"",
            "route[0].path",
            (2, 8),
            "answers /.well-known/oauth-authorization-server itself",
        ),
        ("[[route]]\npath = \"/\"\nhost = \"a:80\"", "route[0].host", (3, 8), "the host has a port"),
        ("[[route]]\npath = \"/\"\nhost = \"*.a\"", "route[0].host", (3, 8), "wildcard"),
        ("[[route]]\npath = \"/\"\nhost = \"a b\"", "route[0].host", (3, 8), "not the name of a host"),
        ("[[route]]\npath = \"/\"\nmethods = [\"get\"]", "route[0].methods[0]", (3, 12), "upper case: \"GET\""),
        ("[[route]]\npath = \"/\"\nmethods = [\"CONNECT\"]", "route[0].methods[0]", (3, 12), "opens no tunnels"),
        ("[[route]]\npath = \"/\"\nmethods = [\"A B\"]", "route[0].methods[0]", (3, 12), "methods of HTTP"),
        ("[[route]]\npath = \"/\"\nupstream = \"backed\"", "route[0].upstream", (3, 12), "did you mean `backend`?"),
        ("[[route]]\npath = \"/\"\nupstream = \"orders\"", "route[0].upstream", (3, 12), "expected one of backend"),
        ("[[route]]\npath = \"/\"\nscopes = [\"a b\"]", "route[0].scopes[0]", (3, 11), "[\"a\", \"b\"]"),
        ("[[route]]\npath = \"/\"\nscopes = [\"a\"]\npublic = true", "route[0].scopes", (3, 10), "asks for scopes"),
        ("[[route]]\npath = \"/\"\npublic = true\nenforce = false", "route[0].enforce", (4, 11), "refuses nothing"),
        ("[[route]]\npath = \"/\"\nenforce = \"no\"", "route[0].enforce", (3, 11), "true or false"),
        ("[identity]\nsubject = \"X_Auth_Observed\"", "identity.subject", (2, 11), "a meaning of its own"),
        ("[[route]]\npath = \"/\"\nname = \"\"", "route[0].name", (3, 8), "1 to 64 characters"),
        (
            "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/a\"",
            "route[1].path",
            (4, 8),
            "two routes take the same requests",
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
            "[[route]]\npath = \"/\"\n[[upstream]]\nname = \"a\"\nservers = [\"http://a\"]\n[[upstream]]\nname = \"b\"\nservers = [\"http://b\"]",
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
fn where_a_route_takes_its_token_from_is_checked() {
    let from = "route[0].token_from[0]";
    check(&[
        ("[[route]]\npath = \"/\"\ntoken_from = \"header\"", "route[0].token_from", (3, 14), "write it in brackets"),
        ("[[route]]\npath = \"/\"\ntoken_from = []", "route[0].token_from", (3, 14), "no request could have a token"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"heade\"]", from, (3, 15), "did you mean \"header\"?"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"cooke:a\"]", from, (3, 15), "did you mean \"cookie:a\"?"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"body\"]", from, (3, 15), "\"query:NAME\""),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"cookie\"]", from, (3, 15), "\"cookie:access_token\""),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"query:\"]", from, (3, 15), "\"\" is not the name of a parameter"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"query:a b\"]", from, (3, 15), "not the name of a parameter"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"cookie:a;b\"]", from, (3, 15), "not the name of a cookie"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"header:X-Token\"]", from, (3, 15), "header has no name"),
        ("[[route]]\npath = \"/\"\ntoken_from = [\"header\", \"header\"]", "route[0].token_from[1]", (3, 25), "twice"),
        (
            "[[route]]\npath = \"/\"\npublic = true\ntoken_from = [\"header\"]",
            "route[0].token_from",
            (4, 14),
            "no token is looked at",
        ),
        ("[[route]]\npath = \"/\"\norigins = [\"https://a\"]", "route[0].origins", (3, 11), "expected a cookie"),
        (origins!("\"a.example\""), "route[0].origins[0]", (4, 12), "not an origin"),
        (origins!("\"https://a/b\""), "route[0].origins[0]", (4, 12), "but scheme, host and port"),
        (origins!("\"https://me@a\""), "route[0].origins[0]", (4, 12), "but scheme, host and port"),
        (origins!("\"ftp://a\""), "route[0].origins[0]", (4, 12), "not an origin"),
        (origins!("\"*\""), "route[0].origins[0]", (4, 12), "any page"),
        (origins!("\"null\""), "route[0].origins[0]", (4, 12), "any page"),
        (origins!("\"https://*.a\""), "route[0].origins[0]", (4, 12), "not the name of a host"),
        (origins!("\"https://A\", \"https://a:443\""), "route[0].origins[1]", (4, 25), "twice"),
        ("[[route]]\npath = \"/\"\ntoken = \"keep\"", "route[0].token", (3, 9), "\"pass\", \"drop\""),
        ("[[route]]\npath = \"/\"\ntoken = \"replace\"", "route[0].token", (3, 9), "expected for whom"),
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
            "no token is made for this audience",
        ),
    ]);
}

/// A route, and the line that a rule about a claim begins with.
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
            "asks for any_scope",
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
        (claim!("pointer = \"/a\""), at("equals"), (3, 1), "asks for nothing"),
        (claim!("pointer = \"/a\"\nequals = 1\npresent = true"), at("present"), (6, 11), "two things"),
        (claim!("pointer = \"/a\"\nequals = 1.5"), at("equals"), (5, 10), "a whole number"),
        (claim!("pointer = \"/a\"\nequals = [\"b\"]"), at("equals"), (5, 10), "this is a list"),
        (claim!("pointer = \"/a\"\nequals = 9223372036854775808"), at("equals"), (5, 10), "64 bits"),
        (claim!("pointer = \"/a\"\none_of = []"), at("one_of"), (5, 10), "the list is empty"),
        (claim!("pointer = \"/a\"\none_of = \"b\""), at("one_of"), (5, 10), "write it in brackets"),
        (claim!("pointer = \"/a\"\none_of = [\"b\", 2026-01-01]"), "route[0].claim[0].one_of[1]", (5, 16), "a date"),
        (claim!("pointer = \"/a\"\npresent = false"), at("present"), (5, 11), "present = true"),
        (claim!("pointer = \"/a\"\nequal = 1\ncontains = 1"), at("equal"), (5, 1), "did you mean `equals`?"),
        (
            "[[route]]\npath = \"/\"\npublic = true\n[[route.claim]]\npointer = \"/a\"\nequals = 1",
            "route[0].claim",
            (4, 1),
            "asks for claim",
        ),
        (
            "[[route]]\npath = \"/\"\nclaim = { pointer = \"/a\", equals = 1 }",
            "route[0].claim",
            (3, 9),
            "several of these",
        ),
    ]);
}

#[test]
fn identity_headers_and_the_access_log_are_checked() {
    check(&[
        ("[identity]\nsubject = \"X Auth\"", "identity.subject", (2, 11), "not the name of a header"),
        ("[identity]\nsubject = \"Authorization\"", "identity.subject", (2, 11), "a meaning of its own"),
        ("[identity]\nsubject = \"Transfer_Encoding\"", "identity.subject", (2, 11), "a meaning of its own"),
        ("[identity]\nsubject = \"Host\"", "identity.subject", (2, 11), "a meaning of its own"),
        ("[identity]\nsubject = \"Content-Length\"", "identity.subject", (2, 11), "a meaning of its own"),
        ("[identity]\nsubject = \"X-Forwarded-User\"", "identity.subject", (2, 11), "a meaning of its own"),
        ("[identity]\nscope = \"x_auth_subject\"", "identity.scope", (2, 9), "`scope` and `subject`"),
        ("[identity]\nsubject = \"X-Who\"\nissuer = \"x-WHO\"", "identity.issuer", (3, 10), "the same header"),
        ("[identity]\nissuer = \"x.auth.scope\"", "identity.issuer", (2, 10), "the same header"),
        ("[[identity.claim]]\nheader = \"X-A\"", "identity.claim[0].pointer", (1, 1), "`pointer` is missing"),
        ("[[identity.claim]]\npointer = \"/a\"", "identity.claim[0].header", (1, 1), "`header` is missing"),
        ("[[identity.claim]]\npointer = \"a.b\"\nheader = \"X-A\"", "identity.claim[0].pointer", (2, 11), "\"/a/b\""),
        ("[[identity.claim]]\npointer = \"/a\"\nheader = \"\"", "identity.claim[0].header", (3, 10), "not the name"),
        (
            "[[identity.claim]]\npointer = \"/a\"\nheader = \"Cookie\"",
            "identity.claim[0].header",
            (3, 10),
            "of its own",
        ),
        (
            "[[identity.claim]]\npointer = \"/a\"\nheader = \"X_Auth_Scope\"",
            "identity.claim[0].header",
            (3, 10),
            "`scope` has",
        ),
        (
            "[[identity.claim]]\npointer = \"/a\"\nheader = \"X-A\"\n[[identity.claim]]\npointer = \"/b\"\nheader = \"x_a\"",
            "identity.claim[1].header",
            (6, 10),
            "two claims",
        ),
        ("[forwarding]\ntrusted = \"10.0.0.0/8\"", "forwarding.trusted", (2, 11), "write it in brackets"),
        ("[forwarding]\ntrusted = [\"proxy\"]", "forwarding.trusted[0]", (2, 12), "is not a network"),
        ("[forwarding]\ntrusted = [\"10.0.0.0/33\"]", "forwarding.trusted[0]", (2, 12), "is not a network"),
        ("[forwarding]\ntrusted = [\"0.0.0.0/0\"]", "forwarding.trusted[0]", (2, 12), "this is everybody"),
        ("[forwarding]\ntrusted = [\"::/0\"]", "forwarding.trusted[0]", (2, 12), "this is everybody"),
        (
            "[forwarding]\ntrusted = [\"10.1.2.3/8\"]",
            "forwarding.trusted[0]",
            (2, 12),
            "\"10.0.0.0/8\", the address alone \"10.1.2.3\"",
        ),
        ("[forwarding]\ntrusted = [\"10.0.0.1\", \"10.0.0.1/32\"]", "forwarding.trusted[1]", (2, 24), "twice"),
        ("[access_log]\nformat = \"xml\"", "access_log.format", (2, 10), "expected \"json\", \"text\""),
        ("[access_log]\nfile = \"no/such/folder/a.log\"", "access_log.file", (2, 8), "mkdir -p"),
        ("[access_log]\nfile = \"src\"", "access_log.file", (2, 8), "is a folder"),
        ("[store]\nsqlite = \"no/such/folder/a.db\"", "store.sqlite", (2, 10), "does not exist"),
    ]);
}

#[test]
fn the_neighbours_of_faults_are_accepted() {
    for text in [
        "listener = []\nroute = []\nissuer = []",
        "[[listener]]\naddress = \"0.0.0.0:1\"\n[[listener]]\naddress = \"[::]:1\"\n[[listener]]\naddress = \"127.0.0.1:2\"",
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"",
        "[admin]\naddress = \"0.0.0.0:9443\"\ntls = \"off\"",
        "[admin]\naddress = \"[::1]:9443\"\ntoken_env = \"PATH\"",
        "[tokens]\naccess_lifetime = \"1h\"\nrefresh_idle = \"60m\"\nrefresh_absolute = \"3600s\"\nrefresh_grace = \"0s\"",
        "[tokens]\nkey_lifetime = \"1h\"\nkey_ahead = \"60m\"",
        "[[route]]\npath = \"/a\"\n[[route]]\npath = \"/a/\"\n[[route]]\npath = \"/a\"\nhost = \"b\"",
        "[[route]]\npath = \"/a\"\nmethods = [\"GET\"]\n[[route]]\npath = \"/a\"\nmethods = [\"POST\"]\npublic = true",
        "[[route]]\npath = \"/tokens\"\nscopes = []\npublic = true\n[[route]]\npath = \"/user/refreshed\"",
        "[[route]]\npath = \"/\"\ntoken_from = [\"cookie:__Host-a\"]\norigins = [\"http://[::1]:8080\", \"https://a/\"]\ntoken = \"drop\"",
        "[[route]]\npath = \"/\"\norigins = []\n[[route]]\npath = \"/p\"\npublic = true\ntoken = \"drop\"",
        "[[route]]\npath = \"/\"\nany_scope = [\"a\"]\n[[route.claim]]\npointer = \"/a/0\"\none_of = [\"x\", 1, true]\n[[route.claim]]\npointer = \"/~0~1\"\npresent = true",
        "[[route]]\npath = \"/\"\nhost = \"[::1]\"\n[[route]]\npath = \"/\"\nhost = \"127.0.0.1\"",
        "[[upstream]]\nservers = [\"https://[::1]:1/\", \"http://my_service.internal\"]\nprotocol = \"h2\"",
        "[identity]\nsubject = \"X-Who\"\nscope = \"\"\ntoken_id = \"\"\nissuer = \"X-Auth-Subject\"",
        "[identity]\nissuer = \"\"\n[[identity.claim]]\npointer = \"/iss\"\nheader = \"X-Auth-Issuer\"",
        "[forwarding]\ntrusted = [\"10.0.0.0/8\", \"fd00::/8\", \"192.0.2.1\", \"::1\"]",
        "[access_log]\nfile = \"off\"\n[limits]\nbody_size = \"0B\"\n[timeouts]\ndrain = \"0s\"",
    ] {
        parse(&with_upstream(text)).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
    }
}

#[test]
fn how_often_tokens_may_be_asked_for_is_checked() {
    check(&[
        ("[throttle]\nrefreshes = 10001", "throttle.refreshes", (2, 13), "from 0 to 10000"),
        ("[throttle]\ncalls = \"off\"", "throttle.calls", (2, 9), "this is a string"),
        ("[throttle]\nfailure = 1", "throttle.failure", (2, 1), "did you mean `failures`?"),
    ]);
    let rates = |text: &str| {
        let throttle = parse(&with_upstream(text)).unwrap_or_else(|faults| panic!("{faults}")).throttle;
        let each = [throttle.refreshes, throttle.calls, throttle.failures];
        each.map(|rate| rate.map(|rate| (rate.burst, rate.every.as_millis())))
    };
    assert_eq!(rates(""), [Some((10, 5_000)), Some((300, 200)), Some((20, 3_000))]);
    assert_eq!(rates("[throttle]\nrefreshes = 0\ncalls = 60\nfailures = 0"), [None, Some((60, 1_000)), None]);
}
