//! Secrets, random numbers, keyed hashes, key derivation, encryption, private files.
//!
//! [`Secret`] cannot be printed and is wiped when it is dropped. The functions are thin wrappers of aws-lc-rs.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::{constant_time, digest, hkdf, hmac, rand};
use zeroize::Zeroizing;

use crate::types::regular_file;

/// Secret bytes: no `Display`, no `Clone`, `Debug` prints a placeholder, wiped when dropped.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub fn new(bytes: Vec<u8>) -> Self {
        Secret(Zeroizing::new(bytes))
    }

    pub fn random(len: usize) -> Self {
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        Secret::new(bytes)
    }

    /// The bytes. The name makes each use easy to find.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the bytes are equal. Takes the same time wherever they differ.
    pub fn matches(&self, other: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.0, other).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `N` random bytes from the operating system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes);
    bytes
}

fn fill(bytes: &mut [u8]) {
    // aws-lc-rs fails only if the operating system has no random numbers. The gateway must not run without them.
    if rand::fill(bytes).is_err() {
        panic!("the operating system provides no random numbers");
    }
}

/// SHA-256 over the parts, one after the other.
pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The left half of SHA-256, SHA-384 or SHA-512 over the text, by the bits of the hash (`at_hash` of OpenID Connect).
/// `None` for other bits.
pub fn left_half(bits: u16, text: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match bits {
        256 => &digest::SHA256,
        384 => &digest::SHA384,
        512 => &digest::SHA512,
        _ => return None,
    };
    let hash = digest::digest(algorithm, text);
    let half = hash.as_ref().len() / 2;
    Some(hash.as_ref()[..half].to_vec())
}

/// SHA-1 over the parts: for the WebSocket handshake, where it is not a security feature (RFC 6455 section 10.8).
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        context.update(part);
    }
    let mut hash = [0; 20];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// HMAC-SHA-256 over the parts, one after the other.
pub fn mac(key: &Secret, parts: &[&[u8]]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.expose());
    let mut context = hmac::Context::with_key(&key);
    for part in parts {
        context.update(part);
    }
    let mut tag = [0; 32];
    tag.copy_from_slice(context.sign().as_ref());
    tag
}

/// HKDF-SHA-256 (RFC 5869): a 32-byte key from `root`, a salt and a purpose.
pub fn derive(root: &Secret, salt: &[u8], purpose: &'static str) -> Secret {
    let info = [purpose.as_bytes()];
    let mut key = vec![0; 32];
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, salt)
        .extract(root.expose())
        .expand(&info, hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut key));
    // HKDF fails only above 255 hash lengths; 32 bytes are one.
    if derived.is_err() {
        panic!("HKDF-SHA-256 cannot derive 32 bytes");
    }
    Secret::new(key)
}

/// Returns true if the bytes are equal. Takes the same time wherever they differ.
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// Encrypts and authenticates with AES-256-GCM. `name` is authenticated too, so that one sealed value cannot replace
/// another. The result begins with the random nonce.
pub fn seal(key: &Secret, name: &str, plain: &[u8]) -> Option<Vec<u8>> {
    let key = RandomizedNonceKey::new(&AES_256_GCM, key.expose()).ok()?;
    let mut sealed = plain.to_vec();
    let nonce = key.seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut sealed).ok()?;
    Some([nonce.as_ref().as_slice(), &sealed].concat())
}

/// Reverses [`seal`]. `None` if the key, the name or any bit differs.
pub fn unseal(key: &Secret, name: &str, sealed: &[u8]) -> Option<Secret> {
    let (nonce, body) = sealed.split_at_checked(12)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let key = RandomizedNonceKey::new(&AES_256_GCM, key.expose()).ok()?;
    let mut plain = Zeroizing::new(body.to_vec());
    let len = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut plain).ok()?.len();
    Some(Secret::new(plain[..len].to_vec()))
}

/// Writes a file that only its owner can read. The mode is set before the content is written.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(regular_file::flags())
        .open(path)?;
    // `mode` applies to new files only; an existing file may be readable by others.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Creates a file that only its owner can read. Fails if the file exists, also as a link. When this returns, the file
/// survives a loss of power.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()?;
    // The name of the file is part of the folder, which needs its own sync.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_opens_only_with_its_key_and_name() {
        let key = Secret::random(32);
        let sealed = seal(&key, "key 1", b"private").expect("32 bytes are a key");
        assert!(unseal(&key, "key 1", &sealed).is_some_and(|plain| plain.matches(b"private")));
        assert!(unseal(&key, "key 2", &sealed).is_none());
        assert!(unseal(&Secret::random(32), "key 1", &sealed).is_none());
        assert!(unseal(&key, "key 1", &sealed[..20]).is_none());
        assert!(unseal(&key, "key 1", b"short").is_none());
    }

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", Secret::new(b"hunter2".to_vec())), "Secret(…)");
    }
}
