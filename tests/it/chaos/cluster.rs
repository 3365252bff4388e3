//! Gateways on one database, each behind a fault proxy of its own.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use bearward::tokens::jwt::Algorithm;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::fault_proxy::FaultProxy;
use super::load::Background;
use crate::support::postgres::PostgresServer;
use crate::support::program::{GatewayProcess, Program};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Client, TokenPair, Upstream, preload};

/// How long a client waits for a response.
const CLIENT_PATIENCE: Duration = Duration::from_secs(8);
/// `store.max_staleness` of the gateways.
pub(super) const MAX_STALENESS: Duration = Duration::from_secs(2);

pub(super) struct Replica {
    /// `None` while it is killed.
    process: Option<GatewayProcess>,
    pub(super) proxy: FaultProxy,
    folder: TempDir,
    addresses: (SocketAddr, SocketAddr),
    /// By how many seconds its system clock is ahead.
    ahead: i32,
}

pub(super) struct Cluster {
    pub(super) replicas: Vec<Replica>,
    pub(super) schema: String,
    /// Signs the tokens of another issuer.
    pub(super) mint: Mint,
    _upstream: Upstream,
}

impl Cluster {
    /// `store`: more keys of `[store]`.
    pub(super) fn start(server: &PostgresServer, replicas: usize, store: &str) -> Cluster {
        Self::start_with(server, &vec![0; replicas], store)
    }

    /// One replica for each number: by how many seconds its system clock is ahead.
    pub(super) fn start_with_clocks(server: &PostgresServer, clocks: &[i32]) -> Cluster {
        Self::start_with(server, clocks, "")
    }

    fn start_with(server: &PostgresServer, clocks: &[i32], store: &str) -> Cluster {
        let (schema, upstream, mint) = (server.schema(), Upstream::start(), Mint::new(Algorithm::ES256));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
        let start = |ahead: &i32| {
            let (folder, proxy) = (TempDir::new().expect("a folder"), FaultProxy::start(address));
            fs::write(folder.path().join("keys.json"), mint.jwks()).expect("written");
            let secret = folder.path().join("bearward.secret");
            fs::write(&secret, format!("1 0{}\n", "a".repeat(42))).expect("written");
            fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its owner");
            let text = configuration(upstream.address, proxy.address, &schema, store);
            fs::write(folder.path().join("gateway.toml"), text).expect("written");
            Replica::start(folder, proxy, *ahead)
        };
        let replicas = clocks.iter().map(start).collect();
        Cluster { replicas, schema, mint, _upstream: upstream }
    }

    /// Generations by token id, as the database has them.
    pub(super) fn generations(&self, server: &PostgresServer) -> HashMap<String, u64> {
        let rows = self.sql(server, "select id, generation from families");
        let row =
            |line: &str| line.split_once('|').map(|(id, number)| (id.to_owned(), number.parse().expect("a number")));
        rows.lines().filter_map(row).collect()
    }

    /// The sequences in the log of revocations.
    pub(super) fn log(&self, server: &PostgresServer) -> Vec<u64> {
        let rows = self.sql(server, "select sequence from revocations order by sequence");
        rows.lines().map(|line| line.parse().expect("a number")).collect()
    }

    fn sql(&self, server: &PostgresServer, query: &str) -> String {
        let query = format!("set search_path to {}; {query}", self.schema);
        server.sql(crate::support::postgres::USER, &query)
    }

    /// Waits until every replica is ready.
    pub(super) fn wait_until_ready(&self) {
        let background = Background::start();
        for replica in &self.replicas {
            let target = replica.target();
            background.run(async move { target.wait_until_ready().await });
        }
    }

    /// How often each replica found that the log in the database lacks entries.
    pub(super) fn forks(&self) -> Vec<f64> {
        let background = Background::start();
        let forks = |replica: &Replica| {
            let target = replica.target();
            background.run(async move { target.metric("bearward_store_forked_total").await })
        };
        self.replicas.iter().map(forks).collect()
    }

    /// The audit events of all replicas with this name.
    pub(super) fn audit_events(&self, name: &str) -> usize {
        let count = |replica: &Replica| {
            let text = fs::read_to_string(replica.folder.path().join("audit.jsonl")).unwrap_or_default();
            text.lines().filter(|line| line.contains(&format!("\"{name}\""))).count()
        };
        self.replicas.iter().map(count).sum()
    }

    /// The `jti` of the token of this number, and the token.
    pub(super) fn foreign_token(&self, number: usize) -> (String, String) {
        let (now, jti) = (unix_time(), format!("token-{number}"));
        let token = self.mint.with_claims(now, json!({ "jti": jti, "exp": now + 3000, "sub": "bob" }));
        (jti, token)
    }
}

fn serve(folder: &Path, ahead: i32) -> GatewayProcess {
    let line = format!("exec env LD_PRELOAD=./clock.so BEARWARD_CLOCK={ahead} \"$0\" serve");
    GatewayProcess::wait_for(Program::start_with_shell(folder, &line), folder)
}

