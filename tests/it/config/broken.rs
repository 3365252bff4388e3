//! Errors in the text: syntax, unknown keys, types, units.

use super::check;

#[test]
fn syntax_errors_have_their_position() {
    check(&[
        ("workers = ", "", (1, 11), "expected"),
        ("workers 4", "", (1, 9), "expected `=`"),
        ("workers = 1\nworkers = 2", "", (2, 1), "duplicate key"),
        ("[tokens]\nissuer = https://a", "", (2, 10), "put it in quotes"),
        ("[tokens]\nissuer = \"https://a", "", (2, 20), "expected `\"`"),
        ("[tokens]\nclock_skew = \"1s\"\n[tokens]\nextra_fields = true", "", (3, 2), "may occur once"),
        (
            "[tokens]\naudience = [\"a\"\nclock_skew = 7\n[limits]\nrequest_header_count = \"x\"\n",
            "",
            (2, 12),
            "never closed",
        ),
        ("[[route]\npath = \"/a\"\nx = 1\n[limits]\nrequest_header_count = 50", "", (1, 9), "expected `]`"),
        ("[limits]\nrequest_header_count = 5x0\nhttp2_concurrent_streams = 1", "", (2, 24), "not TOML"),
    ]);
}

#[test]
fn unknown_keys_get_a_suggestion() {
    check(&[
        ("wrokers = 4", "wrokers", (1, 1), "did you mean `workers`?"),
        ("[tokens]\nacces_lifetime = \"1m\"", "tokens.acces_lifetime", (2, 1), "did you mean `access_lifetime`?"),
        ("[tokens]\nsecret = \"x\"", "tokens.secret", (2, 1), "[tokens] has the keys issuer, audience"),
        ("[store]\nsecret = \"hunter2\"", "store.secret", (2, 1), "did you mean `secret_file`?"),
        (
            "[store]\nredis = \"x\"",
            "store.redis",
            (2, 1),
            "[store] has the keys sqlite, postgres, postgres_password_file",
        ),
        ("[[routes]]\npath = \"/\"", "routes", (1, 3), "did you mean `route`?"),
        ("[admin]\nworkers = 4", "admin.workers", (2, 1), "at the top of the file"),
        ("[admin]\npage = \"off\"", "admin.page", (2, 8), "expected true or false"),
        ("[timeouts]\nbody_size = \"1MiB\"", "timeouts.body_size", (2, 1), "under [limits]"),
        ("address = \"0.0.0.0:1\"", "address", (1, 1), "under [admin] or under [[listener]]"),
        (
            "[[issuer]]\nissuer = \"a\"\naudience = [\"a\"]\nalgorithms = [\"HS256\"]\nkeys_at = \"x\"\n\
             secret_file = \"Cargo.toml\"",
            "issuer[0].keys_at",
            (5, 1),
            "[[issuer]] has the keys issuer, audience, jwks_file, pem_file",
        ),
    ]);
}

#[test]
fn values_of_the_wrong_type_are_rejected() {
    check(&[
        ("workers = \"4\"", "workers", (1, 11), "this is a string"),
        ("workers = -1", "workers", (1, 11), "from 0 to 1024"),
        ("workers = 1.5", "workers", (1, 11), "a number with a fraction"),
        ("tokens = 3", "tokens", (1, 10), "expected a table"),
        ("[[tokens]]\nclock_skew = \"1s\"", "tokens", (1, 1), "write [tokens]"),
        ("[listener]\naddress = \"127.0.0.1:1\"\ntls = \"off\"", "listener", (1, 1), "expected [[listener]]"),
        ("[tokens]\nissuer = 7", "tokens.issuer", (2, 10), "a string in quotes"),
        ("[tokens]\naudience = \"a\"", "tokens.audience", (2, 12), "write it in brackets"),
        ("[tokens]\naudience = [\"a\", 7]", "tokens.audience[1]", (2, 18), "this is a number"),
        ("[tokens]\nproof_nonce = true", "tokens.proof_nonce", (2, 15), "a string"),
        ("[tokens]\nproof_replay = \"redis\"", "tokens.proof_replay", (2, 16), "process"),
        ("[tokens]\nextra_fields = \"true\"", "tokens.extra_fields", (2, 16), "without quotes"),
        ("[tokens]\nclock_skew = 2026-01-01", "tokens.clock_skew", (2, 14), "this is a date"),
    ]);
}

#[test]
fn durations_and_sizes_need_a_unit_and_a_valid_range() {
    check(&[
        ("[timeouts]\nrequest_header = 30", "timeouts.request_header", (2, 18), "\"30s\", \"30m\", \"30h\""),
        ("[timeouts]\nrequest_header = \"30\"", "timeouts.request_header", (2, 18), "\"30s\", \"30m\", \"30h\""),
        ("[timeouts]\nrequest_header = 0.5", "timeouts.request_header", (2, 18), "write it in quotes"),
        (
            "[timeouts]\nrequest_header = \"half a minute\"",
            "timeouts.request_header",
            (2, 18),
            "\"half a minute\" is not a duration",
        ),
        ("[timeouts]\ntoken_call_body = \"0s\"", "timeouts.token_call_body", (2, 19), "expected 1ms to 1d"),
        ("[timeouts]\nrequest_header = \"1 month\"", "timeouts.request_header", (2, 18), "is not a duration"),
        ("[timeouts]\nrequest_header = \"0s\"", "timeouts.request_header", (2, 18), "expected 1ms to 1d"),
        (
            "[limits]\nrequest_header_size = 8192",
            "limits.request_header_size",
            (2, 23),
            "\"8192B\", \"8192KiB\", \"8192MiB\"",
        ),
        ("[limits]\nused_proofs = 999", "limits.used_proofs", (2, 15), "from 1000 to 100000000"),
        ("[limits]\nrequest_header_size = \"16 bananas\"", "limits.request_header_size", (2, 23), "is not a size"),
        ("[limits]\nrequest_header_size = \"4KiB\"", "limits.request_header_size", (2, 23), "expected 8KiB to 1MiB"),
        (
            "[limits]\nrequest_header_size = \"8KiB\"\nuri_size = \"9KiB\"",
            "limits.uri_size",
            (3, 12),
            "raise request_header_size",
        ),
        ("[limits]\ntoken_size = \"17KiB\"", "limits.token_size", (2, 14), "at most 16KiB"),
        ("[limits]\ndiscarded_body_size = \"2GiB\"", "limits.discarded_body_size", (2, 23), "to 1GiB"),
        ("[timeouts]\nlingering_close = \"25h\"", "timeouts.lingering_close", (2, 19), "to 1d"),
        ("[limits]\nbody_size = \"unlimted\"", "limits.body_size", (2, 13), "is not a size"),
        ("[limits]\nrequest_header_count = 5", "limits.request_header_count", (2, 24), "from 10 to 1000"),
    ]);
}
