//! Owners of files, in words for an operator who runs a command as the wrong user.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, fchown};

use crate::types::process::{self, ROOT};

/// The users of this machine (passwd(5)). Those of a directory service are not in it, and are shown by their number.
const USERS: &str = "/etc/passwd";

/// A user, shown by its name: `user bearward`, or `user 998`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

impl User {
    fn name(self) -> Option<String> {
        name_in(&fs::read(USERS).unwrap_or_default(), self.0)
    }

    /// A command of this user. The operator replaces the dots by the rest of the command line.
    pub fn command(self) -> String {
        match self.name() {
            Some(name) => format!("sudo -u {name} bearward …"),
            None => format!("sudo -u '#{}' bearward …", self.0),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "user {name}"),
            None => write!(f, "user {}", self.0),
        }
    }
}

/// A name goes into a command, so it has only the characters that need no quotes.
fn name_in(users: &[u8], number: u32) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next().filter(|name| !name.is_empty() && name.iter().copied().all(is_plain))?;
        let found: u32 = str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
        (found == number).then(|| String::from_utf8_lossy(name).into_owned())
    })
}

/// The advice if a file of `owner` stops a command of `user`: mostly, the operator runs it as the wrong user. The
/// command `take` would then take the file from the gateway.
pub(super) fn of_another(owner: u32, user: u32, take: &str) -> String {
    let command = User(owner).command();
    format!("run this as its user: {command}; only if the gateway runs as {}, run: {take}", User(user))
}

/// Gives a file that this process has just created to the owner of `like`, if the process is one of root. The gateway
/// may run as that user, and could not use a file of root. Never for a file that was there: its name may be a link.
pub fn keep(file: &File, like: &Metadata) -> std::io::Result<()> {
    let is_other = process::user() == ROOT && file.metadata()?.uid() != like.uid();
    if is_other { fchown(file, Some(like.uid()), Some(like.gid())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_number() {
        let users =
            b"root:x:0:0:root:/root:/bin/bash\nbad name:x:7:7::/:/bin/false\nodd\nbearward:x:998:998::/:/bin/false\n";
        for (number, name) in [(0, Some("root")), (998, Some("bearward")), (7, None), (99, None)] {
            assert_eq!(name_in(users, number).as_deref(), name);
        }
        assert_eq!(name_in(b"", 0), None);
    }
}
