//! `[acme]`.

use std::path::PathBuf;

use crate::protocols::url::SecureUrl;

/// Which authority certifies names, and how often it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct AcmeSettings {
    /// `acme.directory`
    pub directory: SecureUrl,
    /// `acme.directory_ca`: CA certificates (PEM) for the authority itself. `None`: the system's.
    pub directory_ca: Option<PathBuf>,
    /// `acme.contact`, as `mailto:` URLs.
    pub contact: Vec<String>,
    /// `acme.orders_per_hour`: maximum orders of all names together.
    pub orders_per_hour: usize,
}
