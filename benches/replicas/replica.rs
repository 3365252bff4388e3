//! One gateway of several on a database: its folder, its process, its calls.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bearward::types::secret::write_private;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Outcome;
use crate::client::{Connection, Response, Target};
use crate::postgres::ports::free_address;
use crate::tokens;

const START_TIMEOUT: Duration = Duration::from_secs(120);

pub struct Replica {
    folder: TempDir,
    process: Child,
    public: SocketAddr,
    admin: SocketAddr,
}

/// A keep-alive connection to one listener.
pub struct Caller {
    connection: Connection,
    token: String,
}

#[derive(Clone)]
pub struct TokenPair {
    pub token_id: String,
    pub access: String,
    pub refresh: String,
}

impl Replica {
    /// `store`: the keys of `[store]` that name the database.
    pub fn start(program: &Path, store: &str, upstream: SocketAddr) -> Outcome<Replica> {
        let folder = TempDir::new()?;
        let (public, admin) = (free_address(), free_address());
        let secret = format!("1 0{}\n", "a".repeat(42));
        write_private(&folder.path().join("bearward.secret"), secret.as_bytes())?;
        write_private(&folder.path().join("login.secret"), tokens::SECRET.as_bytes())?;
        fs::write(folder.path().join("gateway.toml"), configuration(store, public, admin, upstream))?;
        let process = spawn(program, folder.path())?;
        let mut replica = Replica { folder, process, public, admin };
        replica.wait_until_ready()?;
        Ok(replica)
    }

    /// Kills it, and starts it again. Returns how long it takes until it is ready.
    pub fn restart(&mut self, program: &Path) -> Outcome<Duration> {
        self.process.kill()?;
        self.process.wait()?;
        let began = Instant::now();
        self.process = spawn(program, self.folder.path())?;
        self.wait_until_ready()?;
        Ok(began.elapsed())
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("the gateway ended: {status}").into());
            }
            let ready = self.admin().and_then(|mut admin| admin.call("GET", "/readyz", None));
            if ready.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err("the gateway does not become ready".into());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.public
    }

    pub fn admin(&self) -> Outcome<Caller> {
        let token = fs::read_to_string(self.folder.path().join("admin.token"))?.trim().to_owned();
        Ok(Caller { connection: Connection::open(&Target::plain(self.admin))?, token })
    }

    /// Calls with this access token.
    pub fn public(&self, access: &str) -> Outcome<Caller> {
        Ok(Caller { connection: Connection::open(&Target::plain(self.public))?, token: access.to_owned() })
    }

    /// Resident memory in bytes: now, and the most that it was.
    pub fn memory(&self) -> Outcome<[u64; 2]> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let bytes = |field: &str| -> Outcome<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no resident memory")?;
            Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
        };
        Ok([bytes("VmRSS:")?, bytes("VmHWM:")?])
    }

    /// CPU time of the process, user and system.
    pub fn cpu_time(&self) -> Outcome<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no end of the name")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        // Linux counts in ticks of 10 ms.
        Ok(Duration::from_millis(10 * ticks.sum::<Result<u64, _>>()?))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Caller {
    /// The bearer token of its requests.
    pub fn token(&mut self) -> &mut String {
        &mut self.token
    }

    pub fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Outcome<Response> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        self.connection.exchange(request.as_bytes())
    }

    /// Fails unless the status is 200 or 201.
    pub fn succeed(&mut self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        let response = self.call(method, path, Some(body))?;
        match response.status {
            200 | 201 => Ok(serde_json::from_slice(&response.body)?),
            status => Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&response.body)).into()),
        }
    }

    /// A gauge or counter.
    pub fn metric(&mut self, name: &str) -> Outcome<f64> {
        let text = String::from_utf8(self.call("GET", "/metrics", None)?.body)?;
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        let line = line.ok_or_else(|| format!("no metric {name}"))?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    }

    pub fn login(&mut self, subject: &str) -> Outcome<TokenPair> {
        let body = self.succeed("POST", "/admin/v1/tokens", &json!({ "subject": subject }))?;
        pair(&body, text(&body, "tokenId")?)
    }

    pub fn refresh(&mut self, current: &TokenPair) -> Outcome<TokenPair> {
        current.access.clone_into(&mut self.token);
        let body = self.succeed("POST", "/user/refresh", &json!({ "refreshToken": current.refresh }))?;
        pair(&body, current.token_id.clone())
    }
}

/// A refresh names no `tokenId` by default: it is that of the pair before.
fn pair(body: &Value, token_id: String) -> Outcome<TokenPair> {
    Ok(TokenPair { token_id, access: text(body, "accessToken")?, refresh: text(body, "refreshToken")? })
}

fn text(body: &Value, member: &str) -> Outcome<String> {
    let text = body[member].as_str().ok_or_else(|| format!("no {member}"))?;
    Ok(text.to_owned())
}

fn spawn(program: &Path, folder: &Path) -> Outcome<Child> {
    let mut command = Command::new(program);
    // The delay of the disk is for the database alone.
    command.arg("serve").current_dir(folder).env_remove("LD_PRELOAD");
    Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

fn configuration(store: &str, public: SocketAddr, admin: SocketAddr, upstream: SocketAddr) -> String {
    let login = tokens::ISSUER;
    format!(
        "workers = 1\n\
         [[listener]]\naddress = \"{public}\"\ntls = \"off\"\n\
         [admin]\naddress = \"{admin}\"\nconnections_per_address = 0\nconnections = 10000\n\
         [limits]\nconnections_per_address = 0\n\
         [throttle]\nrefreshes = 0\ncalls = 0\nfailures = 0\n\
         [tokens]\nissuer = \"https://gateway.example\"\n\
         [store]\n{store}\n\
         [[issuer]]\nissuer = \"{login}\"\nalgorithms = [\"HS256\"]\nsecret_file = \"login.secret\"\naudience = \"any\"\n\
         [[upstream]]\nservers = [\"http://{upstream}\"]\n"
    )
}
