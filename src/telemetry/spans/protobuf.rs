//! The part of Protocol Buffers that spans need: appends fields of a message, and reads those of a response
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

/// The fields of a message, with their numbers. Ends before the first that cannot be read.
pub(super) struct Fields<'m>(pub(super) &'m [u8]);

#[derive(Debug, PartialEq)]
pub(super) enum Field<'m> {
    Number(u64),
    /// Bytes, a text or a message.
    Bytes(&'m [u8]),
    Other,
}

impl<'m> Fields<'m> {
    fn take(&mut self, count: u64) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        // Ten bytes have the 64 bits of a number.
        for shift in (0..70).step_by(7) {
            let [byte] = *self.take(1)? else { return None };
            value |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = (u64, Field<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let field = match u32::try_from(tag & 7).ok()? {
            VARINT => Field::Number(self.varint()?),
            LEN => {
                let len = self.varint()?;
                Field::Bytes(self.take(len)?)
            }
            FIXED64 => self.take(8).map(|_| Field::Other)?,
            FIXED32 => self.take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((tag >> 3, field))
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

    #[test]
    fn what_is_written_is_read() {
        let message = written(|message| {
            message.number(1, u64::MAX);
            message.fixed64(2, 1);
            message.fixed32(3, 1);
            message.bytes(1000, b"text");
            message.number(5, 7);
        });
        let fields: Vec<_> = Fields(&message).collect();
        let text = Field::Bytes(b"text");
        let expected =
            [(1, Field::Number(u64::MAX)), (2, Field::Other), (3, Field::Other), (1000, text), (5, Field::Number(7))];
        assert_eq!(fields, expected);
        for end in 0..message.len() {
            assert!(expected.starts_with(&Fields(&message[..end]).collect::<Vec<_>>()), "cut after {end} bytes");
        }
        for invalid in [&b"<html>"[..], b"{}", &[0xff; 20], b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b"] {
            assert_eq!(Fields(invalid).count(), 0, "{invalid:?}");
        }
    }
}
