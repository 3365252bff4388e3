//! The proof and the certificate that a request shows beside its token. Pure.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::protocols::tls::ServerTls;
use crate::protocols::websocket;
use crate::tokens::dpop::{DpopProof, Expected, KnownHeader, PublicUrl, TargetUri};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use crate::types::thumbprint::Thumbprint;

use super::binding::TokenBinding;
use super::own_hosts::OwnHosts;

/// The field of a proof.
pub static DPOP: HeaderName = HeaderName::from_static("dpop");

/// A request that may have a proof.
#[derive(Clone, Copy)]
pub struct PresentedProof<'r> {
    pub headers: &'r HeaderMap,
    /// As received: an extended CONNECT is a GET for all later steps.
    pub method: &'r Method,
    /// `http` or `https`
    pub scheme: &'r HeaderValue,
    pub host: Option<&'r HeaderValue>,
    /// The certificates of the listener. `None` without TLS.
    pub listener: Option<&'r ServerTls>,
    /// Where clients reach the listener, if the operator says so. The scheme and the host then do not matter.
    pub public_url: Option<&'r PublicUrl>,
    /// As received, before a route changes it.
    pub path: &'r str,
    /// Of the certificate that the client has shown.
    pub certificate: Option<Thumbprint>,
}

impl<'r> PresentedProof<'r> {
    pub fn has_proof(&self) -> bool {
        self.headers.contains_key(&DPOP)
    }

    /// The one proof of the request. `known`: a header that needs no second look.
    pub fn read(&self, known: Option<&KnownHeader>) -> Result<DpopProof<'r>, Reject> {
        let mut fields = self.headers.get_all(&DPOP).iter();
        let field = fields.next().ok_or_else(|| Reject::new(Reason::ProofMissing, "no DPoP header"))?;
        if fields.next().is_some() {
            return Err(Reject::new(Reason::ProofMalformed, "several DPoP headers"));
        }
        DpopProof::read(field.as_bytes(), known)
    }

    /// `binding`: of the token beside the proof. `None`: any key is good.
    pub fn expected<'e>(
        &self,
        binding: Option<&'e TokenBinding>,
        own_hosts: &OwnHosts,
        now: UnixTime,
    ) -> Result<Expected<'e>, Reject>
    where
        'r: 'e,
    {
        let is_connect = *self.method == Method::CONNECT;
        Ok(Expected {
            target: self.target(own_hosts)?,
            method: self.method.as_str(),
            other_method: is_connect.then_some("GET"),
            ath: binding.map(|binding| &*binding.ath),
            key: binding.map(|binding| binding.key),
            nonce: None,
            now,
        })
    }

    fn target<'e>(&self, own_hosts: &OwnHosts) -> Result<TargetUri<'e>, Reject>
    where
        'r: 'e,
    {
        let is_handshake = matches!(*self.method, Method::GET | Method::CONNECT);
        let is_websocket = is_handshake && websocket::asks_for_websocket(self.headers);
        if let Some(url) = self.public_url {
            return Ok(url.with(self.path, is_websocket));
        }
        let authority = self.host.and_then(|host| host.to_str().ok());
        let authority = authority.ok_or_else(|| Reject::new(Reason::ProofRequest, "the request has no host"))?;
        if !own_hosts.contain(authority, self.listener) {
            return Err(Reject::new(Reason::ProofRequest, "Host is no name of the gateway: see https.hosts"));
        }
        Ok(TargetUri { is_https: self.scheme == "https", authority, prefix: "", path: self.path, is_websocket })
    }
}
