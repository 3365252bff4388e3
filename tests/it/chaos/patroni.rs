//! PostgreSQL as people run it: two servers with an agent of Patroni each, and three members of etcd.
//!
//! Each of the three machines is a network namespace, with a cable to one more that routes. The gateways are outside.
//! Only root may create them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::slice;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::Database;
use super::network::ip;
use crate::support::postgres::{USER, as_user, binary, command, new_folder, own, processes_in};

/// How long Patroni may take for a change.
const PATIENCE: Duration = Duration::from_secs(120);
const POSTGRES: u16 = 5432;

/// Ends all processes of these namespaces when standard input ends, also after `kill -9` of the tests. Again, because
/// an agent starts others. `$0`: a folder to remove.
const KEEPER: &str = r#"
cat >/dev/null
for _ in 1 2 3; do
    for name in "$@"; do ip netns pids "$name" | xargs --no-run-if-empty kill -KILL 2>/dev/null; done
done
for name in "$@"; do ip netns del "$name"; done
rm -rf "$0"
"#;

struct Machine {
    /// Of its namespace and of its members of Patroni and etcd.
    name: String,
    address: Ipv4Addr,
    folder: PathBuf,
    etcd: Option<Child>,
    agent: Option<Child>,
}

pub(super) struct Patroni {
    /// The first two have a server and its agent, all have a member of etcd.
    machines: [Machine; 3],
    router: String,
    keeper: Child,
}

impl Patroni {
    /// Returns when there are a primary and a synchronous standby. Everything else is as Patroni has it by default.
    pub(super) fn start() -> Patroni {
        let (machines, router, folder) = cable();
        let mut keeper = Command::new("bash");
        keeper.args(["-c", KEEPER]).arg(&folder).args(machines.iter().map(|machine| &machine.name)).arg(&router);
        let keeper = keeper.stdin(Stdio::piped()).spawn().expect("bash is there");
        let mut patroni = Patroni { machines, router, keeper };
        patroni.configure();
        for number in 0..3 {
            patroni.start_etcd(number);
        }
        // The first one creates the database.
        patroni.start_agent(0);
        patroni.wait_for("a primary", |members| members.iter().any(is_primary));
        patroni.start_agent(1);
        patroni.wait_until_redundant();
        patroni.sql("postgres", &format!("create role {USER} login"));
        let create = format!("create database {USER} owner {USER} encoding 'UTF8' template template0");
        patroni.sql("postgres", &create);
        patroni
    }

    fn configure(&self) {
        let members: Vec<String> = self.machines.iter().map(|machine| format!("{}:2379", machine.address)).collect();
        let programs = binary("postgres").parent().expect("a folder").display().to_string();
        for machine in &self.machines[..2] {
            let Machine { name, address, folder, .. } = machine;
            let login = |name: &str| json!({ "username": name, "password": "secret" });
            let configuration = json!({
                "scope": "bearward",
                "name": name,
                "restapi": { "listen": format!("{address}:8008"), "connect_address": format!("{address}:8008") },
                "etcd3": { "hosts": members },
                "bootstrap": {
                    "dcs": { "synchronous_mode": true, "postgresql": { "use_pg_rewind": true } },
                    "initdb": [{ "encoding": "UTF8" }, { "locale": "C" }],
                },
                "postgresql": {
                    "listen": format!("{address}:{POSTGRES}"),
                    "connect_address": format!("{address}:{POSTGRES}"),
                    "data_dir": folder.join("data"),
                    "bin_dir": programs,
                    "pgpass": folder.join("pgpass"),
                    "authentication": { "superuser": login("postgres"), "replication": login("replicator") },
                    "pg_hba": ["host all all 198.18.0.0/15 trust", "host replication all 198.18.0.0/15 trust"],
                    "parameters": { "unix_socket_directories": folder, "shared_buffers": "16MB" },
                },
            });
            fs::write(machine.configuration(), configuration.to_string()).expect("written");
        }
    }

    pub(super) fn start_etcd(&mut self, number: usize) {
        let url = |address: &Ipv4Addr, port: u16| format!("http://{address}:{port}");
        let peers: Vec<String> =
            self.machines.iter().map(|it| format!("{}={}", it.name, url(&it.address, 2380))).collect();
        let machine = &mut self.machines[number];
        let [clients, own_peer] = [2379, 2380].map(|port| url(&machine.address, port));
        let arguments = [
            ("--name", machine.name.clone()),
            ("--data-dir", machine.folder.join("etcd").display().to_string()),
            ("--listen-client-urls", clients.clone()),
            ("--advertise-client-urls", clients),
            ("--listen-peer-urls", own_peer.clone()),
            ("--initial-advertise-peer-urls", own_peer),
            ("--initial-cluster", peers.join(",")),
        ];
        let arguments: Vec<&str> = arguments.iter().flat_map(|(name, value)| [*name, value]).collect();
        machine.etcd = Some(machine.start("etcd", &arguments));
    }

