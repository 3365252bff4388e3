//! Work that must not take the processor from what is measured.

use std::fs;
use std::process::Command;

use crate::Outcome;

/// Has this thread, and those that it starts, run only where nobody else wants to (SCHED_IDLE). Whoever floods is another
/// machine: it may keep the gateway from its work, but not the honest client and the origin from theirs.
pub fn stand_back() -> Outcome<()> {
    let own = fs::read_link("/proc/thread-self")?;
    let thread = own.file_name().ok_or("a thread without a number")?;
    let status = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(thread).status()?;
    if status.success() { Ok(()) } else { Err("chrt (of util-linux) could not lower a thread's priority".into()) }
}
