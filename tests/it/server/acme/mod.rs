//! Certificates from an ACME server: Debian's Pebble validates the names at the listeners themselves.

mod authority;
mod failures;
mod issued;
mod orders;
mod replicas;
mod validation;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tempfile::TempDir;

use crate::protocols::tls::{TLS13, handshake_at};
use crate::support::clock::ManualClock;
use crate::support::gateway::ACME_PACE;
use crate::support::ports::free_port;
use crate::support::wait::eventually_within;
use crate::support::{Gateway, Upstream};
use authority::Front;

const NAME: &str = "api.example";

/// An order takes some seconds, more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway with these names on its second listener, and its authority.
struct Given {
    gateway: Gateway,
    front: Front,
    _upstream: Upstream,
}

/// Lets the gateway look so often whether something is due that it has certainly looked. What does not happen in this
/// time has no condition to wait for.
async fn some_turns() {
    tokio::time::sleep(20 * ACME_PACE.turns).await;
}

/// The configuration with this TLS of the second listener, at this port.
fn with_tls(upstream: &Upstream, port: u16, tls: &str, more: &str) -> String {
    let text = Gateway::public_config(upstream.address, more);
    let listener = "address = \"127.0.0.1:0\"\ntls = \"self-signed\"";
    assert!(text.contains(listener), "{text}");
    text.replace(listener, &format!("address = \"127.0.0.1:{port}\"\ntls = {tls}"))
}

/// A gateway with a name for an authority that is away. Its first order has failed.
pub async fn gateway_without_authority(upstream: &Upstream) -> Gateway {
    let away = format!("[acme]\ndirectory = \"https://127.0.0.1:{}/dir\"\n", free_port());
    let text = with_tls(upstream, free_port(), &acme(&[NAME]), &away);
    let folder = Arc::new(TempDir::new().expect("a folder"));
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    gateway.wait_for_metric(&format!("acme_failures{{name=\"{NAME}\"}}"), 1).await;
    gateway
}

fn acme(names: &[&str]) -> String {
    format!("{{ acme = {names:?} }}")
}

impl Given {
    /// Starts both. `prepare` is called before the gateway starts.
    async fn start(tls: &str, more: &str, prepare: impl FnOnce(&Front)) -> Given {
        let (upstream, port) = (Upstream::start(), free_port());
        let (front, folder) = (Front::start(port).await, Arc::new(TempDir::new().expect("a folder")));
        prepare(&front);
        let settings = front.settings(folder.path());
        let text = with_tls(&upstream, port, tls, &format!("{settings}{more}"));
        let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
        Given { gateway, front, _upstream: upstream }
    }

    /// With the first certificate of [`NAME`].
    async fn issued() -> (Given, CertificateDer<'static>) {
        let given = Given::start(&acme(&[NAME]), "", |_| {}).await;
        let first = issued(given.gateway.tls_address(), NAME).await;
        (given, first)
    }

    /// Lets time pass, and waits until an order has failed once more.
    async fn fails_after(&self, time: Duration) {
        let failed = self.gateway.metric("bearward_acme_orders_total{result=\"failed\"}").await;
        self.gateway.advance(time);
        eventually_within(PATIENCE, "an order fails", async || {
            let now = self.gateway.metric("bearward_acme_orders_total{result=\"failed\"}").await;
            if now > failed { Ok(()) } else { Err(format!("{now} failed: {}", shown(&self.gateway).await["acme"])) }
        })
        .await;
    }

    /// Waits until the next order of [`NAME`] is so far away.
    async fn next_order_in_years(&self, years: std::ops::Range<f64>) {
        eventually_within(PATIENCE, "the next order is known", async || {
            let next = self.gateway.metric("bearward_acme_next_order_timestamp_seconds").await;
            let left = (next - self.gateway.now_secs() as f64) / (365.0 * 24.0 * 3_600.0);
            if years.contains(&left) { Ok(()) } else { Err(format!("in {left} years")) }
        })
        .await;
    }

    fn orders(&self) -> usize {
        self.front.state.orders().len()
    }
}

/// The certificate that a client gets for this name.
async fn certificate(address: SocketAddr, name: &str) -> io::Result<CertificateDer<'static>> {
    let stream = handshake_at(address, name, TLS13, &["http/1.1"]).await?;
    let chain = stream.get_ref().1.peer_certificates().expect("a chain");
    Ok(chain[0].clone().into_owned())
}

/// Waits for the first certificate.
async fn issued(address: SocketAddr, name: &str) -> CertificateDer<'static> {
    eventually_within(PATIENCE, "there is a certificate", async || {
        certificate(address, name).await.map_err(|error| error.to_string())
    })
    .await
}

/// Waits for another certificate.
async fn renewed(address: SocketAddr, name: &str, before: &CertificateDer<'_>) -> CertificateDer<'static> {
    eventually_within(PATIENCE, "there is a new certificate", async || {
        let found = certificate(address, name).await.map_err(|error| error.to_string())?;
        if found == *before { Err("the old one".to_owned()) } else { Ok(found) }
    })
    .await
}

/// What the admin API shows of the second listener.
async fn shown(gateway: &Gateway) -> Value {
    let shown = gateway.admin_client().get("/admin/v1/certificates").await.json();
    shown["listeners"][1].clone()
}
