//! Certificate revocation lists (RFC 5280 section 5) from PEM or DER files.

use std::path::{Path, PathBuf};

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateRevocationListDer, SignatureVerificationAlgorithm};
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert};

use super::error::{NotPem, TlsError};
use super::validity::{is_time, time};
use crate::types::clock::UnixTime;
use crate::types::der::{BIT_STRING, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, element, elements};
use crate::types::pem::check_count;
use crate::types::private_file;
use crate::types::regular_file;

/// 2.5.29.35 (RFC 5280 section 5.2.1), and the tag of `keyIdentifier` in it.
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const KEY_IDENTIFIER: u8 = 0x80;
/// The tag of `crlExtensions`.
const EXTENSIONS: u8 = 0xa0;

/// What was read from a file.
pub struct ReadLists {
    pub(super) file: PathBuf,
    pub(super) lists: Vec<ReadList>,
}

/// One list.
pub(super) struct ReadList {
    pub(super) der: CertificateRevocationListDer<'static>,
    /// The name of the authority, in DER.
    pub(super) authority: Vec<u8>,
    /// `nextUpdate`
    pub(super) end: UnixTime,
}

impl ReadList {
    fn read(der: CertificateRevocationListDer<'static>) -> Option<Self> {
        let read = BorrowedCertRevocationList::from_der(&der).ok()?;
        let authority = CertRevocationList::from(read).issuer().to_vec();
        // The second time of the list: the first is `thisUpdate`. Those of revoked certificates are deeper inside.
        let (tag, next_update) = fields(&der).filter(|(tag, _)| is_time(*tag)).nth(1)?;
        let end = time(tag, next_update)?;
        Some(ReadList { der, authority, end })
    }

    /// Returns true if the key of this authority has signed the list. Its name does not suffice: an authority with a
    /// new key keeps its name, and a handshake accepts no list of another key.
    pub(super) fn is_by(&self, authority: &EndEntityCert<'_>, algorithms: WebPkiSupportedAlgorithms) -> bool {
        let name: &webpki::Cert<'_> = authority;
        let Some(Signed { text, algorithm, signature }) = Signed::of(&self.der) else { return false };
        let is_used = |known: &&&dyn SignatureVerificationAlgorithm| *known.signature_alg_id() == *algorithm;
        let verifies =
            |known: &dyn SignatureVerificationAlgorithm| authority.verify_signature(known, text, signature).is_ok();
        name.subject() == self.authority && algorithms.all.iter().filter(is_used).any(|known| verifies(*known))
    }

    /// What tells the keys of one name apart. `None` if the list does not say it.
    pub(super) fn key_identifier(&self) -> Option<&[u8]> {
        let (_, extensions) = fields(&self.der).find(|(tag, _)| *tag == EXTENSIONS)?;
        let (extensions, _) = element(extensions, SEQUENCE)?;
        let is_wanted = |extension: &&[u8]| {
            element(extension, OBJECT_IDENTIFIER).is_some_and(|(found, _)| found == AUTHORITY_KEY_IDENTIFIER)
        };
        let found = elements(extensions).map(|(_, extension)| extension).find(is_wanted)?;
        let (_, value) = elements(found).find(|(tag, _)| *tag == OCTET_STRING)?;
        let (value, _) = element(value, SEQUENCE)?;
        elements(value).find(|(tag, _)| *tag == KEY_IDENTIFIER).map(|(_, identifier)| identifier)
    }
}

/// The parts of a list that its signature is about.
struct Signed<'l> {
    text: &'l [u8],
    algorithm: &'l [u8],
    signature: &'l [u8],
}

impl<'l> Signed<'l> {
    fn of(list: &'l [u8]) -> Option<Self> {
        let (list, _) = element(list, SEQUENCE)?;
        let (_, rest) = element(list, SEQUENCE)?;
        let text = &list[..list.len() - rest.len()];
        let (algorithm, rest) = element(rest, SEQUENCE)?;
        let (signature, _) = element(rest, BIT_STRING)?;
        // All bits of the last byte count.
        let signature = signature.strip_prefix(&[0])?;
        Some(Signed { text, algorithm, signature })
    }
}

/// Reads the lists of a file; at least one. Each must say when it ends: otherwise an attacker who keeps newer lists
/// away would keep a revoked certificate good for ever.
pub fn read_revocation_lists(file: &Path) -> Result<ReadLists, TlsError> {
    private_file::check_trusted(file).map_err(TlsError::Lax)?;
    let unreadable =
        |error| TlsError::Unreadable { file: file.to_owned(), item: "revocation list", source: NotPem(error) };
    let content = regular_file::read(file).map_err(|error| unreadable(pem::Error::Io(error)))?;
    let lists: Vec<_> = match content.first() {
        // DER, as most authorities publish it.
        Some(&SEQUENCE) => vec![CertificateRevocationListDer::from(content)],
        _ => {
            let sections = CertificateRevocationListDer::pem_slice_iter(&content);
            let lists: Vec<_> = sections.collect::<Result<_, _>>().map_err(unreadable)?;
            let counted = check_count(&content, "CRL", lists.len());
            counted.map_err(|source| TlsError::LostSections { file: file.to_owned(), source })?;
            lists
        }
    };
    let lists: Option<Vec<_>> = lists.into_iter().map(ReadList::read).collect();
    let lists = lists.filter(|lists| !lists.is_empty());
    let lists = lists.ok_or_else(|| TlsError::InvalidRevocationList { file: file.to_owned() })?;
    Ok(ReadLists { file: file.to_owned(), lists })
}

/// The tags and contents of what is signed. CertificateList ::= SEQUENCE { tbsCertList SEQUENCE { … }, … }
fn fields(list: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let list = element(list, SEQUENCE).map_or(&[][..], |(list, _)| list);
    elements(element(list, SEQUENCE).map_or(&[][..], |(signed, _)| signed))
}
