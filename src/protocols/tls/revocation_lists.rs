//! Certificate revocation lists (RFC 5280 section 5) from PEM or DER files.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::{self, PemObject};

use super::error::TlsError;
use super::validity::{is_time, time};
use crate::types::clock::UnixTime;
use crate::types::der::{SEQUENCE, element, elements};
use crate::types::private_file;
use crate::types::regular_file;

/// An active list of a listener. Of several lists in a file, the one that ends first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    pub file: PathBuf,
    /// `nextUpdate`: from then on the list counts as missing, and no certificate is accepted.
    pub next_update: UnixTime,
}

pub(super) type Lists = Vec<CertificateRevocationListDer<'static>>;

/// Reads the lists of a file; at least one. Each must say when it ends: otherwise an attacker who keeps newer lists
/// away would keep a revoked certificate good for ever.
pub fn read_revocation_lists(file: &Path) -> Result<(RevocationList, Lists), TlsError> {
    private_file::check_trusted(file).map_err(TlsError::Lax)?;
    let unreadable = |source| TlsError::Unreadable { file: file.to_owned(), item: "revocation list", source };
    let content = regular_file::read(file).map_err(|error| unreadable(pem::Error::Io(error)))?;
    let lists: Lists = match content.first() {
        // DER, as most authorities publish it.
        Some(&SEQUENCE) => vec![CertificateRevocationListDer::from(content)],
        _ => {
            let sections = CertificateRevocationListDer::pem_slice_iter(&content);
            sections.collect::<Result<_, _>>().map_err(unreadable)?
        }
    };
    let invalid = || TlsError::InvalidRevocationList { file: file.to_owned() };
    for list in &lists {
        webpki::BorrowedCertRevocationList::from_der(list).map_err(|_| invalid())?;
    }
    let ends = lists.iter().map(|list| next_update(list)).collect::<Option<Vec<_>>>().ok_or_else(invalid)?;
    let next_update = ends.into_iter().min().ok_or_else(invalid)?;
    Ok((RevocationList { file: file.to_owned(), next_update }, lists))
}

/// The second time of the list: the first is `thisUpdate`. Those of revoked certificates are deeper inside.
fn next_update(list: &[u8]) -> Option<UnixTime> {
    let (list, _) = element(list, SEQUENCE)?;
    let (signed, _) = element(list, SEQUENCE)?;
    let (tag, content) = elements(signed).filter(|(tag, _)| is_time(*tag)).nth(1)?;
    time(tag, content)
}
