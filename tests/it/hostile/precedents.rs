//! Vulnerabilities of similar programs, and the tests that show that the gateway does not have them.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::support::source;
use crate::support::{Gateway, Upstream};

/// The precedent, what went wrong there, and the tests here.
const PRECEDENTS: &[(&str, &str, &[&str])] = &[
    (
        "jsonwebtoken CVE-2026-25537",
        "a date in a string was ignored",
        &["hostile_tokens_are_rejected_with_their_reason"],
    ),
    (
        "Authlib CVE-2025-59420, PyJWT CVE-2026-32597, fast-jwt GHSA-hm7r-c7qw-ghp6",
        "`crit` was ignored",
        &["hostile_tokens_are_rejected_with_their_reason"],
    ),
    (
        "Hono CVE-2026-22817, CVE-2026-22818",
        "the token selected the algorithm of a key without `alg`",
        &[
            "good_keys_are_accepted_and_unusable_ones_skipped",
            "a_kid_or_the_algorithm_selects_exactly_one_key",
            "hostile_tokens_are_rejected_with_their_reason",
        ],
    ),
    (
        "Java CVE-2022-21449",
        "an ECDSA signature of zeros was valid",
        &["hostile_tokens_are_rejected_with_their_reason", "wycheproof_vectors_have_the_right_or_a_listed_outcome"],
    ),
    ("Pulsar CVE-2021-22160", "`alg: none` was accepted", &["hostile_tokens_are_rejected_with_their_reason"]),
    (
        "APISIX CVE-2026-39999",
        "an incomplete configuration disabled the checks",
        &["issuers_are_checked", "routes_are_checked", "without_a_token_the_challenge_has_only_the_scheme"],
    ),
    ("Envoy CVE-2022-29226", "any present token was accepted", &["hostile_tokens_are_rejected_with_their_reason"]),
    (
        "Kong 3.2.1",
        "header, query and cookie could have different tokens",
        &["a_token_is_accepted_only_once_and_where_its_route_allows"],
    ),
    (
        "Envoy CVE-2019-9901",
        "the matched path differed from the forwarded one",
        &["hostile_paths_are_rejected_with_their_reason", "paths_are_forwarded_byte_for_byte"],
    ),
    ("Envoy CVE-2021-29492", "`%2F..%2F` was not normalized", &["hostile_paths_are_rejected_with_their_reason"]),
    (
        "Envoy CVE-2021-32779, oauth2-proxy CVE-2026-41059",
        "`#` in a target bypassed rules",
        &["a_fragment_does_not_reach_the_backend", "hostile_paths_are_rejected_with_their_reason"],
    ),
    (
        "Envoy CVE-2026-73551, CVE-2026-73553, CVE-2026-73511",
        "`..;` bypassed rules",
        &["hostile_paths_are_rejected_with_their_reason"],
    ),
    (
        "Traefik CVE-2025-32431, GHSA-vrch-868g-9jx5, GHSA-gm3x-23wp-hc2c",
        "dot segments, plain and encoded, and encoded separators bypassed rules",
        &["hostile_paths_are_rejected_with_their_reason"],
    ),
    (
        "Heimdall GHSA-3q34-rx83-r6mq",
        "rules were matched with the raw path",
        &["hostile_paths_are_rejected_with_their_reason", "no_encoding_of_a_path_selects_another_route"],
    ),
    (
        "Caddy CVE-2026-27587",
        "the encoding of a pattern changed its matching",
        &["no_encoding_of_a_path_selects_another_route", "routes_are_checked"],
    ),
    (
        "oauth2-proxy CVE-2025-54576",
        "path rules were also matched with the query",
        &["a_query_never_makes_a_path_public"],
    ),
    (
        "oauth2-proxy CVE-2026-40575",
        "`X-Forwarded-Uri` replaced the path",
        &["hostile_hosts_and_bypass_headers_are_rejected"],
    ),
    (
        "oauth2-proxy CVE-2026-34457",
        "the User-Agent of a health check bypassed the token",
        &["hostile_hosts_and_bypass_headers_are_rejected"],
    ),
    (
        "Traefik CVE-2026-35051, CVE-2024-52003",
        "`X-Forwarded-Prefix` was forwarded",
        &["forged_headers_reach_no_backend_in_any_spelling"],
    ),
    (
        "Traefik CVE-2021-32813, CVE-2024-45410",
        "`Connection` removed headers of the proxy",
        &["connection_cannot_remove_headers_of_the_gateway", "forged_headers_reach_no_backend_in_any_spelling"],
    ),
    (
        "Caddy GHSA-7r4p-vjf4-gxv4",
        "a client's identity header was forwarded without authentication",
        &["a_public_route_removes_identity_headers", "a_200_has_every_identity_header"],
    ),
    (
        "Caddy GHSA-f59h-q822-g45g",
        "CGI reads `Remote_User` as `Remote-User`",
        &["forged_headers_reach_no_backend_in_any_spelling"],
    ),
    (
        "caddy-security CVE-2024-21494",
        "`X-Forwarded-For` of any client was accepted",
        &["forwarding_headers_are_ignored_by_default"],
    ),
    (
        "Pingora CVE-2025-4366",
        "after an early response, the rest of the body was read as a request",
        &["the_body_of_a_rejected_request_is_no_next_request"],
    ),
    (
        "Pingora CVE-2026-2833",
        "a tunnel began before the 101, for any protocol",
        &["upgrades_to_other_protocols_are_ignored", "an_unexpected_101_response_is_a_bad_gateway"],
    ),
    (
        "Pingora CVE-2026-2835",
        "chunks were accepted in HTTP/1.0",
        &["hostile_framing_is_rejected_and_closes_the_connection"],
    ),
    (
        "hyper CVE-2021-32714, CVE-2021-32715",
        "sizes over 64 bits and `+5` were accepted",
        &["a_body_with_malformed_chunks_is_rejected", "hostile_framing_is_rejected_and_closes_the_connection"],
    ),
    ("hyper before 2023-12", "a missing chunk size was read as 0", &["a_body_with_malformed_chunks_is_rejected"]),
    (
        "HAProxy CVE-2023-25725",
        "an empty header name ended the headers",
        &["hostile_framing_is_rejected_and_closes_the_connection"],
    ),
    (
        "HAProxy CVE-2023-40225",
        "an empty Content-Length was forwarded",
        &["hostile_framing_is_rejected_and_closes_the_connection"],
    ),
    (
        "HAProxy CVE-2021-40346",
        "the length of a header name overflowed a byte",
        &["a_long_header_name_arrives_complete_or_is_rejected"],
    ),
    (
        "nginx CVE-2019-20372",
        "after an error response, the rest of the body was read as a request",
        &["the_body_of_a_rejected_request_is_no_next_request", "pipelined_requests_get_their_responses_in_order"],
    ),
    (
        "nginx CVE-2026-42926",
        "a value set by the proxy could inject a request",
        &[
            "a_claim_cannot_break_out_of_its_header",
            "identity_headers_and_the_access_log_are_checked",
            "hostile_http2_requests_reach_no_backend",
        ],
    ),
    (
        "Netty CVE-2021-21295, CVE-2021-21409",
        "a wrong Content-Length of HTTP/2 was forwarded over HTTP/1",
        &["a_request_with_a_wrong_content_length_is_not_forwarded", "hostile_http2_requests_reach_no_backend"],
    ),
    (
        "HTTP/2 CVE-2023-44487, CVE-2019-9514, RUSTSEC-2023-0034",
        "rapid reset",
        &["rapid_resets_close_only_their_own_connection"],
    ),
    ("h2 RUSTSEC-2024-0332", "a header block had no end", &["an_endless_header_block_closes_its_connection"]),
    (
        "HTTP/2 CVE-2025-8671",
        "clients could make the server reset streams",
        &["a_client_that_provokes_resets_is_disconnected"],
    ),
    (
        "rustls CVE-2024-11738",
        "a fragmented ClientHello ended the process",
        &["a_broken_handshake_closes_only_its_own_connection"],
    ),
    (
        "rustls RUSTSEC-2024-0336",
        "close_notify in the handshake caused an endless loop",
        &["a_broken_handshake_closes_only_its_own_connection"],
    ),
    (
        "rsa RUSTSEC-2023-0071",
        "the timing of private operations revealed the key",
        &["linked_libraries_have_the_fixes"],
    ),
    (
        "Pomerium CVE-2021-39206",
        "the product had the faults of its underlying proxy",
        &[
            "hostile_paths_are_rejected_with_their_reason",
            "hostile_paths_are_rejected_over_http2",
            "linked_libraries_have_the_fixes",
        ],
    ),
];

