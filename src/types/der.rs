//! The elements of DER (X.690).

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const SEQUENCE: u8 = 0x30;

/// The content of the element that `der` begins with, if it has this tag, and the bytes after the element.
pub fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = any_element(der)?;
    (found == tag).then_some((content, rest))
}

/// Tags and contents, up to the first bytes that are no element.
pub fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = any_element(der)?;
        der = rest;
        Some((tag, content))
    })
}

fn any_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, len], rest) = der.split_first_chunk::<2>()?;
    let (len, rest) = match len {
        0..0x80 => (usize::from(len), rest),
        _ => long_length(len, rest)?,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

fn long_length(len: u8, rest: &[u8]) -> Option<(usize, &[u8])> {
    let (len_bytes, rest) = rest.split_at_checked(usize::from(len & 0x7f)).filter(|(len, _)| !len.is_empty())?;
    let len = len_bytes.iter().try_fold(0usize, |len, byte| len.checked_mul(256)?.checked_add(usize::from(*byte)))?;
    Some((len, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_one_byte_below_128_and_more_from_there_on() {
        let of = |head: &[u8], len: usize| [&[SEQUENCE], head, &vec![7; len]].concat();
        for (der, expected) in [
            (of(&[0], 0), Some(0)),
            (of(&[0x7f], 127), Some(127)),
            (of(&[0x81, 0x80], 128), Some(128)),
            (of(&[0x82, 1, 0], 256), Some(256)),
            // The indefinite form of BER, which DER does not have.
            (of(&[0x80], 128), None),
            (of(&[0x7f], 126), None),
            (of(&[0x81], 0), None),
            (of(&[0x89, 1, 0, 0, 0, 0, 0, 0, 0, 0], 1), None),
        ] {
            let found = element(&der, SEQUENCE).map(|(content, rest)| (content.len(), rest.len()));
            assert_eq!(found, expected.map(|len| (len, 0)), "{:02x?}", &der[..2]);
        }
        assert_eq!(element(&of(&[0], 0), INTEGER), None);
    }

    #[test]
    fn elements_end_at_the_first_broken_one() {
        let found: Vec<_> = elements(&[INTEGER, 1, 7, SEQUENCE, 0, INTEGER, 2, 7]).collect();
        assert_eq!(found, [(INTEGER, &[7][..]), (SEQUENCE, &[])]);
    }
}
