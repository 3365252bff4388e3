//! All sockets of the gateway: bound together or not at all, or inherited from another process.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::error::StartError;
use crate::admin::ListenerTls;
use crate::config::Config;
use crate::protocols::local_socket::LocalListener;
use crate::protocols::socket;
use crate::protocols::tls::{
    self, AcmeCertificates, ClientAuthSettings, Description, RevocationList, ServerTls, ServerTlsSettings, TicketSource,
};
use crate::server::Listener;
use crate::telemetry::metrics::{LabelledValue, Metrics};

/// Sockets that listen already.
pub enum Inherited {
    None,
    /// Each must belong to an address of the configuration: clients of any other one would wait for ever.
    Systemd(Vec<TcpListener>),
    /// From the gateway that this one replaces. Its configuration may have other addresses. It sends what it knows of
    /// proofs on the stream, when it accepts none any more.
    Gateway(Vec<TcpListener>, UnixStream),
}

pub(super) struct Sockets {
    /// For each worker, its sockets of every listener.
    pub(super) listeners: Vec<Vec<Listener>>,
    /// For each listener, its active certificates. `None` for cleartext.
    pub(super) certificates: Vec<Option<Arc<ArcSwap<ServerTls>>>>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admin: AdminSocket,
    pub(super) admin_address: SocketAddr,
    /// Copies of all sockets, for the gateway that replaces this one.
    pub(super) copies: Vec<TcpListener>,
}

pub(super) struct AdminSocket {
    pub(super) local: LocalListener,
    pub(super) socket: TcpListener,
    pub(super) tls: Option<Arc<ArcSwap<ServerTls>>>,
}

impl Sockets {
    pub(super) fn open(
        config: &Config,
        tickets: &TicketSource,
        acme: &Arc<AcmeCertificates>,
        inherited: Inherited,
    ) -> Result<Self, StartError> {
        let mut binder = Binder::new(inherited)?;
        let mut listeners: Vec<Vec<Listener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        let mut certificates = Vec::new();
        let (admin, admin_address) = binder.admin(config)?;
        for (number, settings) in config.listeners.iter().enumerate() {
            let tls = server_tls(&settings.tls, settings.clients.as_ref(), tickets, number, acme)?;
            let (sockets, address) = binder.take_or_bind(settings.address, config.workers)?;
            let proxy_protocol = settings.proxy_protocol;
            let public_url = &settings.public_url;
            let listener =
                |socket| Listener { socket, tls: tls.clone(), proxy_protocol, public_url: public_url.clone() };
            for (worker, sockets) in listeners.iter_mut().zip(sockets) {
                worker.extend(sockets.into_iter().map(listener));
            }
            addresses.push(address);
            certificates.push(tls);
        }
        let copies = binder.finish(config)?;
        Ok(Sockets { listeners, certificates, addresses, admin, admin_address, copies })
    }

    /// All of them, the admin listener last.
    pub(super) fn with_certificates(&self) -> Vec<ListenerTls> {
        let of = |is_admin, address: &SocketAddr, tls: &Option<_>| ListenerTls {
            address: *address,
            is_admin,
            tls: tls.clone(),
        };
        let clients = self.addresses.iter().zip(&self.certificates).map(|(address, tls)| of(false, address, tls));
        clients.chain([of(true, &self.admin_address, &self.admin.tls)]).collect()
    }

    /// The end of the active certificates.
    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let listeners = self.with_certificates().into_iter();
        let active: Vec<_> =
            listeners.filter_map(|listener| Some((listener.address.to_string(), listener.tls?))).collect();
        let of_lists = active.clone();
        let help = "When a revocation list for clients has to be replaced, in Unix time";
        metrics.gauges("client_crl_next_update_timestamp_seconds", help, move || {
            of_lists.iter().flat_map(|(listener, tls)| next_updates(listener, &tls.load())).collect()
        });
        let help = "When the certificate of a listener expires, in Unix time";
        metrics.gauges("certificate_not_after_timestamp_seconds", help, move || {
            active.iter().flat_map(|(listener, tls)| expiries(listener, &tls.load())).collect()
        });
    }
}

fn expiries(listener: &str, side: &ServerTls) -> Vec<LabelledValue> {
    let labelled = |certificate: &Description| {
        let file = certificate.file.display().to_string();
        (vec![("listener", listener.to_owned()), ("certificate", file)], certificate.not_after as f64)
    };
    side.certificates.iter().map(labelled).collect()
}

fn next_updates(listener: &str, side: &ServerTls) -> Vec<LabelledValue> {
    let labelled = |file: String, end: f64| (vec![("listener", listener.to_owned()), ("crl", file)], end);
    let of_list = |list: RevocationList| labelled(list.file.display().to_string(), list.next_update.as_secs() as f64);
    // An authority without a list has needed one since ever, and no file can be named.
    let unlisted = side.has_unlisted_authority().then(|| labelled(String::new(), 0.0));
    side.list_ends().into_iter().map(of_list).chain(unlisted).collect()
}

