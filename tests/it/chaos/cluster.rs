//! Gateways on one database, each behind a fault proxy of its own.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use serde_json::json;
use tempfile::TempDir;

use super::fault_proxy::FaultProxy;
use super::load::{Background, HONEST};
use super::network::Network;
use super::target::Target;
use crate::support::postgres::{self, PostgresServer};
use crate::support::program::{GatewayProcess, Program};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Upstream, preload};

/// `store.max_staleness` of the gateways.
pub(super) const MAX_STALENESS: Duration = Duration::from_secs(2);

/// What differs from three gateways with right clocks on one machine.
#[derive(Clone, Copy)]
pub(super) struct Setup<'a> {
    /// One replica for each number: by how many seconds its system clock is ahead.
    pub(super) clocks: &'a [i32],
    /// More keys of `[store]`.
    pub(super) store: &'a str,
    /// More keys of `[tokens]`.
    pub(super) tokens: &'a str,
    /// `store.max_staleness`
    pub(super) max_staleness: Duration,
    /// The port of a pooler in front of the database.
    pub(super) pooler: Option<u16>,
    /// The first replica is in a network of its own.
    pub(super) has_network: bool,
    /// Gets the audit events instead of a file, at a path that is the number of the replica.
    pub(super) collector: Option<SocketAddr>,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup {
            clocks: &[0, 0, 0],
            store: "",
            tokens: "",
            max_staleness: MAX_STALENESS,
            pooler: None,
            has_network: false,
            collector: None,
        }
    }
}

/// What the gateways share.
pub(super) trait Database {
    /// With several, the gateways use them directly. With one, through their fault proxies.
    fn servers(&self) -> Vec<SocketAddr>;

    /// A schema for one cluster.
    fn schema(&self) -> String;

    /// Runs SQL at the primary, as the superuser.
    fn sql(&self, database: &str, sql: &str) -> String;
}

impl Database for PostgresServer {
    fn servers(&self) -> Vec<SocketAddr> {
        vec![SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))]
    }

    fn schema(&self) -> String {
        PostgresServer::schema(self)
    }

    fn sql(&self, database: &str, sql: &str) -> String {
        PostgresServer::sql(self, database, sql)
    }
}

pub(super) struct Replica {
    /// `None` while it is killed.
    process: Option<GatewayProcess>,
    /// Between it and the database.
    pub(super) proxy: FaultProxy,
    pub(super) network: Option<Network>,
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
    pub(super) fn start(server: &impl Database, setup: Setup<'_>) -> Cluster {
        Self::start_in(server, &server.schema(), setup)
    }

