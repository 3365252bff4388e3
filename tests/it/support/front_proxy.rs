//! A server of others: a proxy in front of a backend, which asks the gateway about each request (nginx, Traefik, Caddy,
//! Envoy), or one that is compared with the gateway (Apache).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::source;

/// A process that ends when this is dropped.
pub struct FrontProxy(Child);

impl FrontProxy {
    /// Starts a program in this folder, and waits until it listens.
    pub fn start(program: &Path, arguments: &[&str], folder: &Path, address: SocketAddr) -> FrontProxy {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).env("HOME", folder).env("XDG_DATA_HOME", folder);
        let log = std::fs::File::create(folder.join("proxy.log")).expect("created");
        command.stdout(log.try_clone().expect("a second handle")).stderr(log).stdin(Stdio::null());
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}; tests/run installs it", program.display()));
        let mut proxy = FrontProxy(child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(address).is_err() {
            let log = || std::fs::read_to_string(folder.join("proxy.log")).unwrap_or_default();
            assert!(proxy.0.try_wait().expect("our child").is_none(), "{} ended: {}", program.display(), log());
            assert!(Instant::now() < deadline, "{} does not listen: {}", program.display(), log());
            // Polls: the programs report in different ways when they listen.
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    /// `kill -9`
    pub fn kill(&mut self) {
        self.0.kill().expect("our child");
        let _ = self.0.wait();
    }
}

impl Drop for FrontProxy {
    fn drop(&mut self) {
        // nginx ends its workers on SIGTERM and not on SIGKILL.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Debian installs it in a folder that is not in every PATH.
pub fn nginx() -> PathBuf {
    let installed = PathBuf::from("/usr/sbin/nginx");
    if installed.exists() { installed } else { "nginx".into() }
}

/// As [`nginx`].
pub fn apache() -> PathBuf {
    let installed = PathBuf::from("/usr/sbin/apache2");
    if installed.exists() { installed } else { "apache2".into() }
}

/// A program that tests/run has installed with pip.
pub fn installed(name: &str) -> PathBuf {
    source::root().join("target/proxies").join(name)
}
