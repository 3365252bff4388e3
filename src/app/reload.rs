//! Another configuration for a gateway that is running.
//!
//! Routes, rates, upstreams, identity and login headers, OAuth endpoints, other issuers with their keys, and certificates are swapped; requests under way end
//! as they began, and how the servers of upstreams stand is not forgotten. All that is read is read before anything is swapped, so a bad file changes nothing. The rest (addresses,
//! the store, the gateway's own tokens, limits and timeouts of connections) takes a restart, and a reload says so.

use std::sync::{Arc, PoisonError};

use super::{Running, StartError};
use crate::config::Config;
use crate::server::ListenerSettings;
use crate::tls;

impl Running {
    /// Puts `config` in force. Answers the parts that changed in it but take a restart.
    pub fn reload(&self, config: Config) -> Result<Vec<&'static str>, StartError> {
        let mut current = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let unchanged = needs_restart(&current, &config);
        // In force from here on stays what takes a restart.
        let next = Config {
            routes: config.routes,
            rates: config.rates,
            upstreams: config.upstreams,
            identity: config.identity,
            login: config.login,
            oauth: config.oauth,
            forwarding: config.forwarding,
            issuers: config.issuers,
            listeners: if unchanged.contains(&"listener") { current.listeners.clone() } else { config.listeners },
            ..current.clone()
        };
        let certificates = next.listeners.iter().map(|listener| tls::server_side(&listener.tls));
        let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
        let gateway = self.foundation.gateway(&next, self.clock.clone())?;
        self.foundation.reload_keys(&next)?;
        self.foundation.upstreams.put_in_force(&gateway.forwarder.upstreams);
        self.shared.gateway.store(Arc::new(gateway));
        for (slot, certificate) in self.certificates.iter().zip(certificates) {
            if let (Some(slot), Some(certificate)) = (slot, certificate) {
                slot.store(certificate);
            }
        }
        *current = next;
        Ok(unchanged)
    }
}

fn needs_restart(current: &Config, next: &Config) -> Vec<&'static str> {
    // A listener may change its certificates, nothing else: not from cleartext to TLS or back.
    let sockets = |config: &Config| {
        let socket = |listener: &ListenerSettings| {
            (listener.address, listener.tls == tls::Settings::Off, listener.proxy_protocol)
        };
        config.listeners.iter().map(socket).collect::<Vec<_>>()
    };
    let parts = [
        ("workers", current.workers != next.workers),
        ("listener", sockets(current) != sockets(next)),
        ("admin", current.admin != next.admin),
        ("store", current.store != next.store),
        ("tokens", current.tokens != next.tokens),
        ("throttle", current.throttle != next.throttle),
        ("audit", current.audit != next.audit),
        ("access_log", current.access_log != next.access_log),
        ("timeouts and limits", current.connections != next.connections || current.limits != next.limits),
    ];
    parts.into_iter().filter(|(_, changed)| *changed).map(|(part, _)| part).collect()
}
