//! Certificate revocation lists (RFC 5280 section 5) from PEM or DER files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert};

use super::error::{NotPem, TlsError};
use super::subject::subject_text;
use super::validity::{is_time, time};
use crate::types::clock::UnixTime;
use crate::types::der::{SEQUENCE, element, elements};
use crate::types::pem::check_count;
use crate::types::private_file;
use crate::types::regular_file;

/// The active lists of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    pub file: PathBuf,
    /// `nextUpdate`: from then on an authority of the file has no list here. Of its lists, the one that ends last.
    pub next_update: UnixTime,
}

/// What was read from a file.
pub struct ReadLists {
    pub description: RevocationList,
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    /// When each list ends.
    pub(super) ends: Vec<UnixTime>,
    /// When the last list of each authority ends.
    last_ends: HashMap<Vec<u8>, UnixTime>,
}

impl ReadLists {
    /// Returns true if an authority of this file has no list in `all` files that has not ended.
    pub fn has_ended(&self, all: &[ReadLists], now: UnixTime) -> bool {
        let is_current = |authority| all.iter().any(|read| read.last_ends.get(authority).is_some_and(|end| *end > now));
        !self.last_ends.keys().all(is_current)
    }
}

/// The authorities of which none of these lists is. Not one that signs another of them: perhaps it signs no clients.
pub fn authorities_without_list(authorities: &[CertificateDer<'_>], all: &[ReadLists]) -> Vec<String> {
    let parsed = authorities.iter().filter_map(|der| Some((der, EndEntityCert::try_from(der).ok()?)));
    let parsed: Vec<_> = parsed.collect();
    let has_list = |name: &[u8]| all.iter().any(|read| read.last_ends.contains_key(name));
    let signs_another = |name: &[u8]| parsed.iter().any(|(_, other)| other.issuer() == name && other.subject() != name);
    let without = parsed.iter().filter(|(_, one)| !has_list(one.subject()) && !signs_another(one.subject()));
    without.map(|(der, _)| subject_text(der)).collect()
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
    let invalid = || TlsError::InvalidRevocationList { file: file.to_owned() };
    let mut ends = Vec::new();
    let mut last_ends = HashMap::new();
    for list in &lists {
        let read = BorrowedCertRevocationList::from_der(list).map_err(|_| invalid())?;
        let authority = CertRevocationList::from(read).issuer().to_vec();
        let end = next_update(list).ok_or_else(invalid)?;
        last_ends.entry(authority).and_modify(|last: &mut UnixTime| *last = end.max(*last)).or_insert(end);
        ends.push(end);
    }
    let next_update = last_ends.values().copied().min().ok_or_else(invalid)?;
    let description = RevocationList { file: file.to_owned(), next_update };
    Ok(ReadLists { description, lists, ends, last_ends })
}

/// The second time of the list: the first is `thisUpdate`. Those of revoked certificates are deeper inside.
fn next_update(list: &[u8]) -> Option<UnixTime> {
    let (list, _) = element(list, SEQUENCE)?;
    let (signed, _) = element(list, SEQUENCE)?;
    let (tag, content) = elements(signed).filter(|(tag, _)| is_time(*tag)).nth(1)?;
    time(tag, content)
}
