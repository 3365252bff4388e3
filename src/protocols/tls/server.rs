//! The server side: the certificates of a listener.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime as PkiTime};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::awaited::{AcmeCertificates, AcmeNames};
use super::certificates::{
    CertificateFiles, SELF_SIGNED, describe, dns_names, generate_self_signed, load, names_in, provider,
};
use super::client_auth::{ClientAuth, ClientAuthSettings, ClientPolicy};
use super::coverage::{self, Coverage, RevocationList};
use super::description::Description;
use super::error::TlsError;
use super::record_size::MAX_FRAGMENT;
use super::tickets::{TicketKeys, Tickets};
use super::validity::validity_problem;
use crate::types::clock::UnixTime;

/// `listener.tls`.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerTlsSettings {
    /// Cleartext, for listeners behind a load balancer that terminates TLS.
    Off,
    /// A certificate for `localhost`. The gateway generates it at the first start and keeps it in this folder.
    SelfSigned { folder: PathBuf },
    /// Chosen by SNI. The first is the default.
    Certificates(Vec<CertificateSource>),
}

/// Where the certificates of a listener come from.
#[derive(Clone, Debug, PartialEq)]
pub enum CertificateSource {
    Files(CertificateFiles),
    /// An ACME server certifies each of these names. In lower case.
    Acme(Vec<String>),
}

impl ServerTlsSettings {
    /// The names that an ACME server certifies.
    pub fn acme_names(&self) -> impl Iterator<Item = &String> {
        let sources = if let ServerTlsSettings::Certificates(sources) = self { &sources[..] } else { &[] };
        sources.iter().flat_map(|source| if let CertificateSource::Acme(names) = source { &names[..] } else { &[] })
    }

    /// The names and addresses in the certificates of this listener. A certificate that cannot be read has none.
    pub fn names(&self) -> Vec<String> {
        match self {
            ServerTlsSettings::Off => Vec::new(),
            ServerTlsSettings::SelfSigned { folder } => {
                let names = names_in(&CertificateFiles::self_signed(folder).certificate);
                // The gateway makes it at the start.
                if names.is_empty() { SELF_SIGNED.map(str::to_owned).to_vec() } else { names }
            }
            ServerTlsSettings::Certificates(_) => {
                let of_files = self.files().flat_map(|files| names_in(&files.certificate));
                of_files.chain(self.acme_names().cloned()).collect()
            }
        }
    }

    /// The files of certificates and private keys.
    pub fn files(&self) -> impl Iterator<Item = &CertificateFiles> {
        let sources = if let ServerTlsSettings::Certificates(sources) = self { &sources[..] } else { &[] };
        sources.iter().filter_map(|source| match source {
            CertificateSource::Files(files) => Some(files),
            CertificateSource::Acme(_) => None,
        })
    }
}

/// The TLS configuration of a listener.
pub struct ServerTls {
    pub config: Arc<ServerConfig>,
    resolver: Arc<SniResolver>,
    /// In the order of the configuration.
    pub certificates: Vec<Description>,
    /// `None`: clients are not asked for certificates.
    clients: Option<Arc<ClientAuth>>,
    /// `None` without names for an ACME server.
    pub acme: Option<AcmeNames>,
}

impl ServerTls {
    /// Returns true if no client may connect without a certificate.
    pub fn requires_certificates(&self) -> bool {
        self.clients.as_ref().is_some_and(|clients| clients.policy == ClientPolicy::Required)
    }

    /// Returns true if a certificate that a client shows is signed by `client_ca`.
    pub(super) fn verifies_clients(&self) -> bool {
        self.clients.as_ref().is_some_and(|clients| clients.is_verified())
    }

