//! PgBouncer in transaction mode: each statement may run on another connection.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::ports::free_port;
use super::postgres::{PostgresServer, USER, command};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Makes a pooler usable that passes no settings on.
pub const IGNORES_SETTINGS: &str = "ignore_startup_parameters = options,extra_float_digits";

/// Dropping it ends it.
pub struct Pooler {
    child: Child,
    log: PathBuf,
    pub port: u16,
}

impl Pooler {
    /// For the sessions of the gateway in this schema.
    pub fn start(server: &PostgresServer, schema: &str) -> Pooler {
        Self::set_role(server, schema);
        Self::start_with(server, IGNORES_SETTINGS, free_port())
    }

    /// A pooler ignores what a client asks for at the start of a session, so that the role gets it, as
    /// `deploy/replicas.md` says.
    pub fn set_role(server: &PostgresServer, schema: &str) {
        for setting in [
            format!("search_path = {schema}"),
            "statement_timeout = '4s'".to_owned(),
            "lock_timeout = '2s'".to_owned(),
            "idle_in_transaction_session_timeout = '2s'".to_owned(),
        ] {
            server.sql("postgres", &format!("alter role {USER} set {setting}"));
        }
    }

    /// `settings`: more lines of its configuration.
    pub fn start_with(server: &PostgresServer, settings: &str, port: u16) -> Pooler {
        let file = |name: &str| server.folder.join(format!("pgbouncer.{port}.{name}"));
        let (users, log) = (file("users"), file("log"));
        fs::write(&users, format!("\"{USER}\" \"\"\n")).expect("written");
        let text = format!(
            "[databases]\n{USER} = host=127.0.0.1 port={} dbname={USER}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 10\nmax_client_conn = 200\n{settings}\n",
            server.port,
            users.display(),
        );
        fs::write(file("ini"), text).expect("written");
        let mut pooler = command("/usr/sbin/pgbouncer");
        let output = fs::File::create(&log).expect("created");
        let child = pooler.arg(file("ini")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn();
        let pooler = Pooler { child: child.expect("pgbouncer is there: tests/run installs it"), log, port };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "pgbouncer does not start:\n{}", pooler.log());
            thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// For `store.postgres`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{USER}?sslmode=disable", self.port)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
