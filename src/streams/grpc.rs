//! gRPC messages, as far as their boundaries, and what ends a call: a status in trailers.
//!
//! Each message has a prefix of five bytes: a flag, and its length. gRPC-Web puts the trailers into the body as one message
//! more, whose flag has the highest bit.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::ended::Ended;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const PREFIX: usize = 5;
/// The flag of a message of trailers.
const TRAILERS: u8 = 0x80;

pub(super) fn trailers(ended: Ended) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static(ended.grpc_status()));
    // Percent-encoded text is always a header value.
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(ended.message())) {
        trailers.insert(GRPC_MESSAGE, message);
    }
    trailers
}

pub(super) fn trailers_in_body(ended: Ended) -> Bytes {
    let (status, message) = (ended.grpc_status(), percent_encoded(ended.message()));
    let text = format!("grpc-status:{status}\r\ngrpc-message:{message}\r\n");
    let mut message = BytesMut::with_capacity(PREFIX + text.len());
    message.put_u8(TRAILERS);
    message.put_u32(text.len() as u32);
    message.put_slice(text.as_bytes());
    message.freeze()
}

/// As the protocol has it: what is neither printable ASCII nor a percent sign stays.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Where in its messages a body is.
#[derive(Default)]
pub(super) struct Messages {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix that went by; 0 between two messages.
    seen: usize,
    /// Bytes of the message that are still to come.
    left: usize,
}

impl Messages {
    /// All of these bytes go by.
    pub(super) fn follow(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.advance(&bytes[at..]);
        }
    }

    /// Of these bytes, only those go by that belong to the message under way. Answers how many.
    pub(super) fn rest_of_message(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_between() {
            at += self.advance(&bytes[at..]);
        }
        at
    }

    pub(super) fn is_between(&self) -> bool {
        self.seen == 0 && self.left == 0
    }

    /// Takes bytes of a message or of its prefix. `bytes` is not empty.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        if self.left > 0 {
            let taken = self.left.min(bytes.len());
            self.left -= taken;
            return taken;
        }
        self.prefix[self.seen] = bytes[0];
        self.seen += 1;
        if self.seen == PREFIX {
            let [_, len @ ..] = self.prefix;
            (self.seen, self.left) = (0, u32::from_be_bytes(len) as usize);
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_found_however_the_bytes_are_cut() {
        let message = |len: u32| [&[0][..], &len.to_be_bytes(), &vec![0; len as usize]].concat();
        let all = [message(0), message(3), message(70_000)].concat();
        for step in [1, 2, 5, 6, 9, 1000, all.len()] {
            let (mut messages, mut at) = (Messages::default(), 0);
            for piece in all.chunks(step) {
                messages.follow(piece);
                at += piece.len();
                assert_eq!(messages.is_between(), [5, 13, all.len()].contains(&at), "{at} by {step}");
            }
        }
        let mut messages = Messages::default();
        messages.follow(&all[..7]);
        assert_eq!(messages.rest_of_message(&all[7..]), 6, "the rest of the second, nothing of the third");
        assert_eq!(messages.rest_of_message(&all[13..]), 0);
    }

    #[test]
    fn what_a_message_may_not_hold_is_encoded() {
        assert_eq!(percent_encoded("100% é\n"), "100%25 %C3%A9%0A");
    }
}
