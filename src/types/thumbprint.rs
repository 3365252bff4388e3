//! The thumbprint of a client's public key (RFC 7638) or certificate (RFC 8705): what a token that is bound to it has
//! as `cnf.jkt` or `cnf.x5t#S256`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::types::secret;

/// The SHA-256 of the canonical form of a public key, or of a certificate in DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thumbprint([u8; 32]);

impl Thumbprint {
    /// Reads 43 characters of base64url, which have only one form.
    pub fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Thumbprint)
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Thumbprint(bytes)
    }

    /// `canonical`: the key as RFC 7638 section 3 writes it.
    pub fn of(canonical: &str) -> Self {
        Thumbprint(secret::digest(&[canonical.as_bytes()]))
    }

    /// `certificate`: in DER (RFC 8705 section 3.1).
    pub fn of_certificate(certificate: &[u8]) -> Self {
        Thumbprint(secret::digest(&[certificate]))
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbprint_has_one_form() {
        let text = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
        assert_eq!(Thumbprint::parse(text).map(|read| read.to_string()).as_deref(), Some(text));
        for other in [&text[1..], &format!("{text}="), &format!("{}t", &text[..42]), "", &text.replace('-', "+")] {
            assert_eq!(Thumbprint::parse(other), None, "{other}");
        }
    }
}
