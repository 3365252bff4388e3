//! The gateway under test: its files in a folder of their own, its process, and what it tells.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde_json::Value;
use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Connection, Response, Target};
use crate::keys::{AUDIENCE, Keys, issuer};
use crate::revoked;
use crate::tls;
use bearward::tokens::jwt::Algorithm;

/// Killed and its files removed when dropped.
pub struct Gateway {
    folder: TempDir,
    process: Child,
    plain: SocketAddr,
    encrypted: SocketAddr,
    admin: SocketAddr,
    trusts_us: Arc<ClientConfig>,
}

/// How the gateway is started.
#[derive(Clone, Copy)]
pub struct Setup<'f> {
    pub program: &'f Path,
    pub keys: &'f Keys,
    /// `None`: on any.
    pub cpus: Option<&'f str>,
    pub origin: SocketAddr,
    /// 0: one on each core.
    pub workers: usize,
    /// `limits.connections_per_address`: every client here has the same.
    pub connections: usize,
    /// `limits.bad_signatures`
    pub bad_signatures: usize,
    /// Is `[throttle]` as shipped?
    pub throttled: bool,
    /// Live ones, which its store holds when it starts.
    pub revocations: u32,
    /// More of `[limits]`.
    pub limits: &'f str,
    /// More tables of its configuration.
    pub more: &'f str,
}

/// One login, as `POST /admin/v1/tokens` answers it.
pub struct Pair {
    pub access: String,
    pub refresh: String,
}

impl<'f> Setup<'f> {
    /// With the limits as shipped, but for connections: all of them come from one address here.
    pub fn shipped(program: &'f Path, keys: &'f Keys, origin: SocketAddr) -> Setup<'f> {
        Setup {
            program,
            keys,
            cpus: None,
            origin,
            workers: 0,
            connections: 0,
            bad_signatures: 100,
            throttled: true,
            revocations: 0,
            limits: "",
            more: "",
        }
    }
}