/// Collects the names of the functions with `#[test]` or `#[tokio::test]` in a folder.
fn tests_in(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            tests_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let mut lines = text.lines().map(str::trim);
            while lines.any(|line| line == "#[test]" || line.starts_with("#[tokio::test")) {
                let function = lines.find_map(|line| line.split_once("fn ")).expect("a function");
                found.extend(function.1.split_once('(').map(|(name, _)| name.to_owned()));
            }
        }
    }
}

#[test]
fn every_precedent_names_existing_tests() {
    assert_eq!(PRECEDENTS.len(), 41);
    let precedents: HashSet<&str> = PRECEDENTS.iter().map(|(precedent, ..)| *precedent).collect();
    assert_eq!(precedents.len(), PRECEDENTS.len(), "one row for each");
    let mut tests = HashSet::new();
    for folder in ["src", "tests/it"] {
        tests_in(&source::root().join(folder), &mut tests);
    }
    let missing: Vec<_> = PRECEDENTS
        .iter()
        .flat_map(|(precedent, _, named)| named.iter().map(move |test| (precedent, test)))
        .filter(|(_, test)| !tests.contains(**test))
        .collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
}

/// The path of `/admin?x=/public` is `/admin` (oauth2-proxy CVE-2025-54576).
#[tokio::test]
async fn a_query_never_makes_a_path_public() {
    let upstream = Upstream::start();
    let public = "[[route]]\npath = \"/public\"\npublic = true\n[[route]]\npath = \"/\"\n";
    let gateway = Gateway::with_config(&upstream, public);
    for target in [
        "/admin?x=/public",
        "/admin?/public",
        "/admin?/../public",
        "/?/public",
        "/admin/?/public/",
        "/admin?x=1&path=/public",
        "/admin?%2Fpublic",
        "/admin?;/public",
        "/publicity",
        "/public.admin",
        "/PUBLIC",
        "/admin/public",
    ] {
        gateway.client().get(target).await.assert_rejected(401, "unauthorized");
    }
    assert_eq!(upstream.connections(), 0);
    assert_eq!(gateway.client().get("/public?x=/admin").await.status, 200);
}

/// Each library has the version with the fix or a later one, and no library without a fix is linked.
#[test]
fn linked_libraries_have_the_fixes() {
    let lock = source::read("Cargo.lock");
    let mut linked: Vec<(&str, Vec<u64>)> = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)).expect("each package has one");
            line.trim_matches(|c| c == '"' || c == ' ' || c == '=')
        };
        let version = value("version").split(['-', '+']).next().expect("a version");
        linked.push((value("name"), version.split('.').map(|part| part.parse().expect("a number")).collect()));
    }
    for (name, fixed) in
        [("jsonwebtoken", [10, 3, 0]), ("hyper", [0, 14, 10]), ("h2", [0, 4, 4]), ("rustls", [0, 23, 18])]
    {
        let versions: Vec<_> = linked.iter().filter(|(found, _)| *found == name).collect();
        assert!(!versions.is_empty(), "{name} is no longer linked");
        assert!(versions.iter().all(|(_, version)| version[..] >= fixed[..]), "{versions:?}");
    }
    assert!(linked.iter().all(|(name, _)| *name != "rsa"), "RUSTSEC-2023-0071 has no fixed version");
}
