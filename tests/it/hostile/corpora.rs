//! Replays the corpora of the fuzz targets: the properties hold, and nothing panics.

#[path = "../../fuzz/authorization.rs"]
mod authorization;
#[path = "../../fuzz/properties.rs"]
mod properties;

use std::fs;
use std::path::Path;

fn replay(corpus: &str, holds: fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(corpus);
    let (mut accepted, mut rejected) = (0, 0);
    for entry in fs::read_dir(&folder).expect("a folder of inputs") {
        let path = entry.expect("an entry").path();
        eprintln!("{}", path.display());
        let count = if holds(&fs::read(&path).expect("an input")) { &mut accepted } else { &mut rejected };
        *count += 1;
    }
    assert!(accepted >= 3 && rejected >= 15, "{corpus}: {accepted} accepted, {rejected} rejected");
}

#[test]
fn tokens_of_the_corpus_match_the_library_or_are_rejected() {
    replay("token", properties::token);
}

#[test]
fn paths_of_the_corpus_are_unambiguous_or_rejected() {
    replay("path", properties::path);
}

#[test]
fn headers_of_the_corpus_cannot_forge_identity() {
    replay("headers", properties::headers);
}

#[test]
fn configurations_of_the_corpus_load_or_report_errors() {
    replay("config", properties::config);
}

#[test]
fn messages_of_the_corpus_are_read_whole_or_rejected() {
    replay("protobuf", properties::protobuf);
}

#[test]
fn redirect_uris_of_the_corpus_lead_to_the_registered_host_or_are_rejected() {
    replay("redirect", properties::redirect);
}

#[test]
fn authorization_requests_of_the_corpus_ask_for_what_is_offered_or_are_rejected() {
    replay("authorize", authorization::authorize);
}

#[test]
fn documents_of_the_corpus_are_read_as_by_another_parser_or_rejected() {
    replay("document", authorization::document);
}

#[test]
fn no_text_of_the_corpus_opens_as_a_sealed_one() {
    replay("sealed", authorization::sealed);
}
