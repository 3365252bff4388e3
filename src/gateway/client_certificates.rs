//! The certificate of a request's client: that of its connection, or the one that a trusted proxy names.

use std::sync::Arc;

use http::HeaderMap;

use crate::gateway::client::Peer;
use crate::gateway::source::SourceKind;
use crate::protocols::http::client_cert;
use crate::protocols::http::forwarded::{ClientCert, Forwarding};
use crate::protocols::tls::{ClientCertificate, Name, PeerCertificate};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// `route.client_certificate`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CertificateRule {
    /// If true, a request needs a certificate that an authority of the operator has signed.
    pub is_required: bool,
    /// `route.client_names`: the certificate must have one of these names. Empty: any name.
    pub names: Vec<Name>,
}

impl CertificateRule {
    pub fn check(&self, certificate: Option<&ClientCertificate>) -> Result<(), Reject> {
        if !self.is_required {
            return Ok(());
        }
        let Some(certificate) = certificate else { return Err(Reason::CertificateMissing.into()) };
        let shown = certificate.thumbprint_text();
        if !certificate.is_verified {
            return Err(Reject::new(Reason::CertificateDenied, format!("no authority has verified {shown}")));
        }
        if !self.names.is_empty() && !self.names.iter().any(|name| certificate.names.contains(name)) {
            return Err(Reject::new(Reason::CertificateDenied, format!("{shown} has none of route.client_names")));
        }
        Ok(())
    }

    /// Returns true if a certificate that meets this rule also meets the other one.
    pub fn implies(&self, other: &CertificateRule) -> bool {
        let has_names = || !self.names.is_empty() && self.names.iter().all(|name| other.names.contains(name));
        !other.is_required || self.is_required && (other.names.is_empty() || has_names())
    }
}

/// The certificate of the client that sent this request. A proxy that may only ask passes on what its client has
/// written in `Client-Cert`.
///
/// The certificate of a proxy's own connection names the proxy, so it counts for no client.
///
/// # Errors
/// If the connection's certificate is not accepted any more, or the proxy's header is not one certificate.
pub(super) fn of_request(
    peer: &Peer,
    headers: &HeaderMap,
    kind: SourceKind,
    forwarding: &Forwarding,
    now: UnixTime,
) -> Result<Option<Arc<PeerCertificate>>, Reject> {
    if let Some(shown) = &peer.certificate {
        let ended = |detail| {
            peer.ends();
            Reject::new(Reason::CertificateRevoked, detail)
        };
        shown.check(now).map_err(ended)?;
        if kind.is_client() {
            return Ok(Some(shown.clone()));
        }
    }
    if !kind.is_trusted_proxy() || forwarding.client_cert == ClientCert::Off {
        return Ok(None);
    }
    let bad = |detail| Reject::new(Reason::BadClientCert, detail);
    let Some(der) = client_cert::read(headers).map_err(bad)? else { return Ok(None) };
    let is_verified = forwarding.client_cert == ClientCert::Verified;
    let certificate = ClientCertificate::parse(&der.into(), is_verified).ok_or_else(|| bad("it is no X.509"))?;
    if !certificate.is_in_time(now) {
        return Err(Reject::new(Reason::CertificateRevoked, "the certificate in Client-Cert has expired"));
    }
    Ok(Some(Arc::new(PeerCertificate::named_by_proxy(certificate))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(names: &[&str]) -> CertificateRule {
        CertificateRule { is_required: true, names: names.iter().filter_map(|name| Name::parse(name)).collect() }
    }

    #[test]
    fn a_rule_implies_one_that_asks_for_no_more() {
        let off = CertificateRule::default();
        for (rule, other, expected) in [
            (&off, &off, true),
            (&off, &rule(&[]), false),
            (&rule(&[]), &off, true),
            (&rule(&[]), &rule(&[]), true),
            (&rule(&[]), &rule(&["dns:a"]), false),
            (&rule(&["dns:a"]), &rule(&[]), true),
            (&rule(&["dns:a"]), &rule(&["dns:b", "dns:a"]), true),
            (&rule(&["dns:b", "dns:a"]), &rule(&["dns:a"]), false),
        ] {
            assert_eq!(rule.implies(other), expected, "{rule:?} {other:?}");
        }
    }
}
