//! The process: its user, its groups, what it can change, and what other processes may read of it.

use std::io;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::{DumpableBehavior, getegid, geteuid, getgroups, set_dumpable_behavior};

/// The number of the root user.
pub const ROOT: u32 = 0;

/// The effective user.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Returns true if the process is a member of this group.
pub fn is_in_group(group: u32) -> bool {
    let others = || getgroups().unwrap_or_default();
    getegid().as_raw() == group || others().iter().any(|other| other.as_raw() == group)
}

/// Returns true if the path is on a file system that is mounted read-only.
pub fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|mounted| mounted.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Forbids other processes of the same user to read the memory of this one, with ptrace(2) or from /proc, and the
/// kernel to write a core file of it. Root can still do both.
pub fn forbid_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
