//! Revocation of client certificates by several lists of one authority.
//!
//! webpki reads only the first list of an authority. Here every list counts: an authority with a new key has a list by
//! each of its keys, and an operator adds a new list before the old one has ended.

use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::{CertRevocationListError, CertificateError, Error, OtherError, RootCertStore};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
    UnknownStatusPolicy, VerifiedPath,
};

/// The lists of a listener, if two of them can be about the same certificate.
#[derive(Debug)]
pub(super) struct OverlappingLists {
    lists: Vec<List>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct List {
    list: CertRevocationList<'static>,
    /// Another list can be about the same certificates.
    overlaps: bool,
}

impl OverlappingLists {
    /// `None` if webpki reads all of these lists.
    pub(super) fn read(
        lists: &[CertificateRevocationListDer<'_>],
        roots: &Arc<RootCertStore>,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Result<Option<Self>, webpki::Error> {
        let read = lists.iter().map(|list| OwnedCertRevocationList::from_der(list).map(CertRevocationList::from));
        let read = read.collect::<Result<Vec<_>, _>>()?;
        let overlaps: Vec<bool> = (0..read.len())
            .map(|one| (0..read.len()).any(|other| one != other && can_overlap(&read[one], &read[other])))
            .collect();
        if !overlaps.contains(&true) {
            return Ok(None);
        }
        let lists = read.into_iter().zip(overlaps).map(|(list, overlaps)| List { list, overlaps }).collect();
        Ok(Some(OverlappingLists { lists, roots: roots.clone(), algorithms }))
    }

    /// Fails if a list revokes a certificate of the chain, or if no list says that one is good: a list that has ended,
    /// or that another key has signed, says nothing.
    pub(super) fn check(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let leaf = EndEntityCert::try_from(leaf).map_err(rejected)?;
        let mut usable = Vec::new();
        let mut unusable = webpki::Error::UnknownRevocationStatus;
        for list in &self.lists {
            let alone = [&list.list];
            match list.overlaps.then(|| self.verify(&leaf, others, now, &alone, UnknownStatusPolicy::Allow)) {
                None | Some(Ok(())) => usable.push(&list.list),
                Some(Err(webpki::Error::CertRevoked)) => return Err(CertificateError::Revoked.into()),
                Some(Err(error)) => unusable = error,
            }
        }
        match self.verify(&leaf, others, now, &usable, UnknownStatusPolicy::Deny) {
            Err(webpki::Error::UnknownRevocationStatus) => Err(rejected(unusable)),
            verified => verified.map_err(rejected),
        }
    }

    fn verify(
        &self,
        leaf: &EndEntityCert<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
        lists: &[&CertRevocationList<'_>],
        policy: UnknownStatusPolicy,
    ) -> Result<(), webpki::Error> {
        let options = RevocationOptionsBuilder::new(lists).map_err(|_| webpki::Error::UnknownRevocationStatus)?;
        // By default, webpki ignores that a list has ended.
        let options = options.with_status_policy(policy).with_expiration_policy(ExpirationPolicy::Enforce).build();
        let in_no_list = |path: &VerifiedPath<'_>| check_every_list(path, lists);
        let usage = KeyUsage::client_auth();
        let algorithms = self.algorithms.all;
        let roots = &self.roots.roots;
        leaf.verify_for_usage(algorithms, roots, others, now, usage, Some(options), Some(&in_no_list)).map(|_| ())
    }
}

/// webpki has verified the first of the lists that are about a certificate.
fn check_every_list(path: &VerifiedPath<'_>, lists: &[&CertRevocationList<'_>]) -> Result<(), webpki::Error> {
    let leaf: &webpki::Cert<'_> = path.end_entity();
    for certificate in path.intermediate_certificates().chain([leaf]) {
        for list in lists.iter().filter(|list| list.issuer() == certificate.issuer()) {
            if list.find_serial(certificate.serial())?.is_some() {
                return Err(webpki::Error::CertRevoked);
            }
        }
    }
    Ok(())
}

/// Returns true if both lists can be about one certificate: by the same authority, and not by its parts
/// (RFC 5280 section 5.2.5).
fn can_overlap(one: &CertRevocationList<'_>, other: &CertRevocationList<'_>) -> bool {
    let parts = [one, other].map(CertRevocationList::issuing_distribution_point);
    let are_parts = parts[0].is_some() && parts[1].is_some() && parts[0] != parts[1];
    one.issuer() == other.issuer() && !are_parts
}

/// The error that rustls has for this one: it decides about the alert.
fn rejected(error: webpki::Error) -> Error {
    match error {
        webpki::Error::CertRevoked => CertificateError::Revoked.into(),
        webpki::Error::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus.into(),
        webpki::Error::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }.into()
        }
        webpki::Error::InvalidCrlSignatureForPublicKey => CertRevocationListError::BadSignature.into(),
        error => CertificateError::Other(OtherError(Arc::new(error))).into(),
    }
}
