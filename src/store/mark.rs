//! Marks: what can be used once, such as the token of a logout, and is remembered until it has expired.
//!
//! A mark has a key, which is the name that its issuer gave, and a value, which is a hash of the whole. A sender that
//! repeats the same message gets the same response, and a second message with the same name is rejected.

use crate::types::clock::UnixTime;
use crate::types::secret;

/// What a mark is of. The same key of two kinds is two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A login at a provider that has begun, by its `state`.
    SignIn,
    /// A logout token, by its `jti`.
    LogoutToken,
    /// A security event token, by its `jti`.
    SecurityEvent,
    /// The assertion by which a client authenticates itself, by its `jti`.
    ClientAssertion,
    /// The subject token of a token exchange, by its `jti`.
    SubjectToken,
    /// A DPoP proof, by a hash of its `jti`.
    Proof,
}

impl MarkKind {
    /// The name is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            MarkKind::SignIn => "sign_in",
            MarkKind::LogoutToken => "logout_token",
            MarkKind::SecurityEvent => "security_event",
            MarkKind::ClientAssertion => "client_assertion",
            MarkKind::SubjectToken => "subject_token",
            MarkKind::Proof => "proof",
        }
    }
}

/// Something that can be used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub kind: MarkKind,
    pub issuer: String,
    /// Its name at its issuer.
    pub key: String,
    /// The SHA-256 of the whole, such as a token.
    pub value: [u8; 32],
    /// The mark can be deleted after this, because it would be rejected as expired.
    pub until: UnixTime,
}

/// What [`MarkStore::mark`](crate::store::MarkStore::mark) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// It was not used before.
    First,
    /// The same was used before: its sender repeats it.
    Repeated,
    /// Another one with the same key was used before.
    Taken,
}

/// A mark as every store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMark {
    /// See [`Mark::id`].
    pub id: [u8; 32],
    pub kind: String,
    pub value: [u8; 32],
    pub until: UnixTime,
}

impl Mark {
    /// A hash of kind, issuer and key, so that a row has the same size for a key of any length.
    pub(super) fn id(&self) -> [u8; 32] {
        let len = |text: &str| (text.len() as u64).to_be_bytes();
        let kind = self.kind.as_str();
        // With their lengths, so that the end of one cannot become the begin of the next.
        secret::digest(&[&len(kind), kind.as_bytes(), &len(&self.issuer), self.issuer.as_bytes(), self.key.as_bytes()])
    }

    pub(super) fn stored(&self) -> StoredMark {
        StoredMark { id: self.id(), kind: self.kind.as_str().to_owned(), value: self.value, until: self.until }
    }

    /// `known`: the value that the store had under this id.
    pub(super) fn compared(&self, known: &[u8]) -> Marked {
        if *known == self.value { Marked::Repeated } else { Marked::Taken }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn mark(kind: MarkKind, issuer: &str, key: &str) -> Mark {
        Mark { kind, issuer: issuer.into(), key: key.into(), value: [1; 32], until: UnixTime::MAX }
    }

    #[test]
    fn kind_issuer_and_key_name_a_mark() {
        use MarkKind::{ClientAssertion, LogoutToken, Proof, SecurityEvent, SignIn, SubjectToken};
        let mut ids = HashSet::new();
        for kind in [SignIn, LogoutToken, SecurityEvent, ClientAssertion, SubjectToken, Proof] {
            for (issuer, key) in [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")] {
                assert!(ids.insert(mark(kind, issuer, key).id()), "{kind:?} {issuer} {key}");
            }
        }
        let known = Mark { value: [2; 32], until: UnixTime::default(), ..mark(SignIn, "a", "bc") };
        assert!(ids.contains(&known.id()), "its value and its end do not");
    }

    #[test]
    fn a_repetition_has_the_same_value() {
        let mark = mark(MarkKind::LogoutToken, "a", "b");
        for (known, expected) in [(&[1; 32][..], Marked::Repeated), (&[2; 32], Marked::Taken), (&[], Marked::Taken)] {
            assert_eq!(mark.compared(known), expected);
        }
    }
}
