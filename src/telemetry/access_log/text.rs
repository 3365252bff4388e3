//! The text format, for people.

use std::io::Write;

use super::record::Record;

/// Everything that a client sent is quoted with escapes, so that it cannot begin a line of its own.
pub(super) fn write_text(record: &Record, time: &str, path: &str, page: &mut Vec<u8>) {
    let client = record.client.map_or_else(|| "-".into(), |address| address.to_canonical().to_string());
    let (observed, reason) = match (&record.rejected, &record.observed) {
        (Some(reject), _) => ("", reject.reason.code()),
        (None, Some(observed)) => ("observed:", observed.reason.code()),
        (None, None) => ("", "-"),
    };
    // Writing to memory does not fail.
    let _ = write!(
        page,
        "{time} {client} {} {:?} {path:?} {} {} {}us {} {:?} {observed}{reason} {} {:?}",
        record.method,
        record.host().unwrap_or("-"),
        record.protocol(),
        record.status,
        record.duration.as_micros(),
        match record.ended {
            Some(ended) => ended.code(),
            None if record.complete => "complete",
            None => "cut",
        },
        record.caller.as_ref().map_or("-", |caller| &*caller.subject),
        record.request_id,
        record.detail().unwrap_or("-"),
    );
}
