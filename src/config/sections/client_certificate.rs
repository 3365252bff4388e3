//! `client_certificate` and `client_key`: how the gateway identifies itself in TLS handshakes with other servers.

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::pem;
use crate::protocols::tls::CertificateFiles;

pub(super) fn read(table: &mut Table<'_>) -> Option<CertificateFiles> {
    let certificate = table.path("client_certificate");
    let key = table.path("client_key");
    let chain = certificate.as_deref().and_then(|path| table.accept("client_certificate", pem::certificates(path)));
    let private_key = key.as_deref().and_then(|path| table.accept("client_key", pem::private_key(path)));
    match (table.has("client_certificate"), table.has("client_key")) {
        (true, false) => {
            let error = ConfigError::new("its private key is missing", "expected `client_key` in this table");
            table.reject("client_certificate", error.help("add `client_key`, or remove `client_certificate`"));
        }
        (false, true) => {
            let error = ConfigError::new("its certificate is missing", "expected `client_certificate` in this table");
            table.reject("client_key", error);
        }
        _ => {}
    }
    let files = CertificateFiles { certificate: certificate?, key: key? };
    if let Some(chain) = &chain {
        pem::warn_unless_valid_now(table, "client_certificate", &files.certificate, chain);
    }
    if let (Some(chain), Some(private_key)) = (chain, private_key) {
        pem::check_pair(table, "client_", chain, private_key, &files);
    }
    Some(files)
}
