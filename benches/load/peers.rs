//! The proxies that an operator would pick instead, from Debian's packages, set up for the same work: one worker, the same
//! origin, the same certificate, and for those that can, the same tokens.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::client::{Connection, Target};
use crate::gateway::{Gateway, free_addresses, on_cores};

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Kind {
    /// Checks signature, `iss`, `aud` and `exp` on each request (`jwt_verify`)
    Haproxy,
    /// Cannot check tokens: the package has no module for it
    Nginx,
}

/// Killed when dropped.
pub struct Peer {
    pub kind: Kind,
    process: Child,
    plain: SocketAddr,
    encrypted: SocketAddr,
    output: PathBuf,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Haproxy => "haproxy",
            Kind::Nginx => "nginx",
        }
    }

    pub fn checks_tokens(self) -> bool {
        self == Kind::Haproxy
    }
}

impl Peer {
    /// Starts it beside the gateway, whose certificate and public key it uses.
    pub fn start(kind: Kind, gateway: &Gateway, cpus: Option<&str>, origin: SocketAddr) -> Outcome<Peer> {
        let [plain, encrypted, _] = free_addresses()?;
        let folder = gateway.folder();
        let text = match kind {
            Kind::Haproxy => haproxy(folder, plain, encrypted, origin)?,
            Kind::Nginx => nginx(folder, plain, encrypted, origin),
        };
        let configuration = folder.join(format!("{}.conf", kind.name()));
        fs::write(&configuration, text)?;
        let output = folder.join(format!("{}.log", kind.name()));
        let log = File::create(&output)?;
        let mut command = on_cores(Path::new(kind.name()), cpus);
        match kind {
            Kind::Haproxy => command.args(["-db", "-f"]).arg(&configuration),
            Kind::Nginx => command.arg("-p").arg(folder).arg("-c").arg(&configuration),
        };
        // Debian puts both where only root looks.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command
            .spawn()
            .map_err(|error| format!("cannot start {0}: {error}; `apt-get install {0}` brings it", kind.name()))?;
        let mut peer = Peer { kind, process, plain, encrypted, output };
        peer.wait_until_ready()?;
        Ok(peer)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn address(&self, tls: bool) -> SocketAddr {
        if tls { self.encrypted } else { self.plain }
    }

    fn wait_until_ready(&mut self) -> Outcome<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let target = Target::plain(self.plain);
        let request = b"GET /public/1k HTTP/1.1\r\nHost: localhost\r\n\r\n";
        while Instant::now() < deadline {
            let said = || fs::read_to_string(&self.output).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("{} ended at once ({status}):\n{}", self.kind.name(), said()).into());
            }
            let answer = Connection::open(&target).and_then(|mut connection| connection.exchange(request));
            if answer.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} was not ready after 20 s", self.kind.name()).into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Nothing is left to do if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn haproxy(folder: &Path, plain: SocketAddr, encrypted: SocketAddr, origin: SocketAddr) -> Outcome<String> {
    let read = |name| fs::read_to_string(folder.join(name));
    fs::write(folder.join("both.pem"), read("certificate.pem")? + &read("key.pem")?)?;
    // The public half of the gateway's signing key, as HAProxy reads keys.
    let mut openssl = Command::new("openssl");
    openssl.args(["pkey", "-in", "signing.pem", "-pubout", "-out", "public.pem"]).current_dir(folder);
    if !openssl.status()?.success() {
        return Err("openssl could not write the public key".into());
    }
    let folder = folder.display();
    Ok(format!(
        r#"
global
    nbthread 1
    maxconn 2000
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend clients
    bind {plain}
    bind {encrypted} ssl crt {folder}/both.pem alpn http/1.1
    acl public path_beg /public/
    http-request set-var(txn.bearer) http_auth_bearer unless public
    http-request set-var(txn.alg) var(txn.bearer),jwt_header_query('$.alg') unless public
    http-request set-var(txn.iss) var(txn.bearer),jwt_payload_query('$.iss') unless public
    http-request set-var(txn.aud) var(txn.bearer),jwt_payload_query('$.aud') unless public
    http-request set-var(txn.exp) var(txn.bearer),jwt_payload_query('$.exp','int') unless public
    http-request set-var(txn.now) date() unless public
    http-request deny deny_status 401 unless public || {{ var(txn.alg) -m str ES256 }}
    http-request deny deny_status 401 unless public || {{ var(txn.iss) -m str https://gateway.example }}
    http-request deny deny_status 401 unless public || {{ var(txn.aud) -m str https://api.example }}
    http-request deny deny_status 401 unless public || {{ var(txn.exp),sub(txn.now) -m int gt 0 }}
    http-request deny deny_status 401 unless public || {{ var(txn.bearer),jwt_verify(txn.alg,"{folder}/public.pem") 1 }}
    default_backend origin
backend origin
    server origin {origin}
"#
    ))
}

fn nginx(folder: &Path, plain: SocketAddr, encrypted: SocketAddr, origin: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        r#"
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream origin {{ server {origin}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen {plain};
        listen {encrypted} ssl;
        ssl_certificate {folder}/certificate.pem;
        ssl_certificate_key {folder}/key.pem;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
        }}
    }}
}}
"#
    )
}
