//! A disk that fails when it is told to, under the real program.

use std::path::Path;

use super::preload;
use super::program::{Program, Served};

/// Serves the `gateway.toml` in `folder`, which is on this disk.
pub fn serve(folder: &Path) -> (Served, Disk<'_>) {
    let disk = Disk { folder };
    disk.is("well");
    preload::compile("disk", folder);
    let line = "exec env LD_PRELOAD=./disk.so BEARWARD_DISK=disk \"$0\" serve";
    (Served::of(Program::start_by(folder, line), folder), disk)
}

pub struct Disk<'f> {
    folder: &'f Path,
}

impl Disk<'_> {
    /// "well", or a word that `disk.c` knows.
    pub fn is(&self, word: &str) {
        preload::write(self.folder, "disk", word);
    }
}
