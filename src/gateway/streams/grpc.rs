//! Finds the boundaries of gRPC messages, and writes the trailers of gRPC-Web.
//!
//! Each message has a prefix of five bytes: a flag and the length. gRPC-Web sends the trailers in the body, as one more
//! message with the highest bit of the flag set.

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;

use crate::protocols::boundaries::Boundaries;

const PREFIX: usize = 5;
/// The flag of a message of trailers.
const TRAILERS: u8 = 0x80;

/// Writes trailers as gRPC-Web sends them: as a message of the body.
pub(super) fn in_body(trailers: &HeaderMap) -> Bytes {
    let mut text = Vec::new();
    for (name, value) in trailers {
        text.extend([name.as_str().as_bytes(), b":", value.as_bytes(), b"\r\n"].concat());
    }
    let mut message = BytesMut::with_capacity(PREFIX + text.len());
    message.put_u8(TRAILERS);
    // The gateway writes these trailers, and they are short.
    message.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    message.put_slice(&text);
    message.freeze()
}

/// The position of a body within its messages.
#[derive(Default)]
pub(super) struct Messages {
    prefix: [u8; PREFIX],
    /// Bytes of the prefix that have passed. 0 between two messages.
    seen: usize,
    /// Bytes of the message that are still to come.
    left: usize,
}

impl Boundaries for Messages {
    fn is_between(&self) -> bool {
        self.seen == 0 && self.left == 0
    }

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
    fn finds_boundaries_in_pieces_of_any_size() {
        let message = |len: u32| [&[0][..], &len.to_be_bytes(), &vec![0; len as usize]].concat();
        let all = [message(0), message(3), message(70_000)].concat();
        for step in [1, 2, 5, 6, 9, 1000, all.len()] {
            let mut messages = Messages::default();
            let mut at = 0;
            for piece in all.chunks(step) {
                messages.follow(piece);
                at += piece.len();
                assert_eq!(messages.is_between(), [5, 13, all.len()].contains(&at), "{at} by {step}");
            }
        }
        let mut messages = Messages::default();
        messages.follow(&all[..7]);
        assert_eq!(messages.rest_of_unit(&all[7..]), 6, "the rest of the second, nothing of the third");
        assert_eq!(messages.rest_of_unit(&all[13..]), 0);
    }

    #[test]
    fn trailers_in_a_body_are_one_message() {
        let message = in_body(&crate::protocols::grpc::trailers(crate::types::close_reason::CloseReason::Token(
            crate::types::reject::Reason::Revoked,
        )));
        let (prefix, text) = message.split_at(PREFIX);
        assert_eq!(prefix, [TRAILERS, 0, 0, 0, u8::try_from(text.len()).expect("short")]);
        let text = str::from_utf8(text).expect("text");
        assert!(text.starts_with("grpc-status:16\r\ngrpc-message:") && text.ends_with("\r\n"), "{text}");
    }
}
