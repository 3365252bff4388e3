//! What went wrong in programs of this kind, and the test that shows that it does not here.
//!
//! | precedent | fault | shown by |
//! |---|---|---|
//! | jsonwebtoken CVE-2026-25537 | a date that is text counted as none | `a_hostile_token_is_refused_with_its_reason_and_goes_nowhere` |
//! | Authlib CVE-2025-59420, PyJWT CVE-2026-32597, fast-jwt GHSA-hm7r-c7qw-ghp6 | `crit` was not looked at | `a_hostile_token_is_refused_with_its_reason_and_goes_nowhere` |
//! | Hono CVE-2026-22817, CVE-2026-22818 | for a key without `alg` the token chose | `what_is_good_is_admitted_and_what_is_not_ours_is_left_out`, `a_set_says_which_key_is_meant`, `a_hostile_token_is_refused_with_its_reason_and_goes_nowhere` |
//! | Java CVE-2022-21449 | an ECDSA signature of zeros | `a_hostile_token_is_refused_with_its_reason_and_goes_nowhere`, `every_vector_of_wycheproof_comes_out_right_or_has_its_reason` |
//! | Pulsar CVE-2021-22160 | alg none | `a_hostile_token_is_refused_with_its_reason_and_goes_nowhere` |
//! | APISIX CVE-2026-39999 | a configuration under which nothing was checked | `issuers_are_checked`, `routes_are_checked`, `without_a_token_only_the_scheme_is_told` |
//! | Envoy CVE-2022-29226 | a token that was there counted as good | `a_hostile_token_is_refused_with_its_reason_and_goes_nowhere` |
//! | Kong 3.2.1 | different tokens in header, query and cookie | `a_token_counts_where_its_route_takes_it_from_and_only_once` |
//! | Envoy CVE-2019-9901 | a path was matched in one form and forwarded in another | `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere`, `what_passes_is_forwarded_byte_for_byte` |
//! | Envoy CVE-2021-29492 | `%2F..%2F` | `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere` |
//! | Envoy CVE-2021-32779, oauth2-proxy CVE-2026-41059 | `#` in a target | `a_fragment_reaches_nobody`, `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere` |
//! | Envoy CVE-2026-73551, CVE-2026-73553, CVE-2026-73511 | `..;` | `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere` |
//! | Traefik CVE-2025-32431, GHSA-vrch-868g-9jx5, GHSA-gm3x-23wp-hc2c | dot segments, then encoded ones, then encoded separators | `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere` |
//! | Heimdall GHSA-3q34-rx83-r6mq | rules were matched on the raw path | `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere`, `no_spelling_of_a_path_takes_another_route` |
//! | Caddy CVE-2026-27587 | a pattern's spelling changed how it was matched | `no_spelling_of_a_path_takes_another_route`, `routes_are_checked` |
//! | oauth2-proxy CVE-2025-54576 | rules for paths were matched on the query too | `no_query_makes_a_path_public` |
//! | oauth2-proxy CVE-2026-40575 | `X-Forwarded-Uri` said which path was asked for | `a_hostile_host_or_excuse_is_refused_with_its_reason_and_goes_nowhere` |
//! | oauth2-proxy CVE-2026-34457 | a health check's User-Agent needed no token | `a_hostile_host_or_excuse_is_refused_with_its_reason_and_goes_nowhere` |
//! | Traefik CVE-2026-35051, CVE-2024-52003 | `X-Forwarded-Prefix` went on | `a_hostile_header_reaches_nobody_in_any_spelling` |
//! | Traefik CVE-2021-32813, CVE-2024-45410 | `Connection` removed what the proxy had set | `connection_cannot_nominate_what_the_gateway_sets_or_what_carries_meaning`, `a_hostile_header_reaches_nobody_in_any_spelling` |
//! | Caddy GHSA-7r4p-vjf4-gxv4 | a client's identity header stayed where there was none to set | `on_a_public_route_nobody_is_anybody` |
//! | Caddy GHSA-f59h-q822-g45g | `Remote_User` is `Remote-User` to CGI | `a_hostile_header_reaches_nobody_in_any_spelling` |
//! | caddy-security CVE-2024-21494 | `X-Forwarded-For` was believed | `nobody_is_believed_about_the_client_unless_it_is_said` |
//! | Pingora CVE-2025-4366 | an early answer, and the rest of the body taken for a request | `a_refused_request_leaves_no_byte_of_its_body_behind` |
//! | Pingora CVE-2026-2833 | a tunnel before the 101, for any protocol | `upgrades_to_other_protocols_are_ignored`, `an_unexpected_101_response_is_a_bad_gateway` |
//! | Pingora CVE-2026-2835 | chunks in HTTP/1.0 | `a_hostile_framing_is_refused_with_its_reason_and_nothing_behind_it_is_read` |
//! | hyper CVE-2021-32714, CVE-2021-32715 | sizes over 64 bits, and `+5` | `a_body_with_hostile_chunks_is_a_broken_request`, `a_hostile_framing_is_refused_with_its_reason_and_nothing_behind_it_is_read` |
//! | hyper before 2023-12 | a chunk's missing size was 0 | `a_body_with_hostile_chunks_is_a_broken_request` |
//! | HAProxy CVE-2023-25725 | an empty name ended the headers | `a_hostile_framing_is_refused_with_its_reason_and_nothing_behind_it_is_read` |
//! | HAProxy CVE-2023-40225 | an empty Content-Length went on | `a_hostile_framing_is_refused_with_its_reason_and_nothing_behind_it_is_read` |
//! | HAProxy CVE-2021-40346 | a name's length did not fit into a byte | `a_long_name_arrives_whole_or_not_at_all` |
//! | nginx CVE-2019-20372 | an error's answer, and the rest of the body taken for a request | `a_refused_request_leaves_no_byte_of_its_body_behind`, `pipelined_requests_are_answered_in_turn` |
//! | nginx CVE-2026-42926 | a value of the proxy's own carried a request into HTTP/2 | `a_claim_cannot_break_out_of_its_header`, `identity_headers_and_the_access_log_are_checked`, `a_hostile_http2_request_goes_nowhere` |
//! | Netty CVE-2021-21295, CVE-2021-21409 | a length of HTTP/2 that was not true went on to HTTP/1 | `a_request_with_a_wrong_content_length_is_not_forwarded`, `a_hostile_http2_request_goes_nowhere` |
//! | HTTP/2 CVE-2023-44487, CVE-2019-9514, RUSTSEC-2023-0034 | rapid reset | `rapid_resets_end_their_connection_and_nobody_elses` |
//! | h2 RUSTSEC-2024-0332 | a header block without an end | `a_header_block_without_an_end_ends_its_connection` |
//! | HTTP/2 CVE-2025-8671 | the server was made to reset | `a_client_that_has_its_streams_reset_ends_its_connection_and_leaves_nothing_behind` |
//! | rustls CVE-2024-11738 | a ClientHello in pieces ended the process | `an_odd_handshake_ends_its_connection_and_nobody_elses` |
//! | rustls RUSTSEC-2024-0336 | a goodbye in the handshake went round for ever | `an_odd_handshake_ends_its_connection_and_nobody_elses` |
//! | rsa RUSTSEC-2023-0071 | the time of a private operation told the key | `what_was_mended_elsewhere_is_what_is_linked` |
//! | Pomerium CVE-2021-39206 | the faults of the proxy that it is built on | `a_hostile_path_is_refused_with_its_reason_and_goes_nowhere`, `a_hostile_path_is_no_better_over_http2`, `what_was_mended_elsewhere_is_what_is_linked` |

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::house::source;
use crate::support::{Gateway, Upstream};