    /// Verifies the chain of a client, the leaf first.
    pub(super) fn verify_client(&self, chain: &[CertificateDer<'_>], now: PkiTime) -> Result<(), rustls::Error> {
        self.clients.as_ref().map_or(Ok(()), |clients| clients.verify(chain, now))
    }

    /// When each file of revocation lists for clients has to be replaced.
    pub fn list_ends(&self) -> Vec<RevocationList> {
        coverage::ends(self.coverage())
    }

    /// Returns true if an authority in `client_ca` has no list although the listener has lists.
    pub fn has_unlisted_authority(&self) -> bool {
        self.coverage().iter().any(|one| matches!(one, Coverage::Unlisted { .. }))
    }

    /// What an operator has to mend, each with the key of the listener that names the file: certificates that are not
    /// valid now, and authorities in `client_ca` of which no certificate is accepted.
    pub fn problems(&self, now: UnixTime) -> Vec<(&'static str, String)> {
        let of_certificate = |certificate: &Description| {
            let [start, end] = [certificate.not_before, certificate.not_after].map(UnixTime::from_secs);
            validity_problem(&certificate.file, &(start..=end), now)
        };
        let certificates = self.certificates.iter().filter_map(of_certificate).map(|problem| ("tls", problem));
        let lists = coverage::problems(self.coverage(), now).into_iter();
        certificates.chain(lists.map(|problem| ("client_crl", problem.to_string()))).collect()
    }

    fn coverage(&self) -> &[Coverage] {
        self.clients.as_ref().map_or(&[], |clients| &clients.coverage)
    }

    /// When the next revocation list ends after this time. The end of time if none does.
    pub(super) fn next_list_end(&self, now: UnixTime) -> UnixTime {
        let ends = self.clients.iter().flat_map(|clients| &clients.list_ends);
        ends.copied().filter(|end| *end > now).min().unwrap_or(UnixTime::MAX)
    }

    /// Returns true if both accept the certificates of the same clients.
    pub fn has_client_files_of(&self, other: &ServerTls) -> bool {
        match (&self.clients, &other.clients) {
            (Some(mine), Some(others)) => mine.has_files_of(others),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns true if a certificate is for this host. An IPv6 address has no brackets here.
    pub fn names(&self, host: &str) -> bool {
        let is_of = |certificate: &Description| certificate.names.iter().any(|name| name == host);
        self.resolver.find(host).is_some() || host.parse::<IpAddr>().is_ok() && self.certificates.iter().any(is_of)
    }

    /// Returns true if a client gets the same certificate for both server names.
    pub fn has_same_certificate(&self, name: &str, other: &str) -> bool {
        let chosen = [name, other].map(|name| self.resolver.choose(name));
        matches!(chosen, [Some(one), Some(other)] if Arc::ptr_eq(one, other))
    }

    /// Returns true if every client gets the same certificate from both.
    pub fn has_certificates_of(&self, other: &ServerTls) -> bool {
        let mine = &self.resolver;
        let others = &other.resolver;
        let is_same = |(name, mine): (&String, &Arc<CertifiedKey>)| {
            others.by_name.get(name).is_some_and(|others| others.cert == mine.cert)
        };
        let cert = |certified: &Option<Arc<CertifiedKey>>| certified.as_ref().map(|certified| certified.cert.clone());
        cert(&mine.first) == cert(&others.first)
            && mine.by_name.len() == others.by_name.len()
            && mine.by_name.iter().all(is_same)
    }
}

/// Who can open the session tickets of a listener.
#[derive(Clone)]
pub enum TicketSource {
    /// This process.
    Process,
    /// Each gateway on the same store.
    Shared(Arc<TicketKeys>),
}

/// Reads the certificates of a listener; `None` for cleartext. Generates a self-signed certificate if it is missing.
/// `listener` is its number in the configuration, which is the same at each gateway. `acme`: the certificates of all
/// names for an ACME server. `before`: what the listener has now. Its certificates stay for names that wait for their
/// first certificate of an ACME server.
pub fn server_tls(
    settings: &ServerTlsSettings,
    clients: Option<&ClientAuthSettings>,
    tickets: &TicketSource,
    listener: usize,
    acme: &Arc<AcmeCertificates>,
    before: Option<&ServerTls>,
) -> Result<Option<Arc<ServerTls>>, TlsError> {
    let Some(Read { certificates, awaited, descriptions }) = read(settings, acme)? else { return Ok(None) };
    let resolver = SniResolver::new(certificates, awaited)?;
    let resolver = Arc::new(match before {
        Some(before) => resolver.keeping(&before.resolver),
        None => resolver,
    });
    let names: Vec<_> = settings.acme_names().cloned().collect();
    let acme = (!names.is_empty()).then(|| AcmeNames { names, certificates: acme.clone() });
    let clients = clients.map(ClientAuth::read).transpose()?.map(Arc::new);
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Library)?;
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(clients) => builder.with_client_cert_verifier(clients.clone()),
    };
    let mut config = builder.with_cert_resolver(resolver.clone());
    config.max_fragment_size = MAX_FRAGMENT;
    config.alpn_protocols = [&b"h2"[..], b"http/1.1", b"http/1.0"].map(<[u8]>::to_vec).to_vec();
    if clients.is_some() {
        forbid_resumption(&mut config);
        return Ok(Some(Arc::new(ServerTls {
            config: Arc::new(config),
            resolver,
            certificates: descriptions,
            clients,
            acme,
        })));
    }
    // Tickets keep the resumption state with the client, so it costs no memory here and any worker can resume the
    // session.
    config.ticketer = match tickets {
        TicketSource::Process => aws_lc_rs::Ticketer::new().map_err(TlsError::Library)?,
        TicketSource::Shared(keys) => Arc::new(Tickets { keys: keys.clone(), listener: resolver.identity(listener) }),
    };
    // Each ticket costs the gateway about 1 µs, and one is enough to resume.
    config.send_tls13_tickets = 1;
    Ok(Some(Arc::new(ServerTls { config: Arc::new(config), resolver, certificates: descriptions, clients, acme })))
}

/// The certificates of a listener, in the order of the configuration.
#[derive(Default)]
struct Read {
    certificates: Vec<(Arc<CertifiedKey>, PathBuf)>,
    /// The names that wait for their first certificate.
    awaited: HashSet<String>,
    descriptions: Vec<Description>,
}

/// `None` for cleartext.
fn read(settings: &ServerTlsSettings, acme: &AcmeCertificates) -> Result<Option<Read>, TlsError> {
    let mut read = Read::default();
    match settings {
        ServerTlsSettings::Off => return Ok(None),
        ServerTlsSettings::SelfSigned { folder } => {
            let files = CertificateFiles::self_signed(folder);
            if !files.certificate.exists() || !files.key.exists() {
                generate_self_signed(&files)?;
            }
            read.add_files(&files)?;
        }
        ServerTlsSettings::Certificates(sources) => {
            for source in sources {
                match source {
                    CertificateSource::Files(files) => read.add_files(files)?,
                    CertificateSource::Acme(names) => names.iter().for_each(|name| read.add_acme(name, acme)),
                }
            }
        }
    }
    Ok(Some(read))
}

impl Read {
    fn add_files(&mut self, files: &CertificateFiles) -> Result<(), TlsError> {
        let certificate = load(files)?;
        // The metrics have one series for each file.
        if !self.descriptions.iter().any(|known| known.file == files.certificate) {
            self.descriptions.push(describe(&certificate, &files.certificate)?);
        }
        self.certificates.push((Arc::new(certificate), files.certificate.clone()));
        Ok(())
    }

