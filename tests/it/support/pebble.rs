//! Pebble, the ACME server of Let's Encrypt for tests, with the DNS server that belongs to it: every name leads to this
//! machine.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::certificates::Authority;
use super::ports::{free_address, free_port};

/// Processes that end when this is dropped. Like every authority, Pebble rejects one nonce in twenty.
pub struct Pebble {
    pub address: SocketAddr,
    /// Signs the certificate of Pebble's own listener, for `localhost`.
    pub authority: Authority,
    processes: Vec<Child>,
    _folder: TempDir,
}

impl Pebble {
    /// Starts it. It validates names at `tls_port` of this machine.
    pub fn start(tls_port: u16) -> Pebble {
        let (folder, authority) = (TempDir::new().expect("a folder"), Authority::new());
        authority.sign("localhost").write(folder.path(), "pebble");
        let file = |name: &str| folder.path().join(name).display().to_string();
        let (address, dns) = (free_address(), free_address());
        let configuration = json!({ "pebble": {
            "listenAddress": address.to_string(), "managementListenAddress": free_address().to_string(),
            "certificate": file("pebble.pem"), "privateKey": file("pebble.key"),
            "httpPort": free_port(), "tlsPort": tls_port,
            "ocspResponderURL": "", "externalAccountBindingRequired": false,
        }});
        std::fs::write(folder.path().join("pebble.json"), configuration.to_string()).expect("written");
        let mut names = Command::new("pebble-challtestsrv");
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        names.args(["-dns01", &dns.to_string(), "-management", &free_address().to_string()]);
        let mut server = Command::new("pebble");
        server.args(["-config", &file("pebble.json"), "-dnsserver", &dns.to_string(), "-strict"]);
        // Each order validates its names again.
        server.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        let processes = [names, server].map(|command| spawn(command, folder.path())).into();
        let mut pebble = Pebble { address, authority, processes, _folder: folder };
        pebble.wait_until_ready();
        pebble
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(self.address).is_err() {
            for process in &mut self.processes {
                assert!(process.try_wait().expect("our child").is_none(), "Pebble ended: see its output");
            }
            assert!(Instant::now() < deadline, "Pebble does not listen");
            // Polls: it does not report when it listens.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn spawn(mut command: Command, folder: &Path) -> Child {
    command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("pebble: tests/run installs it")
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
