//! A file with the certificate of a client.

use std::path::Path;

use super::error::CommandError;
use crate::protocols::tls::{ClientChain, client_chain};
use crate::types::regular_file;

/// The certificates of a file in PEM, that of the client first; at least one.
pub(super) fn read(path: &Path) -> Result<ClientChain, CommandError> {
    let unreadable = |error| CommandError::invalid(format!("{}: {error}", path.display()));
    let text = regular_file::read(path).map_err(unreadable)?;
    let none = || CommandError::invalid(format!("{}: expected a certificate in PEM", path.display()));
    client_chain(&text).ok_or_else(none)
}
