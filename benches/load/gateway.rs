//! The gateway under test: its files in a folder of their own, its process, and tokens from it.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bearward::token::Algorithm;
use bearward::token::sign::generate_pem;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Connection, Response, Target};

/// Killed and its files removed when dropped.
pub struct Gateway {
    program: PathBuf,
    folder: TempDir,
    process: Child,
    plain: SocketAddr,
    encrypted: SocketAddr,
    admin: SocketAddr,
    trusts_us: Arc<ClientConfig>,
}

/// How the gateway is started.
pub struct Setup<'f> {
    pub program: &'f Path,
    /// `None`: on any.
    pub cpus: Option<&'f str>,
    pub origin: SocketAddr,
    /// 0: one on each core.
    pub workers: usize,
    /// `limits.connections_per_address`: every client here has the same.
    pub connections: usize,
    /// More tables of its configuration.
    pub more: &'f str,
}

impl Gateway {
    /// Starts it in front of the origin and waits until it says that it is ready.
    pub fn start(setup: &Setup<'_>) -> Outcome<Gateway> {
        let folder = tempfile::tempdir()?;
        let trusts_us = write_certificate(folder.path())?;
        let [plain, encrypted, admin] = free_addresses()?;
        // A key of its own, as peers check the same tokens.
        fs::write(folder.path().join("signing.pem"), generate_pem(Algorithm::ES256)?.expose())?;
        fs::write(folder.path().join("gateway.toml"), configuration(setup, plain, encrypted, admin))?;

        let mut command = on_cores(setup.program, setup.cpus);
        let log = File::create(folder.path().join("output.log"))?;
        let process = command
            .args(["serve", "--config"])
            .arg(folder.path().join("gateway.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
        let program = setup.program.to_owned();
        let mut gateway = Gateway { program, folder, process, plain, encrypted, admin, trusts_us };
        gateway.wait_until_ready()?;
        Ok(gateway)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn target(&self, tls: bool) -> Target {
        if tls {
            Target { address: self.encrypted, tls: Some(Arc::clone(&self.trusts_us)), from: None }
        } else {
            Target::plain(self.plain)
        }
    }

    /// Its files: the certificate and the signing key among them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One access token, got as an operator gets it.
    pub fn issue_by_command(&self) -> Outcome<String> {
        let output = Command::new(&self.program)
            .args(["token", "issue", "--subject", "alice", "--scope", "orders:read", "--json", "--config"])
            .arg(self.folder.path().join("gateway.toml"))
            .output()?;
        if !output.status.success() {
            return Err(format!("`bearward token issue` failed: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        access_token(&output.stdout)
    }

    /// Access tokens of as many subjects, got as a trusted backend gets them.
    pub fn issue_many(&self, number: usize) -> Outcome<Vec<String>> {
        let secret = fs::read_to_string(self.folder.path().join("admin.token"))?;
        let mut connection = Connection::open(&Target::plain(self.admin))?;
        (1..=number)
            .map(|number| {
                let body = format!(r#"{{"sub":"u{number}"}}"#);
                let request = format!(
                    "POST /admin/v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
                     Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    secret.trim(),
                    body.len()
                );
                match connection.exchange(request.as_bytes())? {
                    Response { status: 200 | 201, body } => access_token(&body),
                    Response { status, body } => {
                        Err(format!("POST /admin/v1/tokens: {status} {}", String::from_utf8_lossy(&body)).into())
                    }
                }
            })
            .collect()
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let target = Target::plain(self.admin);
        let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the gateway ended at once ({status}):\n{}", self.output()).into());
            }
            let answer = Connection::open(&target).and_then(|mut connection| connection.exchange(request));
            if answer.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the gateway was not ready after 20 s:\n{}", self.output()).into())
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Nothing is left to do if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program on these cores. taskset becomes the program: the process id stays.
pub fn on_cores(program: &Path, cpus: Option<&str>) -> Command {
    let Some(list) = cpus else { return Command::new(program) };
    let mut taskset = Command::new("taskset");
    taskset.args(["--cpu-list", list]).arg(program);
    taskset
}

fn configuration(setup: &Setup<'_>, plain: SocketAddr, encrypted: SocketAddr, admin: SocketAddr) -> String {
    let Setup { origin, workers, connections, more, .. } = setup;
    format!(
        r#"
workers = {workers}

[[listener]]
address = "{plain}"
tls = "off"

[[listener]]
address = "{encrypted}"
tls = {{ certificate = "certificate.pem", key = "key.pem" }}

[admin]
address = "{admin}"
tls = "off"
token_file = "admin.token"

[store]
sqlite = "bearward.db"
secret_file = "bearward.secret"

[tokens]
issuer = "https://gateway.example"
audience = ["https://api.example"]
access_lifetime = "1h"
signing_key_file = "signing.pem"

[[upstream]]
name = "origin"
servers = ["http://{origin}"]

[limits]
connections = 100000
connections_per_address = {connections}

[access_log]
file = "access.log"

[[route]]
path = "/public/"
upstream = "origin"
public = true

[[route]]
path = "/"
upstream = "origin"

{more}
"#
    )
}

/// A certificate for `localhost` in `folder`, and a client that trusts it.
fn write_certificate(folder: &Path) -> Outcome<Arc<ClientConfig>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(folder.join("certificate.pem"), made.cert.pem())?;
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem())?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Every handshake is a full one.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Ports that were free a moment ago, each a different one.
pub fn free_addresses() -> io::Result<[SocketAddr; 3]> {
    let held =
        [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([held[0].local_addr()?, held[1].local_addr()?, held[2].local_addr()?])
}

fn access_token(json: &[u8]) -> Outcome<String> {
    let answer: Value = serde_json::from_slice(json)?;
    match answer["accessToken"].as_str() {
        Some(token) => Ok(token.to_owned()),
        None => Err("the gateway's answer has no accessToken".into()),
    }
}