fn unix_time() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

fn configuration(upstream: SocketAddr, database: SocketAddr, schema: &str, store: &str) -> String {
    let staleness = MAX_STALENESS.as_secs();
    format!(
        r#"
workers = 1
[[listener]]
address = "127.0.0.1:0"
tls = "off"
[admin]
address = "127.0.0.1:0"
connections_per_address = 0
[limits]
connections_per_address = 0
[throttle]
refreshes = 0
calls = 0
failures = 0
[tokens]
issuer = "https://gateway.example"
audience = ["{audience}"]
[store]
postgres = "postgres://bearward@{database}/bearward?sslmode=disable"
schema = "{schema}"
max_staleness = "{staleness}s"
{store}
[[issuer]]
issuer = "{EXTERNAL_ISSUER}"
algorithms = ["ES256"]
audience = "any"
jwks_file = "keys.json"
[[upstream]]
servers = ["http://{upstream}"]
"#,
        audience = crate::support::gateway::AUDIENCE,
    )
}

impl Replica {
    fn start(folder: TempDir, proxy: FaultProxy, ahead: i32) -> Replica {
        preload::compile("clock", folder.path());
        let process = serve(folder.path(), ahead);
        let addresses = (process.addresses[0], process.admin);
        // After a restart it listens at the same addresses, as behind a balancer.
        let file = folder.path().join("gateway.toml");
        let text = fs::read_to_string(&file).expect("written before");
        let text = text.replacen("127.0.0.1:0", &addresses.0.to_string(), 1);
        fs::write(file, text.replacen("127.0.0.1:0", &addresses.1.to_string(), 1)).expect("written");
        Replica { process: Some(process), proxy, folder, addresses, ahead }
    }

    fn program(&self) -> &Program {
        &self.process.as_ref().expect("it runs").program
    }

    pub(super) fn signal(&self, name: &str) {
        self.program().signal(name);
    }

    /// `kill -9`.
    pub(super) fn kill(&mut self) {
        self.process.take().expect("it runs").program.kill();
    }

    /// Returns when it listens again.
    pub(super) fn restart(&mut self) {
        self.process = Some(serve(self.folder.path(), self.ahead));
    }

    pub(super) fn target(&self) -> Target {
        let token = fs::read_to_string(self.folder.path().join("admin.token")).expect("written at the start");
        Target { public: self.addresses.0, admin: self.addresses.1, admin_token: token.trim().to_owned() }
    }
}

/// The addresses of a replica, for the tasks that send load. `None` as a response: there was none.
#[derive(Clone)]
pub(super) struct Target {
    public: SocketAddr,
    admin: SocketAddr,
    admin_token: String,
}

impl Target {
    /// The status of a request with this access token.
    pub(super) async fn get(&self, token: &str) -> Option<StatusCode> {
        self.send(self.public, Method::GET, "/", token, None).await.map(|(status, _)| status)
    }

    pub(super) async fn refresh(&self, pair: &TokenPair) -> Option<(StatusCode, Value)> {
        let body = json!({ "refreshToken": pair.refresh });
        self.send(self.public, Method::POST, "/user/refresh", &pair.access, Some(body)).await
    }

    pub(super) async fn login(&self, subject: &str) -> Result<TokenPair, String> {
        let login = json!({ "subject": subject, "scope": "a" });
        match self.call_admin(Method::POST, "/admin/v1/tokens", Some(login)).await {
            Some((StatusCode::CREATED, body)) => Ok(TokenPair::from_json(&body)),
            other => Err(format!("{other:?}")),
        }
    }

    pub(super) async fn revoke(&self, what: Value) -> Option<StatusCode> {
        self.call_admin(Method::POST, "/admin/v1/revocations", Some(what)).await.map(|(status, _)| status)
    }

    pub(super) async fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_ready().await {
            assert!(Instant::now() < deadline, "the replica does not become ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The value of a metric. Fails if there is none.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let text = Client::http1(self.admin).host("localhost").get("/metrics").await.text();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no metric {name}"))
    }

    async fn is_ready(&self) -> bool {
        self.call_admin(Method::GET, "/readyz", None).await.is_some_and(|(status, _)| status == StatusCode::OK)
    }

    async fn call_admin(&self, method: Method, path: &str, body: Option<Value>) -> Option<(StatusCode, Value)> {
        self.send(self.admin, method, path, &self.admin_token, body).await
    }

    async fn send(
        &self,
        address: SocketAddr,
        method: Method,
        path: &str,
        token: &str,
        body: Option<Value>,
    ) -> Option<(StatusCode, Value)> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        let request = request.header(AUTHORIZATION, format!("Bearer {token}")).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(body)).expect("a request");
        let response = timeout(CLIENT_PATIENCE, exchange(address, request)).await.ok()??;
        let (head, body) = response.into_parts();
        Some((head.status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// `None`: the replica is away, or its response is not complete.
async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Option<Response<Bytes>> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await.ok()?.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    connection.abort();
    Some(Response::from_parts(head, body))
}
