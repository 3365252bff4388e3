//! Private keys in the store: encrypted and authenticated under a key that is derived from a root secret, and bound to
//! their `kid`, so that none can stand in for another.
//!
//! In front of the ciphertext stands a mark of the root secret. It tells a wrong root secret from a row that somebody has
//! changed: two faults with two cures. It is derived one way, and says nothing about the secret.

use super::StoredKey;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::jwt::sign::SigningKey;
use crate::tokens::jwt::{Algorithm, algorithm_named};
use crate::types::secret::{self, Secret};

const MARK_LEN: usize = 8;

/// The private key of `kid`, sealed under the newest root secret; and the number of that one.
pub fn seal(kid: &str, pem: &Secret, roots: &Roots) -> Result<(u8, Vec<u8>), String> {
    let root = roots.newest_secret().ok_or("there is no root secret")?;
    let sealed = secret::seal(&sealing_key(root), kid, pem.expose()).ok_or("sealing failed")?;
    Ok((roots.newest(), [mark(root).as_slice(), &sealed].concat()))
}

/// Undoes [`seal`], by whichever root secret it was.
pub fn unseal(key: &StoredKey, roots: &Roots) -> Result<Secret, String> {
    let (kid, number) = (&key.kid, key.root);
    let root = roots.find(number).ok_or_else(|| {
        format!(
            "the signing key {kid} is sealed under root secret {number}, which is not among the root secrets: put its \
             line back into store.secret_file"
        )
    })?;
    let damaged = || {
        format!(
            "the signing key {kid} was changed in the store after it was sealed, and is not used: restore a backup, or \
             delete its row from the table signing_keys, which voids the access tokens that it signed"
        )
    };
    let (marked, sealed) = key.sealed.split_at_checked(MARK_LEN).ok_or_else(damaged)?;
    if !secret::equal(marked, &mark(root)) {
        return Err(format!(
            "the signing key {kid} was sealed under another root secret {number} than the one that is here: is \
             store.secret_file the file that belongs to this store? Put it back from its backup; a start that found none \
             has made a new one in its place"
        ));
    }
    secret::unseal(&sealing_key(root), kid, sealed).ok_or_else(damaged)
}

/// The key itself, ready for use.
pub fn open(key: &StoredKey, roots: &Roots) -> Result<SigningKey, String> {
    let opened = SigningKey::from_pem(unseal(key, roots)?.expose(), algorithm_of(key)?)?;
    // A thumbprint says which key it is; whatever else the row says may have been written by anybody.
    match opened.kid == key.kid {
        true => Ok(opened),
        false => Err(format!("the store's signing key {} is another one: {}", key.kid, opened.kid)),
    }
}

fn algorithm_of(key: &StoredKey) -> Result<Algorithm, String> {
    algorithm_named(&key.algorithm)
        .ok_or_else(|| format!("the store's signing key {} is of an unknown algorithm", key.kid))
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
    fn a_key_opens_under_its_root_secret_and_each_fault_has_its_own_words() {
        let key = sealed_under(&roots(&[(1, 7)]));
        assert_eq!(open(&key, &roots(&[(1, 7)])).expect("opens").kid, key.kid);
        assert_eq!(open(&key, &roots(&[(1, 7), (2, 8)])).expect("an older root opens it").kid, key.kid);

        let fault = |key: &StoredKey, secrets: &[(u8, u8)]| open(key, &roots(secrets)).err().expect("refused");
        assert!(fault(&key, &[(1, 8)]).contains("another root secret 1 than the one that is here"));
        assert!(fault(&key, &[(2, 7)]).contains("root secret 1, which is not among"));
        for place in [MARK_LEN, MARK_LEN + 12, key.sealed.len() - 1] {
            let mut changed = key.clone();
            changed.sealed[place] ^= 1;
            assert!(fault(&changed, &[(1, 7)]).contains("was changed in the store"), "byte {place}");
        }
        let other = sealed_under(&roots(&[(1, 7)]));
        let swapped = StoredKey { sealed: other.sealed, ..key.clone() };
        assert!(fault(&swapped, &[(1, 7)]).contains("was changed in the store"), "a key has its place");
        let short = StoredKey { sealed: vec![1, 2], ..key.clone() };
        assert!(fault(&short, &[(1, 7)]).contains("was changed in the store"));
        let unknown = StoredKey { algorithm: "ES999".into(), ..key };
        assert!(fault(&unknown, &[(1, 7)]).contains("unknown algorithm"));
    }
}
