//! The text format, for people.

use std::io::Write;

use super::field::cut;
use super::record::Record;

/// Everything that a client sent is quoted with escapes, so that it cannot begin a line of its own.
pub(super) fn write_text(record: &Record, time: &str, path: &str, max_field: usize, page: &mut Vec<u8>) {
    let client = record.client.map_or_else(|| "-".into(), |address| address.to_canonical().to_string());
    let (observed, reason) = match (record.failure(), &record.observed) {
        (Some(reject), _) => ("", reject.reason.code()),
        (None, Some(observed)) => ("observed:", observed.reason.code()),
        (None, None) => ("", "-"),
    };
    // Writing to memory does not fail.
    let _ = write!(
        page,
        "{time} {client} {} {:?} {:?} {} {} {}us {} {:?} {observed}{reason} {} {:?}",
        cut(record.method.as_str(), max_field),
        cut(record.host().unwrap_or("-"), max_field),
        cut(path, max_field),
        record.protocol(),
        record.status,
        record.duration.as_micros(),
        match record.ended {
            Some(ended) => ended.code(),
            None if record.complete => "complete",
            None => "cut",
        },
        cut(record.token().map_or("-", |token| &*token.subject), max_field),
        record.request_id,
        cut(record.detail().unwrap_or("-"), max_field),
    );
}
