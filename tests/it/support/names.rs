//! A resolver that answers as it is told, under the real program.

use std::path::Path;

use super::preload;
use super::program::{Program, Served};

/// Serves the `gateway.toml` in `folder`. The only name that is found is this one.
pub fn serve<'f>(folder: &'f Path, name: &'static str, address: &str) -> (Served, Names<'f>) {
    let names = Names { folder, name };
    names.leads_to(address);
    preload::compile("names", folder);
    let line = "exec env LD_PRELOAD=./names.so BEARWARD_NAMES=names \"$0\" serve";
    (Served::of(Program::start_by(folder, line), folder), names)
}

pub struct Names<'f> {
    folder: &'f Path,
    name: &'static str,
}

impl Names<'_> {
    pub fn leads_to(&self, address: &str) {
        preload::write(self.folder, "names", &format!("{} {address}\n", self.name));
    }

    pub fn is_not_found(&self) {
        preload::write(self.folder, "names", "");
    }
}
