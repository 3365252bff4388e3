//! The real program on a disk that fails on demand.

use std::path::Path;

use super::preload;
use super::program::{GatewayProcess, Program};

/// Runs `bearward serve` with the `gateway.toml` in `folder`. Its database is on the faulty disk.
pub fn serve(folder: &Path) -> (GatewayProcess, FaultyDisk<'_>) {
    let disk = FaultyDisk { folder };
    disk.set_state("well");
    preload::compile("disk", folder);
    let line = "exec env LD_PRELOAD=./disk.so BEARWARD_DISK=disk \"$0\" serve";
    (GatewayProcess::wait_for(Program::start_with_shell(folder, line), folder), disk)
}

pub struct FaultyDisk<'f> {
    folder: &'f Path,
}

impl FaultyDisk<'_> {
    /// `well`, or one of the failures that `disk.c` lists.
    pub fn set_state(&self, state: &str) {
        preload::write(self.folder, "disk", state);
    }
}
