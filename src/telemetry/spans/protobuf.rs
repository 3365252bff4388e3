//! The part of Protocol Buffers that spans need: appends fields of a message
//! (protobuf.dev/programming-guides/encoding).

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u32 = 2;
const FIXED32: u32 = 5;

/// A message that grows.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// An integer or an enum.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Bytes, or a text in UTF-8.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LEN);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::default();
        write(&mut message);
        message.0
    }

    /// The examples are those of the specification.
    #[test]
    fn fields_are_written_as_the_specification_says() {
        assert_eq!(written(|message| message.number(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|message| message.bytes(2, b"testing")), *b"\x12\x07testing");
        let inner = |message: &mut Message| message.message(3, |inner| inner.number(1, 150));
        assert_eq!(written(inner), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(written(|message| message.number(1, u64::MAX)).len(), 11);
        assert_eq!(written(|message| message.number(16, 0)), [0x80, 0x01, 0x00]);
        assert_eq!(written(|message| message.fixed64(7, 1)), [0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(written(|message| message.fixed32(16, 1)), [0x85, 0x01, 1, 0, 0, 0]);
        assert_eq!(written(|message| message.bytes(1, &[0; 300]))[..3], [0x0a, 0xac, 0x02]);
    }
}
