//! Another configuration, another certificate, another process: whoever is being served notices nothing of it.

mod command;
mod load;
mod reloads;
mod renewed;
mod upgrade;
mod watched;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::program::Served;
use crate::support::{Gateway, Upstream};

/// A gateway that asks for no token, and a `gateway.toml` in which its admin address has become the real one.
fn served(upstream: &Upstream, edit: impl Fn(String) -> String) -> (Served, TempDir, String) {
    let folder = TempDir::new().expect("a folder");
    let text = edit(Gateway::open_text(upstream.address, ""));
    write(folder.path(), &text);
    let served = Served::start(folder.path());
    let admin = format!("[admin]\naddress = \"{}\"", served.admin);
    let named = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &admin);
    (served, folder, named)
}

fn write(folder: &Path, text: &str) {
    fs::write(folder.join("gateway.toml"), text).expect("written");
}

async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(30), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One value of `/metrics`.
async fn metric(served: &Served, name: &str) -> f64 {
    let page = served.admin_client().get("/metrics").await.text();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}
