//! Names in the path of a call.

use crate::protocols::http::path;
use crate::types::reject::{Reason, Reject};

/// The text of a segment that is percent-encoded. `what`: what it names, for the error.
pub(super) fn decode(segment: &str, what: &str) -> Result<String, Reject> {
    let text = String::from_utf8(path::decode(segment.as_bytes()).into_owned());
    let text = text.map_err(|_| Reject::new(Reason::BadParameter, format!("the {what} is not UTF-8")))?;
    if text.is_empty() { Err(Reject::new(Reason::BadParameter, format!("the {what} is empty"))) } else { Ok(text) }
}
