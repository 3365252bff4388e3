//! A running proxy of others.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Connection, Target};
use crate::gateway::on_cores;

/// Dropping it kills the process and removes its files.
pub struct Program {
    process: Child,
    folder: TempDir,
    pub address: SocketAddr,
}

impl Program {
    /// Starts a program that listens at `address`, and waits until it responds to a request for `path`, if only with
    /// 401. `folder`: its working directory.
    pub fn start(
        name: &Path,
        arguments: &[&str],
        folder: TempDir,
        cpus: Option<&str>,
        address: SocketAddr,
        path: &str,
    ) -> Outcome<Program> {
        let log = File::create(folder.path().join("output.log"))?;
        let mut command = on_cores(name, cpus);
        command.args(arguments).current_dir(folder.path()).env("PATH", search_path());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().map_err(|error| format!("cannot start {}: {error}", name.display()))?;
        let mut program = Program { process, folder, address };
        program.wait_until_ready(path)?;
        Ok(program)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_ready(&mut self, path: &str) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let target = Target::plain(self.address);
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        while Instant::now() < deadline {
            let output = || fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("it exited at once ({status}): {}", output().trim()).into());
            }
            let response = Connection::open(&target).and_then(|mut connection| connection.exchange(request.as_bytes()));
            if response.is_ok_and(|response| response.status <= 401) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err("not ready after 20 s".into())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Ignored: the process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Debian installs servers in /usr/sbin, which is not in the PATH of ordinary users.
fn search_path() -> String {
    format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Returns true if a program of this name is installed.
pub fn is_installed(name: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(name).exists())
}
