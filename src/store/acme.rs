//! ACME state that the gateways on one store share: accounts, orders and certificates. No I/O.

/// One account, or one name of a listener. The content is sealed with a root secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeEntry {
    pub name: String,
    /// 1 for a new entry, and one more with each change.
    pub version: u64,
    /// The number of the root secret that seals it.
    pub root: u8,
    pub sealed: Vec<u8>,
}
