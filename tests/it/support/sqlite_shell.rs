//! The shell of SQLite, as an operator who holds the database.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::Gateway;

/// An `sqlite3` shell with an open transaction.
pub struct Shell(Child);

impl Shell {
    pub fn lock(gateway: &Gateway) -> Shell {
        let mut command = Command::new("sqlite3");
        command.arg("-cmd").arg(".timeout 10000").arg(gateway.path().join("bearward.db"));
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sqlite3 is installed");
        let input = shell.stdin.as_mut().expect("piped");
        input.write_all(b"begin exclusive;\nselect 'locked';\n").expect("it reads");
        let mut said = [0; 6];
        std::io::Read::read_exact(shell.stdout.as_mut().expect("piped"), &mut said).expect("it has the lock");
        assert_eq!(&said, b"locked");
        Shell(shell)
    }

    /// As when an operator closes the terminal.
    pub fn release(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is our child");
    }
}
