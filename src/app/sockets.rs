//! All sockets of the gateway, bound together or not at all.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::Config;
use crate::server::Listener;
use crate::tls::ServerSide;
use crate::{socket, tls};

pub(super) struct Sockets {
    /// For each worker, its own of every listener.
    pub(super) listeners: Vec<Vec<Listener>>,
    /// For each listener, the certificates in force; `None` for cleartext.
    pub(super) certificates: Vec<Option<Arc<ArcSwap<ServerSide>>>>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) admin: AdminSocket,
    pub(super) admin_address: SocketAddr,
}

pub(super) struct AdminSocket {
    pub(super) socket: TcpListener,
    pub(super) tls: Option<Arc<ServerSide>>,
}

impl Sockets {
    pub(super) fn bind(config: &Config) -> Result<Self, String> {
        let mut listeners: Vec<Vec<Listener>> = (0..config.workers).map(|_| Vec::new()).collect();
        let (mut addresses, mut certificates) = (Vec::new(), Vec::new());
        for settings in &config.listeners {
            let tls = tls::server_side(&settings.tls)?.map(|side| Arc::new(ArcSwap::new(side)));
            let (sockets, address) = bind(settings.address, config.workers)?;
            for (own, socket) in listeners.iter_mut().zip(sockets) {
                own.push(Listener { socket, tls: tls.clone(), proxy_protocol: settings.proxy_protocol });
            }
            addresses.push(address);
            certificates.push(tls);
        }
        let tls = tls::server_side(&config.admin.tls)?;
        let (mut sockets, admin_address) = bind(config.admin.address, 1)?;
        let socket = sockets.pop().ok_or("the admin address has no socket")?;
        Ok(Sockets { listeners, certificates, addresses, admin: AdminSocket { socket, tls }, admin_address })
    }
}

/// `count` sockets at one address, and which address that is if the port was left to the system.
fn bind(address: SocketAddr, count: usize) -> Result<(Vec<TcpListener>, SocketAddr), String> {
    let bound = socket::bind(address, count).and_then(|sockets| {
        let address = sockets.first().map_or(Ok(address), TcpListener::local_addr)?;
        Ok((sockets, address))
    });
    bound.map_err(|error| format!("{address} cannot be listened at: {error}"))
}
