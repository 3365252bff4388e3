//! The login at another issuer that began a family.

use crate::types::clock::UnixTime;

/// The session at another issuer that a family came from: of a login at a provider, or of the subject token of a token
/// exchange. A revocation of that session, and a watermark over its subject or issuer, ends the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyOrigin {
    pub issuer: String,
    /// The `sub` at that issuer. [`Family::subject`](super::Family::subject) is a subject of this gateway instead.
    pub subject: String,
    /// The `sid` at that issuer.
    pub session: Option<String>,
    /// The `iat` of the token that began the family, by the clock of that issuer. Its watermarks are compared with it.
    pub dated: UnixTime,
}
