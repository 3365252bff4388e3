//! What fuzzing found worth keeping, asked again: the properties hold, and nothing panics.

#[path = "../../fuzz/properties.rs"]
mod properties;

use std::fs;
use std::path::Path;

fn replay(corpus: &str, holds: fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(corpus);
    let (mut accepted, mut refused) = (0, 0);
    for entry in fs::read_dir(&folder).expect("a folder of inputs") {
        let path = entry.expect("an entry").path();
        eprintln!("{}", path.display());
        let count = if holds(&fs::read(&path).expect("an input")) { &mut accepted } else { &mut refused };
        *count += 1;
    }
    assert!(accepted >= 3 && refused >= 15, "{corpus}: {accepted} accepted, {refused} refused");
}

#[test]
fn every_token_of_the_corpus_is_read_as_the_library_reads_it_or_refused() {
    replay("token", properties::token);
}

#[test]
fn every_path_of_the_corpus_means_one_thing_or_is_refused() {
    replay("path", properties::path);
}

#[test]
fn no_headers_of_the_corpus_leave_anything_of_ours() {
    replay("headers", properties::headers);
}

#[test]
fn every_configuration_of_the_corpus_is_read_or_has_its_faults_shown() {
    replay("config", properties::config);
}
