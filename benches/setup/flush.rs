//! Makes each flush of the bench's PostgreSQL server take longer, as on a common disk.

#![allow(unreachable_pub, reason = "`pub` means visible to the benches; nothing is exported")]

use std::env;
use std::error::Error;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// In the environment of the bench while the flushes of its server are delayed.
const DELAYED: &str = "BEARWARD_FLUSH";

/// Replaces this process by one with slow flushes, unless it is that process. `micros`: what each flush takes at least.
pub fn delay(micros: u32) -> Result<(), Box<dyn Error + Send + Sync>> {
    if micros == 0 || env::var_os(DELAYED).is_some() {
        return Ok(());
    }
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("flush.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/setup/flush.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args([source, "-ldl"]).status()?;
    if !compiled.success() {
        return Err(format!("cannot compile {source}").into());
    }
    let mut again = Command::new(env::current_exe()?);
    again.args(env::args_os().skip(1)).env("LD_PRELOAD", library).env(DELAYED, micros.to_string());
    Err(again.exec().into())
}
