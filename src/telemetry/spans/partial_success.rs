//! The answer of a collector that has accepted a batch only in part (OTLP 1, "Partial Success").

use crate::protocols::protobuf::{Field, Fields};

// ExportTraceServiceResponse
const PARTIAL_SUCCESS: u32 = 1;
// ExportTracePartialSuccess
const REJECTED_SPANS: u32 = 1;
const ERROR_MESSAGE: u32 = 2;

#[derive(Debug, Default, PartialEq)]
pub(super) struct PartialSuccess {
    pub(super) rejected_spans: u64,
    /// Can also be a warning, without rejected spans.
    pub(super) message: String,
}

impl PartialSuccess {
    /// A body that cannot be read rejects nothing: the status has accepted everything.
    pub(super) fn read(response: &[u8]) -> Self {
        let mut partial = PartialSuccess::default();
        for (number, field) in fields(response) {
            if let (PARTIAL_SUCCESS, Field::Bytes(message)) = (number, field) {
                fields(message).for_each(|(number, field)| partial.set(number, field));
            }
        }
        partial
    }

    fn set(&mut self, number: u32, field: Field<'_>) {
        match (number, field) {
            // Signed in the message.
            (REJECTED_SPANS, Field::Number(count)) => self.rejected_spans = count.cast_signed().max(0).cast_unsigned(),
            (ERROR_MESSAGE, Field::Bytes(text)) => self.message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.rejected_spans == 0 && self.message.is_empty()
    }
}

/// The fields before the first that cannot be read.
fn fields(message: &[u8]) -> impl Iterator<Item = (u32, Field<'_>)> {
    Fields(message).map_while(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_spans_and_their_reason_are_read() {
        let read = |response: &[u8]| PartialSuccess::read(response);
        let rejected_spans = 3;
        let message = "quota".to_owned();
        assert_eq!(read(b"\x0a\x09\x08\x03\x12\x05quota"), PartialSuccess { rejected_spans, message });
        assert!(
            read(b"\x0a\x00").is_complete()
                && read(b"").is_complete()
                && read(b"{\"partialSuccess\":{}}").is_complete()
        );
        assert!(read(b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").is_complete(), "-1");
    }
}
