//! All sockets of the gateway, bound together or not at all; or taken as another process has bound them.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::Config;
use crate::protocols::socket;
use crate::protocols::tls::{self, ServerTls};
use crate::server::Listener;
use crate::telemetry::metrics::{LabelledValue, Metrics};
use crate::types::reject::with_causes;

/// Sockets that listen already.
pub enum Inherited {
    None,
    /// Each is meant for one of our addresses: one that nobody serves would keep its clients waiting.
    Systemd(Vec<TcpListener>),
    /// Of the gateway that this one replaces. Its configuration may have had other addresses.
    Gateway(Vec<TcpListener>),
}

pub(super) struct Sockets {
    /// For each worker, its own of every listener.
    pub(super) listeners: Vec<Vec<Listener>>,
    /// For each listener, the certificates in force; `None` for cleartext.
    pub(super) certificates: Vec<Option<Arc<ArcSwap<ServerTls>>>>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admin: AdminSocket,
    pub(super) admin_address: SocketAddr,
    /// All of them again, for whoever replaces this gateway.
    pub(super) copies: Vec<TcpListener>,
}

pub(super) struct AdminSocket {
    pub(super) socket: TcpListener,
    pub(super) tls: Option<Arc<ArcSwap<ServerTls>>>,
}

impl Sockets {
    pub(super) fn open(config: &Config, inherited: Inherited) -> Result<Self, String> {
        let mut inherited = Unclaimed::of(inherited)?;
        let mut listeners: Vec<Vec<Listener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let (mut addresses, mut certificates, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        let admin_tls = slot(&config.admin.tls)?;
        let (mut admin, admin_address) = inherited.take_or_bind(config.admin.address, 1, &mut copies)?;
        for settings in &config.listeners {
            let tls = slot(&settings.tls)?;
            let (sockets, address) = inherited.take_or_bind(settings.address, config.workers, &mut copies)?;
            let proxy_protocol = settings.proxy_protocol;
            for (own, sockets) in listeners.iter_mut().zip(sockets) {
                let own_of = |socket| Listener { socket, tls: tls.clone(), proxy_protocol };
                own.extend(sockets.into_iter().map(own_of));
            }
            addresses.push(address);
            certificates.push(tls);
        }
        inherited.check_nothing_is_left(config)?;
        let socket = admin.pop().and_then(|mut sockets| sockets.pop()).ok_or("the admin address has no socket")?;
        let admin = AdminSocket { socket, tls: admin_tls };
        Ok(Sockets { listeners, certificates, addresses, admin, admin_address, copies })
    }

    /// When the certificates end that are in force at the time of the look.
    pub(super) fn register_metrics(&self, metrics: &mut Metrics) {
        let listeners = self.addresses.iter().zip(&self.certificates);
        let listeners = listeners.chain([(&self.admin_address, &self.admin.tls)]);
        let slots: Vec<_> = listeners.filter_map(|(at, slot)| Some((at.to_string(), slot.clone()?))).collect();
        let help = "When each certificate of a listener ends, in Unix time";
        metrics.gauges("certificate_not_after_timestamp_seconds", help, move || {
            slots.iter().flat_map(|(listener, slot)| ends(listener, &slot.load())).collect()
        });
    }
}

fn ends(listener: &str, side: &ServerTls) -> Vec<LabelledValue> {
    let labelled = |(file, not_after): (&PathBuf, &u64)| {
        let labels = vec![("listener", listener.to_owned()), ("certificate", file.display().to_string())];
        (labels, *not_after as f64)
    };
    side.not_after.iter().map(labelled).collect()
}

fn slot(settings: &tls::Settings) -> Result<Option<Arc<ArcSwap<ServerTls>>>, String> {
    let tls = tls::server_tls(settings).map_err(|error| with_causes(&error))?;
    Ok(tls.map(|tls| Arc::new(ArcSwap::new(tls))))
}

/// Inherited sockets that nothing was found for yet.
struct Unclaimed {
    sockets: Vec<(SocketAddr, TcpListener)>,
    all_are_meant: bool,
}

impl Unclaimed {
    fn of(inherited: Inherited) -> Result<Self, String> {
        let (sockets, all_are_meant) = match inherited {
            Inherited::None => (Vec::new(), false),
            Inherited::Systemd(sockets) => (sockets, true),
            Inherited::Gateway(sockets) => (sockets, false),
        };
        let named = sockets.into_iter().map(|socket| {
            socket.set_nonblocking(true)?;
            Ok((socket.local_addr()?, socket))
        });
        let sockets = named.collect::<std::io::Result<_>>();
        let sockets = sockets.map_err(|error| format!("a socket of another process cannot be used: {error}"))?;
        Ok(Unclaimed { sockets, all_are_meant })
    }

    /// For each of so many workers, one or more sockets at `address`; and which address that is if the port was left to the
    /// system. Each socket has a queue of its own, which some worker has to look after.
    fn take_or_bind(
        &mut self,
        address: SocketAddr,
        workers: usize,
        copies: &mut Vec<TcpListener>,
    ) -> Result<(Vec<Vec<TcpListener>>, SocketAddr), String> {
        let fault = |error| format!("{address} cannot be listened at: {error}");
        let (ours, others): (Vec<_>, Vec<_>) = self.sockets.drain(..).partition(|(bound, _)| *bound == address);
        self.sockets = others;
        let ours: Vec<TcpListener> = ours.into_iter().map(|(_, socket)| socket).collect();
        let ours = if ours.is_empty() { socket::bind(address, workers).map_err(fault)? } else { ours };
        let address = ours.first().map_or(Ok(address), TcpListener::local_addr).map_err(fault)?;
        for socket in &ours {
            copies.push(socket.try_clone().map_err(fault)?);
        }
        Ok((socket::distribute(ours, workers).map_err(fault)?, address))
    }

    fn check_nothing_is_left(&self, config: &Config) -> Result<(), String> {
        let Some((address, _)) = self.sockets.first().filter(|_| self.all_are_meant) else { return Ok(()) };
        let ours: Vec<_> = config.listeners.iter().map(|listener| listener.address.to_string()).collect();
        Err(format!(
            "systemd listens on {address}, which is neither an address of a [[listener]] ({}) nor admin.address ({}): \
             make ListenStream= in the .socket unit and the configuration the same",
            ours.join(", "),
            config.admin.address
        ))
    }
}
