//! The real binary, in a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use super::gateway::Gateway;
use super::wire::PATIENCE;

pub struct Process {
    child: Child,
    pub addresses: Vec<SocketAddr>,
    pub admin_address: SocketAddr,
    pub folder: TempDir,
}

impl Process {
    /// `bearward serve`, which asks nobody for a token. Returns when it listens.
    pub fn serve(upstream: SocketAddr, more: &str) -> Process {
        let folder = TempDir::new().expect("a temporary folder");
        let file = folder.path().join("gateway.toml");
        let public = "[[route]]\npath = \"/\"\npublic = true\n";
        std::fs::write(&file, Gateway::text(&upstream.to_string(), &format!("{more}\n{public}"))).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bearward"));
        command.arg("serve").arg("--config").arg(&file).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
        let mut addresses = Vec::new();
        loop {
            let line = lines.next().expect("it listens before it ends").expect("text");
            let Some((said, address)) = line.split_once("listening address=") else { continue };
            let address = address.trim().parse().expect("an address");
            if said.ends_with("admin ") {
                // Somebody has to read what it says from now on, or it would stop at a full pipe.
                std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
                return Process { child, addresses, admin_address: address, folder };
            }
            addresses.push(address);
        }
    }

    /// Cleartext.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// The most memory it ever had, in bytes.
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line about memory");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    pub fn terminate(&self) {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status();
        assert!(killed.expect("kill is installed").success());
    }

    /// How it ended, as it must.
    pub fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it has ended, which is all that is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
