//! Proofs that a process hands over at a take-over: those that were used, and the key of its nonces. Without it, the
//! next process could accept only proofs that were made after its start, and clients would need new nonces.

use super::nonces::NonceKey;
use super::used::Remembered;

/// Changes with the form below. A process of another version then remembers nothing, as after a restart.
const VERSION: u8 = 1;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    pub of_requests: Remembered,
    pub of_grants: Remembered,
    /// `None`: proofs need no nonce.
    pub nonces: Option<NonceKey>,
}

impl HandedOver {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for remembered in [&self.of_requests, &self.of_grants] {
            bytes.extend(remembered.began.to_be_bytes());
            bytes.extend(remembered.newest.to_be_bytes());
            bytes.extend((remembered.ids.len() as u64).to_be_bytes());
            for (number, id) in &remembered.ids {
                bytes.extend(number.to_be_bytes());
                bytes.extend(id.to_be_bytes());
            }
        }
        if let Some(NonceKey { key, began }) = &self.nonces {
            bytes.extend(began.to_be_bytes());
            bytes.extend(key);
        }
        bytes
    }

    /// `None` for anything else than what [`HandedOver::to_bytes`] makes, such as a part of it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let of_requests = remembered(&mut rest)?;
        let of_grants = remembered(&mut rest)?;
        let nonces = match rest {
            [] => None,
            _ => Some(NonceKey { began: number(&mut rest)?, key: take(&mut rest)? }),
        };
        rest.is_empty().then_some(HandedOver { of_requests, of_grants, nonces })
    }
}

fn remembered(rest: &mut &[u8]) -> Option<Remembered> {
    let began = number(rest)?;
    let newest = number(rest)?;
    let count = number(rest)?;
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push((number(rest)?, u128::from_be_bytes(take(rest)?)));
    }
    Some(Remembered { began, newest, ids })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_message_is_read() {
        let remembered = |ids: &[(u64, u128)]| Remembered { began: 7, newest: 9, ids: ids.to_vec() };
        for nonces in [None, Some(NonceKey { key: [3; 32], began: 5 })] {
            let sent =
                HandedOver { of_requests: remembered(&[(1, 2), (3, u128::MAX)]), nonces, ..HandedOver::default() };
            let bytes = sent.to_bytes();
            assert_eq!(HandedOver::from_bytes(&bytes), Some(sent));
            for end in 0..bytes.len() {
                // Without its nonces, the message is whole, too.
                let is_whole = HandedOver::from_bytes(&bytes[..end]).is_some();
                assert_eq!(is_whole, bytes.len() - end == 40 && bytes.len() > 120, "{end} of {}", bytes.len());
            }
            assert_eq!(HandedOver::from_bytes(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(HandedOver::from_bytes(&[&[2], &bytes[1..]].concat()), None);
        }
    }
}
