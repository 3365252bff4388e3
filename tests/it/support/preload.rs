//! Replaces functions of the C library in the real program (`LD_PRELOAD`).

use std::path::Path;
use std::process::Command;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support");

/// Compiles `{name}.c` of this folder to `{name}.so` in `folder`.
pub fn compile(name: &str, folder: &Path) {
    let source = format!("{SOURCES}/{name}.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(folder.join(format!("{name}.so"))).args([&source, "-ldl"]);
    assert!(compiler.status().expect("a C compiler is installed").success(), "cannot compile {source}");
}

/// Replaces a file atomically, so that the program never reads half of it.
pub fn write(folder: &Path, name: &str, content: &str) {
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, content).expect("written");
    std::fs::rename(new, folder.join(name)).expect("renamed");
}