fn server_tls(
    settings: &ServerTlsSettings,
    clients: Option<&ClientAuthSettings>,
    tickets: &TicketSource,
    listener: usize,
    acme: &Arc<AcmeCertificates>,
) -> Result<Option<Arc<ArcSwap<ServerTls>>>, StartError> {
    let side = tls::server_tls(settings, clients, tickets, listener, acme, None);
    let side = side.map_err(|error| StartError::Certificate(error.into()))?;
    Ok(side.map(|side| Arc::new(ArcSwap::new(side))))
}

/// Binds the addresses of the configuration at which none of these sockets listens. Not those with port 0, which are
/// always free.
pub(super) fn bind_others(config: &Config, inherited: &[TcpListener]) -> Result<Vec<TcpListener>, StartError> {
    let bound = inherited.iter().map(TcpListener::local_addr).collect::<io::Result<HashSet<_>>>();
    let bound = bound.map_err(StartError::InheritedSocket)?;
    let listeners = config.listeners.iter().map(|listener| (listener.address, config.workers));
    let mut others = Vec::new();
    for (address, count) in listeners.chain([(config.admin.address, 1)]) {
        if address.port() != 0 && !bound.contains(&address) {
            let sockets = socket::bind(address, count);
            others.extend(sockets.map_err(|source| StartError::Listen { address, source })?);
        }
    }
    Ok(others)
}

/// Takes inherited sockets by their addresses, and binds the others.
struct Binder {
    inherited: Vec<(SocketAddr, TcpListener)>,
    /// Each inherited socket must be taken.
    takes_all: bool,
    copies: Vec<TcpListener>,
}

impl Binder {
    fn new(inherited: Inherited) -> Result<Self, StartError> {
        let (sockets, takes_all) = match inherited {
            Inherited::None => (Vec::new(), false),
            Inherited::Systemd(sockets) => (sockets, true),
            Inherited::Gateway(sockets, _) => (sockets, false),
        };
        let with_address = |socket: TcpListener| {
            socket.set_nonblocking(true)?;
            Ok((socket.local_addr()?, socket))
        };
        let inherited = sockets.into_iter().map(with_address).collect::<io::Result<_>>();
        let inherited = inherited.map_err(StartError::InheritedSocket)?;
        Ok(Binder { inherited, takes_all, copies: Vec::new() })
    }

    fn admin(&mut self, config: &Config) -> Result<(AdminSocket, SocketAddr), StartError> {
        // Operators have few connections, and each gateway is asked by its own address.
        let process = TicketSource::Process;
        let number = config.listeners.len();
        let tls = server_tls(&config.admin.tls, None, &process, number, &Arc::default())?;
        let (sockets, address) = self.take_or_bind(config.admin.address, 1)?;
        let socket = sockets.into_iter().flatten().next_back();
        let no_socket = || StartError::Listen { address, source: io::ErrorKind::NotFound.into() };
        let socket = socket.ok_or_else(no_socket)?;
        // The store is open, so no other gateway uses the path beside it.
        let path = &config.admin.socket;
        let local = LocalListener::bind(path);
        let local = local.map_err(|source| StartError::AdminSocket { socket: path.clone(), source })?;
        Ok((AdminSocket { local, socket, tls }, address))
    }

    /// Returns one or more sockets on `address` for each worker, and the address with the port that the system chose.
    ///
    /// Each socket has its own queue, so a worker must accept from each.
    fn take_or_bind(
        &mut self,
        address: SocketAddr,
        workers: usize,
    ) -> Result<(Vec<Vec<TcpListener>>, SocketAddr), StartError> {
        let error = |source| StartError::Listen { address, source };
        let (taken, others): (Vec<_>, Vec<_>) = self.inherited.drain(..).partition(|(bound, _)| *bound == address);
        self.inherited = others;
        let taken: Vec<TcpListener> = taken.into_iter().map(|(_, socket)| socket).collect();
        let sockets = if taken.is_empty() { socket::bind(address, workers).map_err(error)? } else { taken };
        let bound = sockets.first().map_or(Ok(address), TcpListener::local_addr).map_err(error)?;
        for socket in &sockets {
            self.copies.push(socket.try_clone().map_err(error)?);
        }
        Ok((socket::distribute(sockets, workers).map_err(error)?, bound))
    }

    /// Fails if a socket from systemd was not taken. Returns a copy of each socket in use.
    fn finish(self, config: &Config) -> Result<Vec<TcpListener>, StartError> {
        match self.inherited.first() {
            Some((address, _)) if self.takes_all => Err(StartError::UnknownSocket {
                address: *address,
                listeners: config.listeners.iter().map(|listener| listener.address).collect(),
                admin: config.admin.address,
            }),
            _ => Ok(self.copies),
        }
    }
}
