//! A disk that fails when it is told to, under the real program.

use std::path::Path;
use std::process::Command;

use super::program::{Program, Served};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/disk.c");

/// Serves the `gateway.toml` in `folder`, which is on this disk.
pub fn serve(folder: &Path) -> (Served, Disk<'_>) {
    let disk = Disk { folder };
    disk.is("well");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join("disk.so")).args([SOURCE, "-ldl"]);
    assert!(compiler.status().expect("a C compiler is there").success(), "{SOURCE} was not compiled");
    let line = "exec env LD_PRELOAD=./disk.so BEARWARD_DISK=disk \"$0\" serve";
    (Served::of(Program::start_by(folder, line), folder), disk)
}

pub struct Disk<'f> {
    folder: &'f Path,
}

impl Disk<'_> {
    /// "well", or a word that `disk.c` knows.
    pub fn is(&self, word: &str) {
        // Whole at once: nobody reads half a word.
        std::fs::write(self.folder.join("disk.new"), word).expect("written");
        std::fs::rename(self.folder.join("disk.new"), self.folder.join("disk")).expect("renamed");
    }
}
