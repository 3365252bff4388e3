//! Reloads, renewed certificates and take-overs do not disturb the clients.

mod command;
mod lists;
mod load;
mod notified;
mod proofs;
mod reloads;
mod renewed;
mod upgrade;
mod watched;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::program::GatewayProcess;
use crate::support::{Gateway, Upstream};

/// A gateway that requires no token, and a `gateway.toml` with its real admin address.
fn served(upstream: &Upstream, edit: impl Fn(String) -> String) -> (GatewayProcess, TempDir, String) {
    let folder = TempDir::new().expect("a folder");
    let text = edit(Gateway::public_config(upstream.address, ""));
    write(folder.path(), &text);
    let served = GatewayProcess::start(folder.path());
    let admin = format!("[admin]\naddress = \"{}\"", served.admin);
    let named = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &admin);
    (served, folder, named)
}

fn write(folder: &Path, text: &str) {
    fs::write(folder.join("gateway.toml"), text).expect("written");
}

/// Waits until `condition` holds. Allows more time than `eventually`, because the gateway first has to notice a change.
async fn soon(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < Duration::from_secs(30), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns one value of `/metrics`.
async fn metric(served: &GatewayProcess, name: &str) -> f64 {
    let page = served.admin_client().get("/metrics").await.text();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}
