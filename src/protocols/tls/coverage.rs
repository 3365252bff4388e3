//! Authorities that have a revocation list that counts. Without one, no certificate that they sign is accepted.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::certificates::provider;
use super::revocation_lists::{ReadList, ReadLists};
use super::subject::subject_text;
use crate::types::clock::UnixTime;

/// The list of an authority that ends last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    pub file: PathBuf,
    /// `nextUpdate`
    pub next_update: UnixTime,
}

/// One key of an authority, and its lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    Listed(RevocationList),
    /// Of an authority in `client_ca`.
    Unlisted {
        authority: String,
        /// Another key has signed a list with its name.
        has_namesake: bool,
    },
}

/// Why no certificate of an authority is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListProblem {
    /// The file, and when the list ended.
    Ended(RevocationList),
    Missing {
        authority: String,
        has_namesake: bool,
    },
}

impl fmt::Display for ListProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListProblem::Ended(list) => write!(f, "{} ended at {}", list.file.display(), list.next_update),
            ListProblem::Missing { authority, has_namesake: false } => {
                write!(f, "no list is by the authority {authority:?} of client_ca")
            }
            ListProblem::Missing { authority, has_namesake: true } => {
                write!(
                    f,
                    "no list is by the authority {authority:?} of client_ca: another key signed those of its name"
                )
            }
        }
    }
}

/// The problems of these lists. `authorities`: those of `client_ca`.
pub fn list_problems(authorities: &[CertificateDer<'_>], all: &[ReadLists], now: UnixTime) -> Vec<ListProblem> {
    problems(&coverage(authorities, all), now)
}

/// One problem for each file with a list that has ended, and for each authority without a list.
pub(super) fn problems(coverage: &[Coverage], now: UnixTime) -> Vec<ListProblem> {
    let ended = ends(coverage).into_iter().filter(|list| list.next_update <= now).map(ListProblem::Ended);
    let missing = coverage.iter().filter_map(|one| match one {
        Coverage::Listed(_) => None,
        Coverage::Unlisted { authority, has_namesake } => {
            Some(ListProblem::Missing { authority: authority.clone(), has_namesake: *has_namesake })
        }
    });
    ended.chain(missing).collect()
}

/// For each file with the last list of an authority, when the first of them ends.
pub(super) fn ends(coverage: &[Coverage]) -> Vec<RevocationList> {
    let mut ends = BTreeMap::new();
    for one in coverage {
        let Coverage::Listed(RevocationList { file, next_update }) = one else { continue };
        let first = ends.entry(file).or_insert(*next_update);
        *first = (*first).min(*next_update);
    }
    ends.into_iter().map(|(file, next_update)| RevocationList { file: file.clone(), next_update }).collect()
}

/// What signs a list: an authority of `client_ca`, or another one by its name and what the list says of its key.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Signer<'l> {
    Known(usize),
    Other(&'l [u8], Option<&'l [u8]>),
}

/// The lists of each key, and the authorities without one. Not one that signs another of them: perhaps it signs no
/// clients.
pub(super) fn coverage(authorities: &[CertificateDer<'_>], all: &[ReadLists]) -> Vec<Coverage> {
    let algorithms = provider().signature_verification_algorithms;
    let parsed = authorities.iter().filter_map(|der| Some((der, EndEntityCert::try_from(der).ok()?)));
    let parsed: Vec<_> = parsed.collect();
    let is_by = |list: &ReadList, number: &usize| list.is_by(&parsed[*number].1, algorithms);
    let mut last: BTreeMap<Signer<'_>, RevocationList> = BTreeMap::new();
    for (read, list) in all.iter().flat_map(|read| read.lists.iter().map(move |list| (read, list))) {
        let known: Vec<_> = (0..parsed.len()).filter(|number| is_by(list, number)).map(Signer::Known).collect();
        let other = known.is_empty().then(|| Signer::Other(&list.authority, list.key_identifier()));
        for signer in known.into_iter().chain(other) {
            let this = RevocationList { file: read.file.clone(), next_update: list.end };
            let kept = last.entry(signer).or_insert_with(|| this.clone());
            if kept.next_update < this.next_update {
                *kept = this;
            }
        }
    }
    let signs_another = |name: &[u8]| parsed.iter().any(|(_, other)| other.issuer() == name && other.subject() != name);
    let is_unlisted =
        |number: &usize| !last.contains_key(&Signer::Known(*number)) && !signs_another(parsed[*number].1.subject());
    let has_name = |name: &[u8]| all.iter().flat_map(|read| &read.lists).any(|list| list.authority == name);
    let unlisted = (0..parsed.len()).filter(is_unlisted).map(|number| {
        let (der, authority) = &parsed[number];
        Coverage::Unlisted { authority: subject_text(der), has_namesake: has_name(authority.subject()) }
    });
    let unlisted: Vec<_> = unlisted.collect();
    last.into_values().map(Coverage::Listed).chain(unlisted).collect()
}
