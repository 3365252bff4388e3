//! Who explains how the running gateway decides about a request.

use std::net::IpAddr;
use std::pin::Pin;

use http::Request;

use crate::gateway::explanation::Explanation;
use crate::protocols::tls::ClientChain;

/// A request to explain, and where it comes from.
pub struct Asked {
    pub request: Request<()>,
    pub client: IpAddr,
    pub tls: bool,
    /// What the client shows in its handshake.
    pub certificate: Option<ClientChain>,
}

pub type Explaining = Pin<Box<dyn Future<Output = Explanation> + Send>>;

/// The running gateway.
pub trait Explain: Send + Sync {
    fn explain(&self, asked: Asked) -> Explaining;
}
