//! The gateway under test: its folder, its process, its metrics.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustls::ClientConfig;
use serde_json::Value;
use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Connection, Response, Target};
use crate::keys::{AUDIENCE, Keys, issuer};
use crate::ports::free_address;
use crate::revoked;
use crate::tls;
use crate::watch::Watch;
use bearward::tokens::jwt::Algorithm;

/// How long the gateway may take to end by itself. All connections are closed by then.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A running gateway. Dropping it ends the process and removes its files.
pub struct Gateway {
    folder: TempDir,
    process: Child,
    plain: SocketAddr,
    encrypted: SocketAddr,
    admin: SocketAddr,
    client_tls: Arc<ClientConfig>,
}

/// How the gateway is started.
#[derive(Clone, Copy)]
pub struct Setup<'f> {
    pub program: &'f Path,
    pub keys: &'f Keys,
    /// Cores to run on; `None`: all.
    pub cpus: Option<&'f str>,
    pub origin: SocketAddr,
    /// 0: one worker per core.
    pub workers: usize,
    /// `limits.connections_per_address`. All clients of this bench have the same address.
    pub connections: usize,
    /// `limits.bad_signatures`
    pub bad_signatures: usize,
    /// If true, `[throttle]` has its defaults. If false, it is off.
    pub throttled: bool,
    /// Number of live revocations in the store when the gateway starts.
    pub revocations: u32,
    /// `access_log.file`
    pub access_log: &'f str,
    /// Further keys of `[limits]`.
    pub limits: &'f str,
    /// Further keys of `[admin]`.
    pub admin: &'f str,
    /// Further tables of the configuration.
    pub more: &'f str,
    /// Runs the program under another one, which leaves files in the folder.
    pub under: Option<Under>,
}

/// Returns the command that runs a program under another one, for this program and folder.
pub type Under = fn(&Path, &Path) -> Command;

/// The tokens of one session, from `POST /admin/v1/tokens` or `POST /user/refresh`.
pub struct TokenPair {
    pub access: String,
    pub refresh: String,
}

impl<'f> Setup<'f> {
    /// The default limits, except that one address may open any number of connections: all clients here have one
    /// address.
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
            access_log: "access.log",
            limits: "",
            admin: "",
            more: "",
            under: None,
        }
    }
}

impl Gateway {
    /// Starts the gateway and waits until `/readyz` returns 200.
    pub fn start(setup: &Setup<'_>) -> Outcome<Gateway> {
        // Below target/: /tmp may be in memory, where an fsync costs nothing.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
        let [plain, encrypted, admin] = std::array::from_fn(|_| free_address());
        fs::write(folder.path().join("gateway.toml"), configuration(setup, plain, encrypted, admin))?;
        let (process, client_tls) = (spawn(setup, folder.path())?, tls::default_client(&setup.keys.roots));
        let mut gateway = Gateway { folder, process, plain, encrypted, admin, client_tls };
        gateway.wait_until_ready()?;
        if setup.revocations > 0 {
            // The first start has created the store and its secret.
            gateway.process.kill()?;
            gateway.process.wait()?;
            revoked::fill(&gateway.folder.path().join("bearward.db"), setup.revocations)?;
            gateway.process = spawn(setup, gateway.folder.path())?;
            gateway.wait_until_ready()?;
        }
        if setup.under.is_some() {
            // GET /metrics reads the clock by the vDSO, which valgrind ends with SIGSEGV.
            return Ok(gateway);
        }
        let enforced = gateway.metric("bearward_revocation_sequence")?;
        if enforced != f64::from(setup.revocations) {
            return Err(format!("expected {} revocations in force, got {enforced}", setup.revocations).into());
        }
        Ok(gateway)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn target(&self, tls: bool) -> Target {
        let (address, tls) =
            if tls { (self.encrypted, Some(Arc::clone(&self.client_tls))) } else { (self.plain, None) };
        Target { address, tls, from: None }
    }

    /// The folder of the store.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Begins to watch the gateway, as operators do.
    #[allow(dead_code)]
    pub fn watch(&self) -> Outcome<Watch> {
        Watch::begin(self.admin, &self.admin_token()?)
    }

    fn admin_token(&self) -> Outcome<String> {
        Ok(fs::read_to_string(self.folder.path().join("admin.token"))?.trim().to_owned())
    }

    /// Starts one session for each of `number` subjects, through the admin API.
    pub fn log_in(&self, number: usize) -> Outcome<Vec<TokenPair>> {
        let token = self.admin_token()?;
        let mut connection = Connection::open(&Target::plain(self.admin))?;
        (1..=number)
            .map(|number| {
                let body = format!(r#"{{"sub":"u{number}","scope":"orders:read"}}"#);
                let request = format!(
                    "POST /admin/v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
                     Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                match connection.exchange(request.as_bytes())? {
                    Response { status: 200 | 201, body } => TokenPair::read(&body),
                    Response { status, body } => {
                        Err(format!("POST /admin/v1/tokens: {status} {}", String::from_utf8_lossy(&body)).into())
                    }
                }
            })
            .collect()
    }

    /// The value of a metric without labels.
    pub fn metric(&self, name: &str) -> Outcome<f64> {
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let response = Connection::open(&Target::plain(self.admin))?.exchange(request)?;
        let text = String::from_utf8(response.body)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or_else(|| format!("no metric {name}"))?.parse()?)
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let target = Target::plain(self.admin);
        let request = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the gateway exited at once ({status}):\n{}", self.output()).into());
            }
            let response = Connection::open(&target).and_then(|mut connection| connection.exchange(request));
            if response.is_ok_and(|response| response.status == 200) {
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
        // Not killed: at its end, a program that counts (`deploy/package/program`) writes what it counted. The number
        // of a process that has exited may belong to another one. Errors are ignored: it may exit just now.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(setup: &Setup<'_>, folder: &Path) -> Outcome<Child> {
    let mut command = match setup.under {
        Some(under) => under(setup.program, folder),
        None => on_cores(setup.program, setup.cpus),
    };
    let log = File::create(folder.join("output.log"))?;
    command.args(["serve", "--config"]).arg(folder.join("gateway.toml"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let failed = |error| format!("cannot start {}: {error}", setup.program.display());
    Ok(command.spawn().map_err(failed)?)
}

/// Runs the program on these cores. taskset replaces itself with the program, so the process id stays the same.
pub fn on_cores(program: &Path, cpus: Option<&str>) -> Command {
    let Some(list) = cpus else { return Command::new(program) };
    let mut taskset = Command::new("taskset");
    taskset.args(["--cpu-list", list]).arg(program);
    taskset
}

fn configuration(setup: &Setup<'_>, plain: SocketAddr, encrypted: SocketAddr, admin: SocketAddr) -> String {
    let Setup { origin, workers, connections, bad_signatures, limits, admin: operators, more, access_log, .. } = setup;
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
{operators}

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

# For the proofs of clients.
[https]
hosts = ["localhost"]

[access_log]
file = "{access_log}"

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

impl TokenPair {
    pub fn read(json: &[u8]) -> Outcome<TokenPair> {
        let response: Value = serde_json::from_slice(json)?;
        match (response["accessToken"].as_str(), response["refreshToken"].as_str()) {
            (Some(access), Some(refresh)) => Ok(TokenPair { access: access.to_owned(), refresh: refresh.to_owned() }),
            _ => Err("the gateway's response contains no pair of tokens".into()),
        }
    }
}
