//! Certificates and rustls: from PEM files to a `ServerConfig` or a `ClientConfig`.
//!
//! TLS 1.3 and 1.2 by rustls on aws-lc-rs, with X25519MLKEM768 preferred. Each builder names the provider, so that no
//! process-wide default can change it.

mod awaited;
mod certificates;
mod channel_binding;
mod client;
mod client_auth;
mod client_certificate;
mod coverage;
mod description;
mod error;
mod issued;
mod peer_certificate;
pub mod plain_http;
mod record_size;
mod revocation;
mod revocation_lists;
mod server;
mod session;
mod subject;
mod subject_pattern;
mod tickets;
mod validity;

pub use awaited::{AcmeCertificates, AcmeName, AcmeNames, AcmeState};
pub use certificates::{CertificateFiles, load};
pub use channel_binding::server_end_point;
pub use client::{client_config, client_config_with};
pub use client_auth::{ClientAuthSettings, ClientChain, ClientPolicy, accept_client, client_chain};
pub use client_certificate::{ClientCertificate, Name};
pub use coverage::{ListProblem, RevocationList, list_problems};
pub use description::Description;
pub use error::{NotPem, TlsError};
pub use issued::{Issued, IssuedError, VALIDATION_PROTOCOL, new_key, signing_request};
pub use peer_certificate::{PeerCertificate, note_reload, reloads};
pub use record_size::{BUFFER_SIZE, RECORD_SIZE};
pub use revocation_lists::{ReadLists, read_revocation_lists};
pub use server::{CertificateSource, ServerTls, ServerTlsSettings, TicketSource, server_tls};
pub use session::Session;
pub use subject_pattern::canonical_subject;
pub use tickets::{TicketKey, TicketKeys, WINDOW};
pub use validity::{validity_of, validity_problem};