    fn add_acme(&mut self, name: &str, acme: &AcmeCertificates) {
        match acme.name(name).and_then(|known| known.issued.clone()) {
            None => {
                self.awaited.insert(name.to_owned());
            }
            Some(issued) => {
                self.certificates.push((issued.certified.clone(), issued.description.file.clone()));
                self.descriptions.push(issued.description.clone());
            }
        }
    }
}

/// rustls resumes a session without a look at the certificate of its client: also one that a list has revoked since,
/// and one that began without a certificate. So each connection has a full handshake.
fn forbid_resumption(config: &mut ServerConfig) {
    // The default ticketer makes no tickets.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// Chooses the certificate that names the requested host, or else the first one. A name that waits for its first
/// certificate has the one from before the reload, or none: its clients then get an alert, not the certificate of
/// another name.
#[derive(Debug)]
struct SniResolver {
    first: Option<Arc<CertifiedKey>>,
    /// By DNS name in lower case. `*.example.com` has its own entry.
    by_name: HashMap<String, Arc<CertifiedKey>>,
    awaited: HashSet<String>,
}

impl SniResolver {
    fn new(certificates: Vec<(Arc<CertifiedKey>, PathBuf)>, awaited: HashSet<String>) -> Result<Self, TlsError> {
        let first = certificates.first().map(|(certificate, _)| certificate.clone());
        if first.is_none() && awaited.is_empty() {
            return Err(TlsError::NoCertificateConfigured);
        }
        let mut by_name = HashMap::new();
        for (certificate, file) in &certificates {
            for name in dns_names(certificate, file)? {
                by_name.entry(name).or_insert_with(|| certificate.clone());
            }
        }
        Ok(SniResolver { first, by_name, awaited })
    }

    /// With the certificates of `before` for the names that wait for their first one: a reload that asks an ACME server
    /// for the certificate of a name must not end the service of that name.
    fn keeping(mut self, before: &SniResolver) -> Self {
        for name in &self.awaited {
            if let Some(kept) = before.find(name) {
                self.by_name.entry(name.clone()).or_insert_with(|| kept.clone());
            }
        }
        self.first = self.first.or_else(|| before.first.clone());
        self
    }

    /// What must be equal for a ticket of one gateway to be good at another: the listener and the names that it serves.
    fn identity(&self, listener: usize) -> String {
        let mut names: Vec<&str> = self.by_name.keys().chain(&self.awaited).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        format!("listener {listener}: {}", names.join(" "))
    }

    fn choose(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        let found = self.find(host);
        if found.is_some() || self.awaited.contains(&host.to_ascii_lowercase()) { found } else { self.first.as_ref() }
    }

    fn find(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        let host = host.to_ascii_lowercase();
        self.by_name.get(&host).or_else(|| {
            let (_, parent) = host.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        })
    }
}

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        hello.server_name().map_or(self.first.as_ref(), |host| self.choose(host)).cloned()
    }
}
