//! Lets load run without taking processor time from the processes that are measured.

use std::fs;
use std::process::Command;

use crate::Outcome;

/// Gives this thread, and the threads that it starts, the scheduling class SCHED_IDLE. An attacker runs on another
/// machine: it takes time from the gateway, but not from the honest client or the origin.
pub fn idle_priority() -> Outcome<()> {
    let own = fs::read_link("/proc/thread-self")?;
    let thread = own.file_name().ok_or("/proc/thread-self has no thread id")?;
    let status = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(thread).status()?;
    if status.success() { Ok(()) } else { Err("chrt failed to set SCHED_IDLE (install util-linux)".into()) }
}
