//! PEM files with certificates and private keys, and help for common mistakes.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SigningKey as TlsKey};
use rustls::{Error, InconsistentKeys, SignatureScheme};

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::files::{self, contents};
use crate::config::sections::key_kind;
use crate::protocols::tls::{CertificateFiles, NotPem, validity_of, validity_problem};
use crate::tokens::jwt::sign::SigningKey;
use crate::tokens::jwt::{Algorithm, algorithm_name};
use crate::types::clock::{Clock, SystemClock};
use crate::types::pem::{LostSections, check_count, has_private_key};
use crate::types::private_file::FileCreator;

type Section = (SectionKind, Vec<u8>);

/// All sections of a PEM file. Text around them is allowed: OpenSSL writes it.
fn sections(file: &[u8], path: &Path) -> Result<Vec<Section>, ConfigError> {
    let shown = path.display();
    // A DER file starts with the tag of an ASN.1 SEQUENCE.
    if file.first() == Some(&0x30) {
        return Err(ConfigError::new(format!("{shown} is a DER file"), "expected a PEM file")
            .help(format!("convert the file: openssl x509 -inform der -in {shown} -out converted.pem")));
    }
    if key_kind::is_encrypted(file) {
        return Err(ConfigError::new(
            format!("the key in {shown} is encrypted"),
            "expected a key without a passphrase",
        )
        .help(format!("decrypt the key: openssl pkey -in {shown} -out decrypted.pem")));
    }
    Section::pem_slice_iter(file)
        .collect::<Result<_, _>>()
        .map_err(|error| ConfigError::new(format!("{shown} is not PEM: {}", NotPem(error)), "expected a PEM file"))
}

/// The certificates of a file. All of them are valid X.509.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let shown = path.display();
    let file = files::trusted_contents(path)?;
    let sections = sections(&file, path)?;
    let chain: Vec<_> =
        sections.iter().filter_map(|(kind, der)| CertificateDer::from_pem(*kind, der.clone())).collect();
    // Before the next check: a file that has certificates with another label only.
    check_count(&file, "CERTIFICATE", chain.len()).map_err(|lost| lost_sections(path, &lost))?;
    if chain.is_empty() {
        let error = ConfigError::new(format!("{shown} contains no certificate"), "expected PEM with BEGIN CERTIFICATE");
        return Err(if sections.iter().any(|(kind, _)| is_private(*kind)) {
            error.help("it contains a private key: exchange the paths of certificate and key")
        } else {
            error
        });
    }
    // Readers of the file could use the key.
    if has_private_key(&file) {
        files::private(path, FileCreator::Operator)?;
    }
    for (index, certificate) in chain.iter().enumerate() {
        if let Err(error) = ParsedCertificate::try_from(certificate) {
            let message = format!("certificate {} of {shown} is not valid: {error}", index + 1);
            return Err(ConfigError::new(message, "expected X.509 certificates"));
        }
    }
    Ok(chain)
}

/// Warns of a certificate that has ended, or begins later: its peers reject it.
pub(super) fn warn_unless_valid_now(table: &Table<'_>, key: &str, path: &Path, chain: &[CertificateDer<'_>]) {
    let Some(valid) = chain.first().and_then(validity_of) else { return };
    let Some(problem) = validity_problem(path, &valid, SystemClock.now()) else { return };
    let warning = ConfigError::new(problem, "expected one that is valid now: others reject this one");
    table.warn(key, warning.help("replace the file, or set the clock of this machine"));
}

fn lost_sections(path: &Path, lost: &LostSections) -> ConfigError {
    ConfigError::new(format!("{}: {lost}", path.display()), "expected PEM of which every section can be read")
}

