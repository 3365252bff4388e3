//! PEM files: certificates and the keys that belong to them, with advice for the usual mistakes.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys, SignatureScheme};

use crate::config::document::error::ConfigError;
use crate::config::sections::files::contents;
use crate::protocols::tls::CertificateFiles;
use crate::tokens::jwt::{Algorithm, algorithm_name};

type Section = (SectionKind, Vec<u8>);

/// Every section of a PEM file. Text around them is allowed, as OpenSSL writes it.
fn sections(path: &Path) -> Result<Vec<Section>, ConfigError> {
    let file = contents(path)?;
    let shown = path.display();
    // A DER file begins with the tag of an ASN.1 SEQUENCE.
    if file.first() == Some(&0x30) {
        return Err(ConfigError::new(format!("{shown} is DER"), "expected PEM")
            .help(format!("convert it: openssl x509 -inform der -in {shown} -out converted.pem")));
    }
    if file.windows(17).any(|window| window == b"BEGIN ENCRYPTED P") {
        return Err(ConfigError::new(
            format!("the key in {shown} is encrypted"),
            "expected a key without a passphrase",
        )
        .help(format!("decrypt it: openssl pkey -in {shown} -out decrypted.pem")));
    }
    Section::pem_slice_iter(&file)
        .collect::<Result<_, _>>()
        .map_err(|error| ConfigError::new(format!("{shown} is not PEM: {error}"), "expected PEM"))
}

/// The certificates of a file, each of which can be parsed.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let shown = path.display();
    let sections = sections(path)?;
    let chain: Vec<_> =
        sections.iter().filter_map(|(kind, der)| CertificateDer::from_pem(*kind, der.clone())).collect();
    if chain.is_empty() {
        let error = ConfigError::new(format!("{shown} holds no certificate"), "expected PEM with BEGIN CERTIFICATE");
        return Err(match sections.iter().any(|(kind, _)| is_private(*kind)) {
            true => error.help("it holds a private key: are certificate and key exchanged?"),
            false => error,
        });
    }
    for (index, certificate) in chain.iter().enumerate() {
        if let Err(error) = ParsedCertificate::try_from(certificate) {
            let message = format!("certificate {} of {shown} cannot be parsed: {error}", index + 1);
            return Err(ConfigError::new(message, "expected X.509 certificates"));
        }
    }
    Ok(chain)
}

fn is_private(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

/// The one private key of a file.
pub(super) fn private_key(path: &Path) -> Result<Arc<dyn SigningKey>, ConfigError> {
    let der = private_key_der(path)?;
    any_supported_type(&der).map_err(|_| {
        ConfigError::new(format!("the key in {} cannot be used", path.display()), "expected RSA, ECDSA or Ed25519")
    })
}

fn private_key_der(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let shown = path.display();
    let sections = sections(path)?;
    let has_certificate = sections.iter().any(|(kind, _)| *kind == SectionKind::Certificate);
    let mut keys = sections.into_iter().filter_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der));
    let Some(key) = keys.next() else {
        let error = ConfigError::new(format!("{shown} holds no private key"), "expected PEM with BEGIN PRIVATE KEY");
        return Err(match has_certificate {
            true => error.help("it holds a certificate: are certificate and key exchanged?"),
            false => error,
        });
    };
    match keys.next() {
        None => Ok(key),
        Some(_) => Err(ConfigError::new(format!("{shown} holds several private keys"), "expected exactly one")),
    }
}

/// Is `key` the private half of the first certificate?
pub(super) fn key_fits(
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
    files: &CertificateFiles,
) -> Result<(), ConfigError> {
    let fits = |chain| CertifiedKey::new(chain, Arc::clone(&key)).keys_match();
    let certificate = files.certificate.display();
    match fits(chain.clone()) {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {}
        // `Unknown`: the key cannot tell its public half, so nothing speaks against it.
        _ => return Ok(()),
    }
    let private_key = files.key.display();
    let error = ConfigError::new(
        format!("{private_key} does not fit the certificate"),
        format!("expected the private key of the first certificate in {certificate}"),
    );
    Err(match chain.into_iter().skip(1).position(|other| fits(vec![other]).is_ok()) {
        Some(place) => {
            error.help(format!("it fits certificate {} there: the server's own has to come first", place + 2))
        }
        None => error.help(format!(
            "both must print the same: openssl x509 -noout -pubkey -in {certificate}; \
             openssl pkey -pubout -in {private_key}"
        )),
    })
}

/// Can the key in this file sign with this algorithm? It must be PKCS#8, the form the signing code takes.
pub(super) fn signing_key(path: &Path, algorithm: Algorithm) -> Result<(), ConfigError> {
    let shown = path.display();
    let der = private_key_der(path)?;
    if !matches!(der, PrivateKeyDer::Pkcs8(_)) {
        return Err(ConfigError::new(format!("{shown} is not PKCS#8"), "expected PEM with BEGIN PRIVATE KEY")
            .help(format!("convert it: openssl pkcs8 -topk8 -nocrypt -in {shown} -out converted.pem")));
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
        .help(format!("make one: openssl genpkey {command} -out signing.pem")));
    }
    Ok(())
}
