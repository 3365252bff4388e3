//! A real PgBouncer in front of a PostgreSQL server, in transaction mode.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::postgres::{PostgresServer, USER};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// PgBouncer does not run as root.
const UNPRIVILEGED: u32 = 65_534;

pub struct PgBouncer {
    process: Child,
    folder: TempDir,
    pub port: u16,
}

impl PgBouncer {
    /// `settings`: more lines of its configuration.
    pub fn start(server: &PostgresServer, settings: &str) -> PgBouncer {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        Self::start_at(server, settings, port)
    }

    pub fn start_at(server: &PostgresServer, settings: &str, port: u16) -> PgBouncer {
        let folder = TempDir::new().expect("a folder");
        let users = folder.path().join("users");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).expect("written");
        let text = format!(
            "[databases]\n{USER} = host=127.0.0.1 port={} dbname={USER}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             {settings}\n",
            server.port,
            users.display()
        );
        let file = folder.path().join("pgbouncer.ini");
        fs::write(&file, text).expect("written");
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let mut command = Command::new(if is_root { "setpriv" } else { "pgbouncer" });
        if is_root {
            for path in [folder.path(), &users, &file] {
                chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may do this");
            }
            command.args([format!("--reuid={UNPRIVILEGED}"), format!("--regid={UNPRIVILEGED}")]);
            command.args(["--clear-groups", "--pdeathsig=KILL", "pgbouncer"]);
        }
        let log = fs::File::create(folder.path().join("log")).expect("created");
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("pgbouncer is there: tests/run installs it");
        let bouncer = PgBouncer { process, folder, port };
        let (began, address) = (Instant::now(), SocketAddr::from(([127, 0, 0, 1], port)));
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < START_TIMEOUT, "pgbouncer does not start:\n{}", bouncer.log());
            thread::sleep(Duration::from_millis(20));
        }
        bouncer
    }

    /// For `store.postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{USER}?sslmode=disable", self.port)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