    pub(super) fn start_in(server: &impl Database, schema: &str, setup: Setup<'_>) -> Cluster {
        let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::ES256));
        let servers = server.servers();
        let database = setup.pooler.map_or(servers[0], |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let start = |(number, ahead): (usize, &i32)| {
            let mut network = (setup.has_network && number == 0).then(Network::create);
            let (folder, proxy) =
                (TempDir::new().expect("a folder"), FaultProxy::start_at(near(&network), database, true));
            fs::write(folder.path().join("keys.json"), mint.jwks()).expect("written");
            write_secret(folder.path(), 'a');
            let (own, backend) = match &mut network {
                // Its loopback device is another one.
                Some(network) => (network.own, network.reach(upstream.address)),
                None => (Ipv4Addr::LOCALHOST, upstream.address),
            };
            let used = if servers.len() == 1 { vec![proxy.address] } else { servers.clone() };
            let text = configuration((own, backend, &used), schema, &setup);
            let audit = setup.collector.map(|address| format!("[audit]\nwebhook = \"http://{address}/{number}\"\n"));
            let text = text + &audit.unwrap_or_default();
            fs::write(folder.path().join("gateway.toml"), text).expect("written");
            Replica::start(folder, proxy, network, *ahead)
        };
        let replicas = setup.clocks.iter().enumerate().map(start).collect();
        Cluster { replicas, schema: schema.to_owned(), mint, _upstream: upstream }
    }

    /// Generations by token id of the honest clients, as the database has them.
    pub(super) fn generations(&self, server: &impl Database) -> HashMap<String, u64> {
        let rows = self.sql(server, &format!("select id, generation from families where subject like '{HONEST}%'"));
        let row =
            |line: &str| line.split_once('|').map(|(id, number)| (id.to_owned(), number.parse().expect("a number")));
        rows.lines().filter_map(row).collect()
    }

    /// The sequences in the log of revocations.
    pub(super) fn log(&self, server: &impl Database) -> Vec<u64> {
        let rows = self.sql(server, "select sequence from revocations order by sequence");
        rows.lines().map(|line| line.parse().expect("a number")).collect()
    }

    pub(super) fn sql(&self, server: &impl Database, query: &str) -> String {
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
            replica.audit_log().lines().filter(|line| line.contains(&format!("\"{name}\""))).count()
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

/// The side of the gateway on which the test listens.
fn near(network: &Option<Network>) -> Ipv4Addr {
    network.as_ref().map_or(Ipv4Addr::LOCALHOST, |network| network.database)
}

/// The same root secret for the same letter.
pub(super) fn write_secret(folder: &Path, letter: char) {
    let secret = folder.join("bearward.secret");
    fs::write(&secret, format!("1 0{}\n", String::from(letter).repeat(42))).expect("written");
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its owner");
}

fn unix_time() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

fn configuration(addresses: (Ipv4Addr, SocketAddr, &[SocketAddr]), schema: &str, setup: &Setup<'_>) -> String {
    let (own, upstream, servers) = addresses;
    let database = servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",");
    let Setup { store, tokens, max_staleness, .. } = setup;
    let staleness = max_staleness.as_secs();
    format!(
        r#"
workers = 1
[[listener]]
address = "{own}:0"
tls = "off"
[admin]
address = "{own}:0"
tls = "off"
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
{tokens}
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
    fn start(folder: TempDir, proxy: FaultProxy, network: Option<Network>, ahead: i32) -> Replica {
        preload::compile("clock", folder.path());
        fs::write(folder.path().join("clock.millis"), 0_i64.to_ne_bytes()).expect("written");
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut replica = Replica { process: None, proxy, network, folder, addresses: (nowhere, nowhere), ahead };
        replica.restart();
        let started = replica.process.as_ref().expect("it runs");
        let (public, admin) = (started.addresses[0], started.admin);
        replica.addresses = (public, admin);
        // After a restart it listens at the same addresses, as behind a balancer.
        let file = replica.folder.path().join("gateway.toml");
        let mut text = fs::read_to_string(&file).expect("written before");
        for address in [public, admin] {
            text = text.replacen(&format!("\"{}:0\"", address.ip()), &format!("\"{address}\""), 1);
        }
        fs::write(file, text).expect("written");
        replica
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
        self.process = Some(GatewayProcess::wait_for(self.start_program(), self.folder.path()));
    }

    /// Starts the program, and does not wait for it.
    pub(super) fn start_program(&self) -> Program {
        let within = self.network.as_ref().map_or(String::new(), |network| network.command());
        let ahead = self.ahead;
        let clock = format!("LD_PRELOAD=./clock.so BEARWARD_CLOCK={ahead} BEARWARD_CLOCK_FILE=./clock.millis");
        let line = format!("exec {within} env {clock} \"$0\" serve");
        Program::start_with_shell(self.folder.path(), &line)
    }

    /// Ends it as an operator does, and waits until it has ended.
    pub(super) fn stop(&mut self) {
        let process = self.process.take().expect("it runs");
        process.program.signal("TERM");
        let (status, _, said) = process.program.wait();
        assert!(status.success(), "{said}");
    }

    /// Sets its system clock by this number of milliseconds ahead of the right time.
    pub(super) fn set_clock(&self, millis: i64) {
        postgres::set_clock(self.folder.path(), millis);
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The audit events that this replica has delivered.
    pub(super) fn audit_log(&self) -> String {
        fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap_or_default()
    }

    pub(super) fn target(&self) -> Target {
        let token = fs::read_to_string(self.folder.path().join("admin.token")).expect("written at the start");
        Target { public: self.addresses.0, admin: self.addresses.1, admin_token: token.trim().to_owned() }
    }
}
