//! `[acme]`.

use std::path::PathBuf;
use std::time::Duration;

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
    pub pace: AcmePace,
}

/// How often the gateway looks what is next. No key sets it: tests set shorter times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcmePace {
    /// Between two looks whether an order is due.
    pub turns: Duration,
    /// Before the first look at a validation, and at a certificate. Each further one takes twice as long.
    pub poll: Duration,
}

impl Default for AcmePace {
    fn default() -> Self {
        AcmePace { turns: Duration::from_secs(1), poll: Duration::from_millis(500) }
    }
}