impl Gateway {
    /// Starts it in front of the origin and waits until it says that it is ready.
    pub fn start(setup: &Setup<'_>) -> Outcome<Gateway> {
        // Below target/, as /tmp may lie in memory, where a durable write costs nothing.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
        let [plain, encrypted, admin] = free_addresses()?;
        fs::write(folder.path().join("gateway.toml"), configuration(setup, plain, encrypted, admin))?;
        let (process, trusts_us) = (spawn(setup, folder.path())?, tls::usual(&setup.keys.roots));
        let mut gateway = Gateway { folder, process, plain, encrypted, admin, trusts_us };
        gateway.wait_until_ready()?;
        if setup.revocations > 0 {
            // The first start has made the store and its secret.
            gateway.process.kill()?;
            gateway.process.wait()?;
            revoked::fill(&gateway.folder.path().join("bearward.db"), setup.revocations)?;
            gateway.process = spawn(setup, gateway.folder.path())?;
            gateway.wait_until_ready()?;
        }
        let enforced = gateway.metric("bearward_revocation_sequence")?;
        if enforced != f64::from(setup.revocations) {
            return Err(format!("{} revocations were to be in force, not {enforced}", setup.revocations).into());
        }
        Ok(gateway)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn target(&self, tls: bool) -> Target {
        let (address, tls) = match tls {
            true => (self.encrypted, Some(Arc::clone(&self.trusts_us))),
            false => (self.plain, None),
        };
        Target { address, tls, from: None }
    }

    /// Where its store writes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Logins of as many subjects, got as a trusted backend gets them.
    pub fn log_in(&self, number: usize) -> Outcome<Vec<Pair>> {
        let secret = fs::read_to_string(self.folder.path().join("admin.token"))?;
        let mut connection = Connection::open(&Target::plain(self.admin))?;
        (1..=number)
            .map(|number| {
                let body = format!(r#"{{"sub":"u{number}","scope":"orders:read"}}"#);
                let request = format!(
                    "POST /admin/v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
                     Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    secret.trim(),
                    body.len()
                );
                match connection.exchange(request.as_bytes())? {
                    Response { status: 200 | 201, body } => Pair::read(&body),
                    Response { status, body } => {
                        Err(format!("POST /admin/v1/tokens: {status} {}", String::from_utf8_lossy(&body)).into())
                    }
                }
            })
            .collect()
    }

    /// One without labels.
    pub fn metric(&self, name: &str) -> Outcome<f64> {
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answer = Connection::open(&Target::plain(self.admin))?.exchange(request)?;
        let text = String::from_utf8(answer.body)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or_else(|| format!("no metric {name}"))?.parse()?)
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
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
        Err(format!("the gateway was not ready after 60 s:\n{}", self.output()).into())
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

fn spawn(setup: &Setup<'_>, folder: &Path) -> Outcome<Child> {
    let mut command = on_cores(setup.program, setup.cpus);
    let log = File::create(folder.join("output.log"))?;
    command.args(["serve", "--config"]).arg(folder.join("gateway.toml"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let failed = |error| format!("cannot start {}: {error}", setup.program.display());
    Ok(command.spawn().map_err(failed)?)
}

/// The program on these cores. taskset becomes the program: the process id stays.
pub fn on_cores(program: &Path, cpus: Option<&str>) -> Command {
    let Some(list) = cpus else { return Command::new(program) };
    let mut taskset = Command::new("taskset");
    taskset.args(["--cpu-list", list]).arg(program);
    taskset
}

fn configuration(setup: &Setup<'_>, plain: SocketAddr, encrypted: SocketAddr, admin: SocketAddr) -> String {
    let Setup { origin, workers, connections, bad_signatures, limits, more, .. } = setup;
    let keys = setup.keys.folder().display();
    let throttle = if setup.throttled { "" } else { "[throttle]\nrefreshes = 0\ncalls = 0\nfailures = 0" };
    let own = issuer(Algorithm::ES256);
    let issuers = [
        (Algorithm::RS256, "RS256", "jwks_file", "rs256.json"),
        (Algorithm::EdDSA, "EdDSA", "jwks_file", "eddsa.json"),
        (Algorithm::HS256, "HS256", "secret_file", "hs256.secret"),
    ];
    let issuers = issuers.map(|(algorithm, name, kind, file)| {
        let issuer = issuer(algorithm);
        format!(
            "[[issuer]]\nissuer = \"{issuer}\"\nalgorithms = [\"{name}\"]\n{kind} = \"{keys}/{file}\"\n\
             audience = [\"{AUDIENCE}\"]\n"
        )
    });
    let issuers = issuers.concat();
    format!(
        r#"
workers = {workers}

[[listener]]
address = "{plain}"
tls = "off"

[[listener]]
address = "{encrypted}"
tls = {{ certificate = "{keys}/certificate.pem", key = "{keys}/key.pem" }}

[admin]
address = "{admin}"
tls = "off"
token_file = "admin.token"

[store]
sqlite = "bearward.db"
secret_file = "bearward.secret"

[tokens]
issuer = "{own}"
audience = ["{AUDIENCE}"]
access_lifetime = "1h"
signing_key_file = "{keys}/es256.pem"

{issuers}
[[upstream]]
name = "origin"
servers = ["http://{origin}"]

[limits]
connections_per_address = {connections}
bad_signatures = {bad_signatures}
{limits}

[access_log]
file = "access.log"

[[route]]
path = "/public/"
upstream = "origin"
public = true

[[route]]
path = "/"
upstream = "origin"

{throttle}

{more}
"#
    )
}

/// Ports that were free a moment ago, each a different one.
pub fn free_addresses<const N: usize>() -> io::Result<[SocketAddr; N]> {
    let mut held = Vec::new();
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address)?;
        *address = listener.local_addr()?;
        held.push(listener);
    }
    Ok(addresses)
}

impl Pair {
    pub fn read(json: &[u8]) -> Outcome<Pair> {
        let answer: Value = serde_json::from_slice(json)?;
        match (answer["accessToken"].as_str(), answer["refreshToken"].as_str()) {
            (Some(access), Some(refresh)) => Ok(Pair { access: access.to_owned(), refresh: refresh.to_owned() }),
            _ => Err("the gateway's answer is no pair of tokens".into()),
        }
    }
}
