//! `client_certificate`, `client_ca` and `client_crl` of a listener: which certificates clients show.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::pem;
use crate::protocols::tls::{ClientAuthSettings, ClientPolicy, ListProblem, list_problems, read_revocation_lists};
use crate::types::clock::{Clock, SystemClock};

const WORDS: [(&str, Option<ClientPolicy>); 4] = [
    ("off", None),
    ("any", Some(ClientPolicy::Any)),
    ("optional", Some(ClientPolicy::Optional)),
    ("required", Some(ClientPolicy::Required)),
];

/// `None`: clients are not asked for certificates.
pub(super) fn read(table: &mut Table<'_>, has_tls: bool) -> Option<ClientAuthSettings> {
    let policy = table.choice("client_certificate", None, &WORDS);
    let verifies = matches!(policy, Some(ClientPolicy::Optional | ClientPolicy::Required));
    let ca = table.path("client_ca");
    let path = if verifies { ca.as_deref() } else { None };
    let authorities = path.and_then(|path| table.accept("client_ca", pem::certificates(path)));
    let lists = lists(table);
    if verifies {
        check_lists(table, &lists, &authorities.unwrap_or_default());
    }
    if policy.is_some() && !has_tls {
        let error =
            ConfigError::new("a listener without TLS gets no certificates", "expected `tls` with a certificate");
        let help = "behind a proxy that terminates TLS, see forwarding.client_certificate";
        table.reject("client_certificate", error.help(help));
    }
    if verifies && !table.has("client_ca") {
        let error = ConfigError::new("`client_ca` is missing", "expected the CA certificates of the clients");
        table.reject("client_certificate", error.help("add `client_ca`, or write \"any\" to accept any certificate"));
    }
    for (key, is_set) in [("client_ca", ca.is_some()), ("client_crl", !lists.is_empty())] {
        if !verifies && is_set {
            let error = ConfigError::new(
                format!("`{key}` has no effect here"),
                "expected it with client_certificate = \"optional\" or \"required\"",
            );
            table.reject(key, error.help("set `client_certificate`, or remove this key"));
        }
    }
    Some(ClientAuthSettings { policy: policy?, ca, lists })
}

fn lists(table: &mut Table<'_>) -> Vec<PathBuf> {
    let base = table.report().base().to_owned();
    let lists = table.take("client_crl", Shape::list(Shape::Path));
    table.default("client_crl", Vec::<String>::new());
    let lists = lists.and_then(|value| value.list_of("[\"tls/clients.crl\"]", |text| Ok(base.join(text))));
    lists.unwrap_or_default()
}

/// `authorities`: those of `client_ca`.
fn check_lists(table: &Table<'_>, files: &[PathBuf], authorities: &[CertificateDer<'_>]) {
    let read = |file: &PathBuf| {
        let expected = "expected a revocation list (CRL) in PEM or DER, with nextUpdate";
        let read = read_revocation_lists(file).map_err(|error| ConfigError::new(error.to_string(), expected));
        table.accept("client_crl", read)
    };
    let all: Vec<_> = files.iter().filter_map(read).collect();
    if all.is_empty() || all.len() < files.len() {
        return;
    }
    for problem in list_problems(authorities, &all, SystemClock.now()) {
        let message = problem.to_string();
        let warning = match problem {
            ListProblem::Ended(_) => {
                let ended = ConfigError::new(message, "no client certificate is accepted until there is a newer list");
                ended
                    .help("get the newest list of the authority; remove a list of a key that signs no clients any more")
            }
            ListProblem::Missing { .. } => {
                let unlisted = ConfigError::new(message, "no client certificate that it signs is accepted");
                unlisted.help("add the list of this authority, or remove it from client_ca")
            }
        };
        table.warn("client_crl", warning);
    }
}
