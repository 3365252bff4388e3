//! The process: its user, its groups, what it can change, and what other processes may read of it.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::{DumpableBehavior, Resource, getegid, geteuid, getgroups, getrlimit, set_dumpable_behavior};
use rustix::time::{ClockId, clock_gettime};

/// The number of the root user.
pub const ROOT: u32 = 0;

/// The effective user.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Returns true if the process is a member of this group.
pub fn is_in_group(group: u32) -> bool {
    getegid().as_raw() == group || getgroups().unwrap_or_default().iter().any(|other| other.as_raw() == group)
}

/// Returns true if the path is on a file system that is mounted read-only.
pub fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|mounted| mounted.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The processor time of all threads so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or_default(), time.tv_nsec.try_into().unwrap_or_default())
}

/// The memory that is not swapped out, in bytes. 0 if the kernel does not say it.
pub fn resident_memory() -> u64 {
    status("VmRSS:")
}

/// The address space, in bytes. 0 if the kernel does not say it.
pub fn address_space() -> u64 {
    status("VmSize:")
}

/// How many files the process may have open. `None`: no limit.
pub fn max_open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// A line of /proc/self/status, in bytes (proc_pid_status(5)).
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    kibibytes * 1024
}

/// Forbids other processes of the same user to read the memory of this one, with ptrace(2) or from /proc, and the
/// kernel to write a core file of it. Root can still do both.
pub fn forbid_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