    pub(super) fn start_agent(&mut self, number: usize) {
        let machine = &mut self.machines[number];
        let configuration = machine.configuration().display().to_string();
        machine.agent = Some(machine.start("patroni", &[&configuration]));
    }

    /// `kill -9`
    pub(super) fn kill_etcd(&mut self, number: usize) {
        kill(&mut self.machines[number].etcd);
    }

    /// `kill -9`. The server goes on.
    pub(super) fn kill_agent(&mut self, number: usize) {
        kill(&mut self.machines[number].agent);
    }

    /// `kill -9` of all processes of the server.
    pub(super) fn kill_server(&self, number: usize) {
        let processes = processes_in(&self.machines[number].folder.join("data"));
        assert!(!processes.is_empty(), "the server does not run");
        let _ = Command::new("kill").arg("-KILL").args(processes).stderr(Stdio::null()).status();
    }

    /// As an operator does it.
    pub(super) fn switch_over(&self, from: usize) {
        let [from, to] = [from, 1 - from].map(|number| &self.machines[number]);
        let mut patronictl = Command::new("patronictl");
        patronictl.arg("-c").arg(from.configuration()).args(["switchover", "bearward", "--force"]);
        let done = patronictl.args(["--leader", &from.name, "--candidate", &to.name]).output().expect("it is there");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&[done.stdout, done.stderr].concat()));
    }

    /// The machine with the primary, as Patroni sees it.
    pub(super) fn primary(&self) -> usize {
        let members = self.wait_for("a primary", |members| members.iter().any(is_primary));
        let runs_it = |machine: &Machine| members.iter().any(|it| is_primary(it) && it["name"] == *machine.name);
        self.machines.iter().position(runs_it).expect("a member is on a machine")
    }

    /// Waits until the server of this machine is the primary. Asks this machine alone: one that reaches no other still
    /// says from its memory that it is the leader.
    pub(super) fn wait_for_primary(&self, number: usize) {
        let machine = &self.machines[number];
        self.wait_until(slice::from_ref(machine), "another primary", |members| {
            members.iter().any(|it| is_primary(it) && it["name"] == *machine.name)
        });
    }

    /// Waits until there are a primary and a synchronous standby.
    pub(super) fn wait_until_redundant(&self) {
        // Later versions say that a standby is streaming.
        let follows = |member: &Value| member["state"] == "running" || member["state"] == "streaming";
        let is_synchronous = |member: &Value| member["role"] == "sync_standby" && follows(member);
        self.wait_for("a synchronous standby", |members| {
            members.iter().any(is_primary) && members.iter().any(is_synchronous)
        });
    }

    /// Waits until all machines that respond say it.
    fn wait_for(&self, what: &str, condition: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        self.wait_until(&self.machines, what, condition)
    }

    /// Waits until all of these machines that respond say it. Returns the members.
    fn wait_until(&self, asked: &[Machine], what: &str, condition: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let running = asked.iter().filter(|machine| machine.agent.is_some());
            let answers: Vec<Value> = running.filter_map(|machine| get(machine.address, 8008, "/cluster")).collect();
            let members = |answer: &Value| answer["members"].as_array().cloned().unwrap_or_default();
            if !answers.is_empty() && answers.iter().all(|answer| condition(&members(answer))) {
                return members(&answers[0]);
            }
            assert!(Instant::now() < deadline, "Patroni does not come to {what}: {answers:?}\n{}", self.logs());
            sleep(Duration::from_millis(100));
        }
    }

    /// The machine with the leader of etcd.
    pub(super) fn leader_of_etcd(&self) -> usize {
        let deadline = Instant::now() + PATIENCE;
        let leads = |machine: &Machine| {
            let Some(status) = post(machine.address, 2379, "/v3/maintenance/status") else { return false };
            status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
        };
        loop {
            if let Some(number) = self.machines.iter().position(leads) {
                return number;
            }
            assert!(Instant::now() < deadline, "etcd has no leader");
            sleep(Duration::from_millis(100));
        }
    }

    /// From here on, no packet passes between this machine and the other two. The gateways still reach all of them.
    pub(super) fn cut(&self, number: usize) {
        self.route("add", number);
    }

    pub(super) fn mend(&self, number: usize) {
        self.route("del", number);
    }

    fn route(&self, change: &str, number: usize) {
        let own = self.machines[number].address.to_string();
        for other in self.machines.iter().map(|machine| machine.address.to_string()).filter(|other| *other != own) {
            for [from, to] in [[&own, &other], [&other, &own]] {
                ip(&["-n", &self.router, "rule", change, "from", from, "to", to, "blackhole"]);
            }
        }
    }

    /// Unplugs this machine: neither the others nor the gateways reach it.
    pub(super) fn unplug(&self, number: usize) {
        ip(&["-n", &self.router, "link", "set", &format!("m{number}"), "down"]);
    }

    pub(super) fn plug(&self, number: usize) {
        ip(&["-n", &self.router, "link", "set", &format!("m{number}"), "up"]);
    }

    fn logs(&self) -> String {
        let log = |machine: &Machine| fs::read_to_string(machine.folder.join("patroni.log")).unwrap_or_default();
        let end = |log: String| log.lines().rev().take(20).map(|line| format!("{line}\n")).collect::<String>();
        self.machines[..2].iter().map(log).map(end).collect()
    }
}

