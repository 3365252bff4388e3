//! Signing keys in the store, encrypted and authenticated with a key that is derived from a root secret. The `kid` is
//! part of the encryption, so that one sealed key cannot replace another.
//!
//! The ciphertext begins with a mark of the root secret. It tells a wrong root secret from a changed row, which need
//! different actions of the operator. The mark is derived one way and reveals nothing about the secret.
//!
//! What is sealed is the private key in PEM, or, of a key in `tokens.signing_key_file`, its public half as a JWK: the
//! private half stays in the file.

use super::stored_key::StoredKey;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::{SigningError, SigningKey};
use crate::tokens::jwt::{Algorithm, PublicKey, algorithm_named};
use crate::types::secret::{self, Secret};

const MARK_LEN: usize = 8;

/// Why a signing key of the store cannot be sealed or opened. The text of each error already contains its cause, so
/// there is no further source to print.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("there is no root secret")]
    NoRootSecret,
    #[error("cannot seal the signing key {kid}")]
    SealingFailed { kid: String },
    #[error(
        "the signing key {kid} is sealed under root secret {number}, which is missing: put its line back into \
         store.secret_file"
    )]
    UnknownRootSecret { kid: String, number: u8 },
    /// The root secret with this number is not the one that sealed the key.
    #[error(
        "the signing key {kid} is sealed under another root secret {number}: store.secret_file does not belong to this \
         database; restore the secret file that was backed up with it (a start without a secret file creates a new \
         one)"
    )]
    OtherRootSecret { kid: String, number: u8 },
    #[error(
        "the signing key {kid} was changed in the store after it was sealed, and is not used: restore a backup, or \
         delete its row from the table signing_keys, which voids the access tokens that it signed"
    )]
    Changed { kid: String },
    #[error(
        "the signing key {kid} in the store has an unknown algorithm: restore a backup, or start the newer version of \
         bearward that created the key"
    )]
    UnknownAlgorithm { kid: String },
    /// The sealed private key belongs to another kid.
    #[error("the signing key {kid} in the store contains another key, {found}: restore a backup")]
    OtherKey { kid: String, found: String },
    #[error("the signing key {kid} in the store: {error}")]
    Unusable { kid: String, error: SigningError },
    /// The store has only the public half.
    #[error("the signing key {kid} is in tokens.signing_key_file of another gateway: name the file here too")]
    InFile { kid: String },
}

/// Seals a key under the newest root secret. Returns the number of that secret and the sealed key.
pub fn seal(kid: &str, key: &Secret, roots: &Roots) -> Result<(u8, Vec<u8>), SealError> {
    let root = roots.newest_secret().ok_or(SealError::NoRootSecret)?;
    let sealed = secret::seal(&sealing_key(root), kid, key.expose());
    let sealed = sealed.ok_or_else(|| SealError::SealingFailed { kid: kid.to_owned() })?;
    Ok((roots.newest(), [mark(root).as_slice(), &sealed].concat()))
}

/// Reverses [`seal`], with the root secret that the key was sealed under.
pub fn unseal(key: &StoredKey, roots: &Roots) -> Result<Secret, SealError> {
    let number = key.root;
    let kid = || key.kid.clone();
    let root = roots.find(number).ok_or_else(|| SealError::UnknownRootSecret { kid: kid(), number })?;
    let changed = || SealError::Changed { kid: kid() };
    let (found_mark, sealed) = key.sealed.split_at_checked(MARK_LEN).ok_or_else(changed)?;
    if !secret::equal(found_mark, &mark(root)) {
        return Err(SealError::OtherRootSecret { kid: kid(), number });
    }
    secret::unseal(&sealing_key(root), &key.kid, sealed).ok_or_else(changed)
}

/// The private key, ready for use.
pub fn open(key: &StoredKey, roots: &Roots) -> Result<SigningKey, SealError> {
    let algorithm = algorithm_of(key)?;
    let sealed = unseal(key, roots)?;
    if is_public(&sealed) {
        return Err(SealError::InFile { kid: key.kid.clone() });
    }
    private_key(key, &sealed, algorithm)
}

/// The public half, also of a key of which the private half is in a file.
pub fn open_public(key: &StoredKey, roots: &Roots) -> Result<PublicKey, SealError> {
    let algorithm = algorithm_of(key)?;
    let sealed = unseal(key, roots)?;
    if !is_public(&sealed) {
        return private_key(key, &sealed, algorithm).map(|opened| opened.public());
    }
    let opened = PublicKey::from_json(sealed.expose(), algorithm);
    let opened = opened.ok_or_else(|| SealError::Changed { kid: key.kid.clone() })?;
    check_kid(key, &opened.kid).map(|()| opened)
}

/// PEM does not begin with a brace, and a JWK does.
fn is_public(sealed: &Secret) -> bool {
    sealed.expose().starts_with(b"{")
}

