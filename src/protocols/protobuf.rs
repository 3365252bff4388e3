//! The part of Protocol Buffers that the gateway needs: appends fields of a message, and reads those of one
//! (protobuf.dev/programming-guides/encoding). The spans of traces are written with it, and the calls of Envoy read.

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u32 = 2;
const FIXED32: u32 = 5;

/// A message that grows.
#[derive(Default)]
pub struct Message(pub Vec<u8>);

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
    pub fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, FIXED32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Bytes, or a text in UTF-8.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, LEN);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// A message within this one.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// The fields of a message, with their numbers. After a field that is [`Malformed`], there are no others.
pub struct Fields<'m>(pub &'m [u8]);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'m> {
    Number(u64),
    /// Bytes, a text or a message.
    Bytes(&'m [u8]),
    /// A number of a fixed size.
    Fixed,
}

/// What is left of a message is no field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Malformed;

impl<'m> Fields<'m> {
    fn take(&mut self, count: u64) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)? else { return None };
            // Ten bytes have seventy bits, and a number has sixty-four.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u32, Field<'m>)> {
        let tag = u32::try_from(self.varint()?).ok()?;
        let number = Some(tag >> 3).filter(|number| *number > 0)?;
        let field = match tag & 7 {
            VARINT => Field::Number(self.varint()?),
            LEN => {
                let len = self.varint()?;
                Field::Bytes(self.take(len)?)
            }
            FIXED64 => self.take(8).map(|_| Field::Fixed)?,
            FIXED32 => self.take(4).map(|_| Field::Fixed)?,
            // Groups, which no message has any more.
            _ => return None,
        };
        Some((number, field))
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Result<(u32, Field<'m>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Malformed))
    }
}

/// The fields of a message that have these numbers and consist of bytes. A missing one is empty. The whole message
/// must be readable, and none of them may be repeated or of another type: readers disagree about which one counts.
pub fn only<const N: usize>(message: &[u8], numbers: [u32; N]) -> Result<[&[u8]; N], Malformed> {
    let mut found = [None; N];
    for field in Fields(message) {
        let (number, field) = field?;
        let Some(place) = numbers.iter().position(|wanted| *wanted == number) else { continue };
        match field {
            Field::Bytes(bytes) if found[place].is_none() => found[place] = Some(bytes),
            _ => return Err(Malformed),
        }
    }
    Ok(found.map(Option::unwrap_or_default))
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
        let read = |message| Fields(message).map_while(Result::ok).collect::<Vec<_>>();
        let fields = read(&message);
        let text = Field::Bytes(b"text");
        let expected =
            [(1, Field::Number(u64::MAX)), (2, Field::Fixed), (3, Field::Fixed), (1000, text), (5, Field::Number(7))];
        assert_eq!(fields, expected);
        for end in 0..message.len() {
            assert!(expected.starts_with(&read(&message[..end])), "cut after {end} bytes");
        }
        for invalid in [
            &b"<html>"[..],
            b"{}",
            &[0xff; 20],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            // A group, the field 0, a number of more than 64 bits, and the field 2^29.
            b"\x0b",
            b"\x00\x00",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\x80\x80\x80\x80\x10\x00",
        ] {
            assert_eq!(Fields(invalid).collect::<Vec<_>>(), [Err(Malformed)], "{invalid:?}");
        }
    }

    #[test]
    fn a_field_that_is_wanted_is_there_once_or_not_at_all() {
        let message = written(|message| {
            message.bytes(1, b"a");
            message.number(9, 1);
            message.bytes(3, b"c");
        });
        assert_eq!(only(&message, [1, 2, 3]), Ok([&b"a"[..], b"", b"c"]));
        assert_eq!(only(b"", [1]), Ok([&b""[..]]));
        assert_eq!(only(&message, [9]), Err(Malformed), "a number");
        for rest in [&b"\x0a\x01b"[..], b"\x0a\x00", b"\x0a", b"\x08\x00", b"\x0d\x00\x00\x00\x00"] {
            assert_eq!(only(&[&message[..], rest].concat(), [1]), Err(Malformed), "{rest:?}");
        }
        assert_eq!(only(&[&message[..], b"\x48\x02"].concat(), [1]), Ok([&b"a"[..]]), "of no interest");
    }
}