impl Database for Patroni {
    fn servers(&self) -> Vec<SocketAddr> {
        self.machines[..2].iter().map(|machine| SocketAddr::from((machine.address, POSTGRES))).collect()
    }

    fn schema(&self) -> String {
        "bearward".to_owned()
    }

    fn sql(&self, database: &str, sql: &str) -> String {
        let host = self.machines[self.primary()].address.to_string();
        let mut psql = command("psql");
        psql.args(["-h", &host, "-U", "postgres", "-d", database, "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        let output = psql.output().expect("psql is there: tests/run installs postgresql");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8").trim_end().to_owned()
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        // Its keeper ends all processes and removes the namespaces and the files.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        for machine in &mut self.machines {
            for mut child in [machine.etcd.take(), machine.agent.take()].into_iter().flatten() {
                let _ = child.wait();
            }
        }
    }
}

impl Machine {
    fn configuration(&self) -> PathBuf {
        self.folder.join("patroni.json")
    }

    /// Starts a program on this machine. Its output is in a log with its name.
    fn start(&self, program: &str, arguments: &[&str]) -> Child {
        let path = self.folder.join(format!("{program}.log"));
        let log = File::options().create(true).append(true).open(path).expect("created");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).args(as_user()).arg(program).args(arguments);
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        command.spawn().expect("ip is there: tests/run installs iproute2")
    }
}

/// Creates the namespaces, the cables between them, and a folder for each machine. Returns the machines, the namespace
/// that routes, and the folder of all.
fn cable() -> ([Machine; 3], String, PathBuf) {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    // 198.18.0.0/15 is reserved for tests of networks (RFC 2544). `network` has the lower half of these.
    let base = 128 + (number % 4) * 32;
    let address = |host: u8| Ipv4Addr::new(198, 18 + (high & 1), low, base + host);
    let prefix = format!("bp{}x{number}", std::process::id());
    let folder = new_folder();
    let router = format!("{prefix}r");
    ip(&["netns", "add", &router]);
    let forward = ["netns", "exec", &router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"];
    ip(&forward);
    let outside = format!("{prefix}o");
    ip(&["link", "add", &outside, "type", "veth", "peer", "name", "outside", "netns", &router]);
    ip(&["addr", "add", &format!("{}/30", address(1)), "dev", &outside]);
    ip(&["link", "set", &outside, "up"]);
    plug_in(&router, "outside", address(2));
    ip(&["route", "add", &format!("{}/27", address(0)), "via", &address(2).to_string()]);
    let machines = [0_u8, 1, 2].map(|number| {
        let name = format!("{prefix}m{number}");
        let near = format!("m{number}");
        let [router_side, own_side] = [5, 6].map(|host| address(4 * number + host));
        ip(&["netns", "add", &name]);
        ip(&["-n", &router, "link", "add", &near, "type", "veth", "peer", "name", "eth0", "netns", &name]);
        plug_in(&router, &near, router_side);
        plug_in(&name, "eth0", own_side);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        ip(&["-n", &name, "route", "add", "default", "via", &router_side.to_string()]);
        let folder = folder.join(&near);
        fs::create_dir(&folder).expect("created");
        own(&folder);
        Machine { name, address: own_side, folder, etcd: None, agent: None }
    });
    (machines, router, folder)
}

fn plug_in(namespace: &str, device: &str, address: Ipv4Addr) {
    ip(&["-n", namespace, "addr", "add", &format!("{address}/30"), "dev", device]);
    ip(&["-n", namespace, "link", "set", device, "up"]);
}

fn kill(child: &mut Option<Child>) {
    let mut child = child.take().expect("it runs");
    let _ = child.kill();
    let _ = child.wait();
}

fn is_primary(member: &Value) -> bool {
    member["role"] == "leader" && member["state"] == "running"
}

fn get(address: Ipv4Addr, port: u16, path: &str) -> Option<Value> {
    fetch(&[&format!("http://{address}:{port}{path}")])
}

fn post(address: Ipv4Addr, port: u16, path: &str) -> Option<Value> {
    fetch(&["--data", "{}", &format!("http://{address}:{port}{path}")])
}

/// `None` if there is no response in time, or none of JSON.
fn fetch(arguments: &[&str]) -> Option<Value> {
    let output = Command::new("curl").args(["--silent", "--max-time", "2"]).args(arguments).output();
    serde_json::from_slice(&output.expect("curl is there: tests/run installs it").stdout).ok()
}

/// Which version of PostgreSQL these cases run.
pub(super) fn version() -> String {
    let output = command("postgres").arg("--version").output().expect("postgres is there");
    let path = binary("postgres");
    format!("{} ({})", String::from_utf8_lossy(&output.stdout).trim(), Path::new(&path).display())
}
