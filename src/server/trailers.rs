//! HTTP/2 trailers with a pseudo-header, which RFC 9113 section 8.1 calls malformed.
//!
//! h2 decodes such trailers and drops the pseudo-headers, but does not reset the stream. It resets the stream of
//! trailers without END_STREAM, so `FloodGuard` takes that flag away. The header block stays as it is, because all
//! later ones depend on it. What it does not recognize, h2 drops: `tests/it/hostile/http2_trailers.rs` has each form.

const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// Returns true if the header block in this payload of HEADERS begins with a pseudo-header (RFC 7541 section 6). h2
/// itself resets a stream if one comes later in the block. A field of the dynamic table is not recognized: only h2
/// knows that table.
pub(super) fn begin_with_pseudo_header(flags: u8, payload: &[u8]) -> bool {
    let skipped = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let mut block = payload.get(skipped..).unwrap_or_default();
    loop {
        match block {
            // A change of the table size comes first: 5 bits, then 7 in each byte.
            [size, rest @ ..] if size & 0xe0 == 0x20 => {
                let more = if size & 0x1f == 0x1f { integer_len(rest) } else { 0 };
                block = rest.get(more..).unwrap_or_default();
            }
            // An indexed field, and a literal with incremental indexing.
            [field, ..] if field & 0x80 != 0 => return is_pseudo(field & 0x7f),
            [0x40, name @ ..] | [0x00 | 0x10, name @ ..] => return is_pseudo_name(name),
            [field, ..] if field & 0x40 != 0 => return is_pseudo(field & 0x3f),
            // A literal without indexing, or one that is never indexed.
            [field, ..] => return field & 0x0f != 0x0f && is_pseudo(field & 0x0f),
            [] => return false,
        }
    }
}

/// The first 14 entries of the static table are `:authority` to `:status` (RFC 7541 appendix A).
fn is_pseudo(index: u8) -> bool {
    (1..=14).contains(&index)
}

/// A name that is written out, plain or in the Huffman code, in which a colon is the seven bits 1011100.
fn is_pseudo_name(name: &[u8]) -> bool {
    let [length, rest @ ..] = name else { return false };
    let more = if length & 0x7f == 0x7f { integer_len(rest) } else { 0 };
    match (length & 0x80 != 0, rest.get(more)) {
        (false, Some(first)) => *first == b':',
        (true, Some(first)) => first >> 1 == 0b101_1100,
        (_, None) => false,
    }
}

/// The length of an integer after its prefix: up to the first byte without the highest bit.
fn integer_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| byte & 0x80 == 0).map_or(bytes.len(), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pseudo_header_is_found_in_each_encoding() {
        for (flags, payload, expected) in [
            (0, &[0x84][..], true),
            (0, &[0x81], true),
            (0, &[0x8e], true),
            (0, &[0x8f], false),
            (0, &[0xbe], false),
            (0, &[0x44, 2, b'/', b'x'], true),
            (0, &[0x4f, 0], false),
            (0, &[0x7f, 0, 0], false),
            (0, &[0x04, 1, b'/'], true),
            (0, &[0x14, 1, b'/'], true),
            (0, &[0x0f, 0, 1, b'/'], false),
            (0, &[0x1f, 0x2f, 1, b'/'], false),
            (0, &[0x00, 5, b':', b'p', b'a', b't', b'h', 0], true),
            (0, &[0x10, 2, b':', b'x', 0], true),
            (0, &[0x40, 2, b':', b'x', 0], true),
            (0, &[0x40, 0x82, 0xb9, 0x58], true),
            (0, &[0x40, 0x82, 0xb8, 0x58], true),
            (0, &[0x40, 0x82, 0xba, 0x58], false),
            (0, &[0x00, 1, b'x', 1, b':'], false),
            (0, &[0x00, 0x7f, 0x80, 0x01, b':'], true),
            (0, &[0x20, 0x84], true),
            (0, &[0x3f, 0xe1, 0x1f, 0x20, 0x84], true),
            (PADDED, &[3, 0x84, 0, 0, 0], true),
            (PADDED | PRIORITY, &[0x84, 0x84, 0, 0, 0, 0, 0x90], false),
            (PRIORITY, &[0, 0, 0, 0, 0, 0x84], true),
            (PRIORITY, &[0x84], false),
            (0, &[], false),
            (0, &[0x20], false),
            (0, &[0x3f, 0x80], false),
            (0, &[0x40], false),
            (0, &[0x40, 0xff], false),
        ] {
            assert_eq!(begin_with_pseudo_header(flags, payload), expected, "{flags} {payload:02x?}");
        }
    }
}