/// The table above: precedent, and tests.
fn table() -> Vec<(String, Vec<String>)> {
    let text = source::read("tests/it/hostile/precedents.rs");
    let rows = text.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [precedent, _, tests] = cells[..] else { panic!("three cells: {row}") };
        (precedent.to_owned(), tests.split(", ").map(|test| test.trim_matches('`').to_owned()).collect())
    })
    .collect()
}

/// The functions under `#[test]` or `#[tokio::test]` in a folder.
fn tests_in(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
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
fn every_precedent_has_its_tests() {
    let table = table();
    assert_eq!(table.len(), 41);
    let precedents: HashSet<&String> = table.iter().map(|(precedent, _)| precedent).collect();
    assert_eq!(precedents.len(), table.len(), "a row for each");
    let mut tests = HashSet::new();
    for folder in ["src", "tests/it"] {
        tests_in(&source::root().join(folder), &mut tests);
    }
    let missing: Vec<_> = table
        .iter()
        .flat_map(|(precedent, named)| named.iter().map(move |test| (precedent, test)))
        .filter(|(_, test)| !tests.contains(*test))
        .collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
}

/// `/admin?x=/public` is `/admin` (oauth2-proxy CVE-2025-54576).
#[tokio::test]
async fn no_query_makes_a_path_public() {
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

/// The versions in which the faults of libraries were mended, or later ones; and none of what cannot be mended.
#[test]
fn what_was_mended_elsewhere_is_what_is_linked() {
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
    for (name, mended) in
        [("jsonwebtoken", [10, 3, 0]), ("hyper", [0, 14, 10]), ("h2", [0, 4, 4]), ("rustls", [0, 23, 18])]
    {
        let versions: Vec<_> = linked.iter().filter(|(found, _)| *found == name).collect();
        assert!(!versions.is_empty(), "{name} is not linked any more");
        assert!(versions.iter().all(|(_, version)| version[..] >= mended[..]), "{versions:?}");
    }
    assert!(linked.iter().all(|(name, _)| *name != "rsa"), "RUSTSEC-2023-0071 has no mended version");
}