fn algorithm_of(key: &StoredKey) -> Result<Algorithm, SealError> {
    algorithm_named(&key.algorithm).ok_or_else(|| SealError::UnknownAlgorithm { kid: key.kid.clone() })
}

fn private_key(key: &StoredKey, pem: &Secret, algorithm: Algorithm) -> Result<SigningKey, SealError> {
    let opened = SigningKey::from_pem(pem.expose(), algorithm)
        .map_err(|error| SealError::Unusable { kid: key.kid.clone(), error })?;
    check_kid(key, &opened.kid).map(|()| opened)
}

/// The kid is the thumbprint of the key. The other columns of the row are not authenticated.
fn check_kid(key: &StoredKey, found: &str) -> Result<(), SealError> {
    if found == key.kid { Ok(()) } else { Err(SealError::OtherKey { kid: key.kid.clone(), found: found.to_owned() }) }
}

fn sealing_key(root: &Secret) -> Secret {
    secret::derive(root, b"", "bearward signing keys v1")
}

fn mark(root: &Secret) -> [u8; MARK_LEN] {
    let mut mark = [0; MARK_LEN];
    mark.copy_from_slice(&secret::derive(root, b"", "bearward root mark v1").expose()[..MARK_LEN]);
    mark
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tokens::jwt::Algorithm;
    use crate::tokens::jwt::sign::generate_pem;
    use crate::types::clock::UnixTime;

    fn roots(secrets: &[(u8, u8)]) -> Roots {
        let mut secrets = secrets.iter().map(|(number, byte)| (*number, Secret::new(vec![*byte; 32])));
        let first = secrets.next().expect("at least one");
        Roots::new(first, secrets.collect())
    }

    fn sealed_under(roots: &Roots) -> StoredKey {
        let pem = generate_pem(Algorithm::ES256).expect("a key");
        let kid = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key").kid;
        let (root, sealed) = seal(&kid, &pem, roots).expect("sealed");
        StoredKey {
            kid,
            algorithm: "ES256".into(),
            root,
            sealed,
            created_at: UnixTime::default(),
            activated_at: None,
            retired_at: None,
            revoked_at: None,
            token_life: Duration::ZERO,
        }
    }

    #[test]
    fn a_key_opens_only_unchanged_and_under_its_root_secret() {
        let key = sealed_under(&roots(&[(1, 7)]));
        assert_eq!(open(&key, &roots(&[(1, 7)])).expect("opens").kid, key.kid);
        assert_eq!(open(&key, &roots(&[(1, 7), (2, 8)])).expect("an older root secret opens it").kid, key.kid);

        let error = |key: &StoredKey, secrets: &[(u8, u8)]| open(key, &roots(secrets)).err().expect("rejected");
        assert!(matches!(error(&key, &[(1, 8)]), SealError::OtherRootSecret { number: 1, .. }));
        assert!(matches!(error(&key, &[(2, 7)]), SealError::UnknownRootSecret { number: 1, .. }));
        for place in [MARK_LEN, MARK_LEN + 12, key.sealed.len() - 1] {
            let mut changed = key.clone();
            changed.sealed[place] ^= 1;
            assert!(matches!(error(&changed, &[(1, 7)]), SealError::Changed { .. }), "byte {place}");
        }
        let other = sealed_under(&roots(&[(1, 7)]));
        let swapped = StoredKey { sealed: other.sealed, ..key.clone() };
        assert!(matches!(error(&swapped, &[(1, 7)]), SealError::Changed { .. }), "sealed for another kid");
        let short = StoredKey { sealed: vec![1, 2], ..key.clone() };
        assert!(matches!(error(&short, &[(1, 7)]), SealError::Changed { .. }));
        let unknown = StoredKey { algorithm: "ES999".into(), ..key };
        assert!(matches!(error(&unknown, &[(1, 7)]), SealError::UnknownAlgorithm { .. }));
    }

    #[test]
    fn the_public_half_of_a_key_in_a_file_verifies_and_does_not_sign() {
        let roots = roots(&[(1, 7)]);
        let private = sealed_under(&roots);
        let public = open_public(&private, &roots).expect("opens");
        assert_eq!(public.kid, private.kid);
        let sealed = |kid: &str| {
            let (root, sealed) = seal(kid, &Secret::new(public.jwk.to_string().into_bytes()), &roots).expect("sealed");
            StoredKey { kid: kid.into(), root, sealed, ..private.clone() }
        };
        let in_file = sealed(&private.kid);
        assert_eq!(open_public(&in_file, &roots).expect("opens").jwk, public.jwk);
        assert!(matches!(open(&in_file, &roots), Err(SealError::InFile { .. })));
        assert!(matches!(open_public(&sealed("other"), &roots), Err(SealError::OtherKey { .. })));
    }
}
