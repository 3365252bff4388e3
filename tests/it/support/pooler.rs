//! PgBouncer in transaction mode: each statement may run on another connection.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::postgres::{PostgresServer, USER, command, free_port};

const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Dropping it ends it.
pub struct Pooler {
    child: Child,
    pub port: u16,
}

impl Pooler {
    /// For gateways with this schema. A pooler ignores the settings that a client asks for at the start of a session.
    /// The role gets them here.
    pub fn start(server: &PostgresServer, schema: &str) -> Pooler {
        for setting in [
            format!("search_path = {schema}"),
            "statement_timeout = '4s'".to_owned(),
            "lock_timeout = '2s'".to_owned(),
            "idle_in_transaction_session_timeout = '2s'".to_owned(),
        ] {
            server.sql("postgres", &format!("alter role {USER} set {setting}"));
        }
        let port = free_port();
        let users = server.folder.join("pgbouncer.users");
        fs::write(&users, format!("\"{USER}\" \"\"\n")).expect("written");
        let text = format!(
            "[databases]\n{USER} = host=127.0.0.1 port={} dbname={USER}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 10\nmax_client_conn = 200\n\
             ignore_startup_parameters = options,extra_float_digits\n",
            server.port,
            users.display(),
        );
        let file = server.folder.join("pgbouncer.ini");
        fs::write(&file, text).expect("written");
        let mut pooler = command("/usr/sbin/pgbouncer");
        let log = fs::File::create(server.folder.join("pgbouncer.log")).expect("created");
        let child = pooler.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let pooler = Pooler { child: child.expect("pgbouncer is there: tests/run installs it"), port };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(server.folder.join("pgbouncer.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "pgbouncer does not start:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
