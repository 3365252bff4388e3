//! A real HAProxy.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Debian installs it in a folder that is not in every PATH.
const PROGRAM: &str = "/usr/sbin/haproxy";

/// A process that ends when this is dropped.
pub struct Haproxy(Child);

impl Haproxy {
    /// Starts HAProxy with this configuration, and waits until it listens at these addresses.
    pub fn start(folder: &Path, configuration: &str, addresses: &[SocketAddr]) -> Haproxy {
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, configuration).expect("written");
        let program = if Path::new(PROGRAM).exists() { PROGRAM } else { "haproxy" };
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(&file).stdout(Stdio::null());
        let mut haproxy = Haproxy(command.spawn().expect("haproxy: tests/run installs it"));
        let deadline = Instant::now() + Duration::from_secs(30);
        for address in addresses {
            while std::net::TcpStream::connect(address).is_err() {
                assert!(haproxy.0.try_wait().expect("our child").is_none(), "HAProxy ended: see its output");
                assert!(Instant::now() < deadline, "HAProxy does not listen");
                // Polls: HAProxy does not report when it listens.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
