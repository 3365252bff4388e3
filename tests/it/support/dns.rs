//! The real program with a DNS resolver that a test controls.

use std::path::Path;

use super::preload;
use super::program::{GatewayProcess, Program};

/// Runs `bearward serve` with the `gateway.toml` in `folder`. `name` is the only name that resolves.
pub fn serve<'f>(folder: &'f Path, name: &'static str, address: &str) -> (GatewayProcess, FakeDns<'f>) {
    let dns = FakeDns { folder, name };
    dns.resolves_to(address);
    preload::compile("dns", folder);
    let line = "exec env LD_PRELOAD=./dns.so BEARWARD_DNS=dns \"$0\" serve";
    (GatewayProcess::wait_for(Program::start_with_shell(folder, line), folder), dns)
}

pub struct FakeDns<'f> {
    folder: &'f Path,
    name: &'static str,
}

impl FakeDns<'_> {
    pub fn resolves_to(&self, address: &str) {
        self.resolves_to_all(&[address]);
    }

    pub fn resolves_to_all(&self, addresses: &[&str]) {
        let lines: String = addresses.iter().map(|address| format!("{} {address}\n", self.name)).collect();
        preload::write(self.folder, "dns", &lines);
    }

    pub fn has_no_address(&self) {
        preload::write(self.folder, "dns", "");
    }
}