fn is_private(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

/// The only private key of a file.
pub(super) fn private_key(path: &Path) -> Result<Arc<dyn TlsKey>, ConfigError> {
    let der = private_key_der(path)?;
    any_supported_type(&der).map_err(|_| key_kind::unusable(&der, path))
}

fn private_key_der(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let shown = path.display();
    let file = contents(path)?;
    let sections = sections(&file, path)?;
    let has_certificate = sections.iter().any(|(kind, _)| *kind == SectionKind::Certificate);
    let keys: Vec<_> = sections.into_iter().filter_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der)).collect();
    check_count(&file, "PRIVATE KEY", keys.len()).map_err(|lost| lost_sections(path, &lost))?;
    let mut keys = keys.into_iter();
    let Some(key) = keys.next() else {
        let error = ConfigError::new(format!("{shown} contains no private key"), "expected PEM with BEGIN PRIVATE KEY");
        return Err(if has_certificate {
            error.help("it contains a certificate: exchange the paths of certificate and key")
        } else {
            error
        });
    };
    files::private(path, FileCreator::Operator)?;
    match keys.next() {
        None => Ok(key),
        Some(_) => Err(ConfigError::new(format!("{shown} contains several private keys"), "expected exactly one")),
    }
}

/// Checks that `key` is the private key of the first certificate. `prefix`: of the keys `certificate` and `key` in the
/// table.
pub(super) fn check_pair(
    table: &Table<'_>,
    prefix: &str,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn TlsKey>,
    files: &CertificateFiles,
) {
    let fits = |chain| CertifiedKey::new(chain, Arc::clone(&key)).keys_match();
    let certificate = files.certificate.display();
    match fits(chain.clone()) {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {}
        // `Unknown`: the public key cannot be compared, so the pair is accepted.
        _ => return,
    }
    let private_key = files.key.display();
    if let Some(place) = chain.into_iter().skip(1).position(|other| fits(vec![other]).is_ok()) {
        let place = place + 2;
        let error = ConfigError::new(
            format!("the certificates in {certificate} are in the wrong order"),
            format!("expected the certificate of {private_key} first, then those that sign it"),
        );
        let help = format!("move certificate {place} of the file to its start; the key matches it");
        return table.reject(&format!("{prefix}certificate"), error.help(help));
    }
    let error = ConfigError::new(
        format!("{private_key} does not match the certificate"),
        format!("expected the private key of the first certificate in {certificate}"),
    );
    let help = format!(
        "compare the public keys: openssl x509 -noout -pubkey -in {certificate}; openssl pkey -pubout -in {private_key}"
    );
    table.reject(&format!("{prefix}key"), error.help(help));
}

/// Checks that the key in this file can sign with this algorithm, and is PKCS#8, as the signing code requires.
pub(super) fn signing_key(path: &Path, algorithm: Algorithm) -> Result<(), ConfigError> {
    let shown = path.display();
    let der = private_key_der(path)?;
    if !matches!(der, PrivateKeyDer::Pkcs8(_)) {
        return Err(ConfigError::new(format!("{shown} is not PKCS#8"), "expected PEM with BEGIN PRIVATE KEY")
            .help(format!("convert the file: openssl pkcs8 -topk8 -nocrypt -in {shown} -out converted.pem")));
    }
    let name = algorithm_name(algorithm);
    let (scheme, command) = match algorithm {
        Algorithm::ES384 => (SignatureScheme::ECDSA_NISTP384_SHA384, "-algorithm EC -pkeyopt ec_paramgen_curve:P-384"),
        Algorithm::EdDSA => (SignatureScheme::ED25519, "-algorithm ed25519"),
        Algorithm::RS256 => (SignatureScheme::RSA_PKCS1_SHA256, "-algorithm RSA -pkeyopt rsa_keygen_bits:3072"),
        _ => (SignatureScheme::ECDSA_NISTP256_SHA256, "-algorithm EC -pkeyopt ec_paramgen_curve:P-256"),
    };
    let key = private_key(path)?;
    if key.choose_scheme(&[scheme]).is_none() {
        return Err(ConfigError::new(
            format!("the key in {shown} cannot sign {name}"),
            format!("expected a key for {name}"),
        )
        .help(format!("create a key: openssl genpkey {command} -out signing.pem")));
    }
    // The start rejects further keys: those that are too weak to trust their signatures.
    SigningKey::from_pem(&contents(path)?, algorithm).map(drop).map_err(|error| {
        ConfigError::new(format!("the key in {shown} cannot sign: {error}"), format!("expected a key for {name}"))
            .help(format!("create a key: openssl genpkey {command} -out signing.pem"))
    })
}
