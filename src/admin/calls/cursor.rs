//! The text that says where the next page of a list of sessions or API keys begins.

use crate::store::Position;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Has only characters that a query need not encode.
pub(super) fn to_cursor(position: &Position) -> String {
    let subject: String = position.subject.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{subject}", position.id, position.created_at.as_millis())
}

pub(super) fn from_cursor(cursor: &str) -> Option<Position> {
    let mut parts = cursor.splitn(3, '-');
    let id = parts.next()?;
    let created_at = parts.next()?;
    let subject = parts.next()?;
    let byte = |pair: &[u8]| {
        let is_hex = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        is_hex.then(|| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).flatten()
    };
    let subject = subject.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    Some(Position {
        subject: String::from_utf8(subject).ok()?,
        created_at: UnixTime::from_millis(created_at.parse().ok()?),
        id: TokenId::parse(id)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_the_position() {
        for subject in ["", "alice", "a-b&c=%", "é\0\u{10FFFF}"] {
            let id = TokenId::from_bytes([7; 16]);
            for created_at in [UnixTime::from_millis(1_700_000_000_500), UnixTime::MAX] {
                let position = Position { subject: subject.into(), created_at, id };
                let cursor = to_cursor(&position);
                assert!(cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{cursor}");
                assert_eq!(from_cursor(&cursor), Some(position));
            }
        }
        let id = TokenId::from_bytes([7; 16]).to_string();
        for wrong in ["", "x", "x-1-", &id, &format!("{id}-1"), &format!("{id}--61"), &format!("{id}-1-6")]
            .into_iter()
            .chain([&*format!("{id}-1-+6"), &format!("{id}-1-ff"), &format!("{id}-1-61-61")])
        {
            assert_eq!(from_cursor(wrong), None, "{wrong:?}");
        }
    }
}
