//! Failover by Patroni, with its defaults: a primary, a synchronous standby, and etcd on three machines.
//!
//! Each case prints the longest time in which no refresh succeeded, and the longest time of one refresh.
//! `BEARWARD_POSTGRES` chooses the version of PostgreSQL.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::checkers::{longest_outage, longest_silence};
use super::super::cluster::{Cluster, Setup};
use super::super::load::{Background, Volume, lock};
use super::super::patroni::{Patroni, version};
use super::super::survive::{Expected, Scene, VOLUME, survive_on};
use super::super::target::Target;

/// Revocations go on for a minute, and for the time of the fault.
const LONG: Volume = Volume { tokens: 800, pause: 500, ..VOLUME };
const SIGN_IN: &str = "sign-in-";

/// Sign-ins through all gateways, until they are stopped.
struct SignIns {
    is_over: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<String>>>,
}

impl SignIns {
    fn start(background: &Background, cluster: &Cluster) -> SignIns {
        let sign_ins = SignIns { is_over: Arc::default(), acknowledged: Arc::default() };
        for replica in &cluster.replicas {
            let target = replica.target();
            let is_over = sign_ins.is_over.clone();
            let acknowledged = sign_ins.acknowledged.clone();
            background.run(async move {
                tokio::spawn(sign_in_until_over(target, is_over, acknowledged));
            });
        }
        sign_ins
    }

    /// The ids of the sessions.
    fn stop(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Release);
        lock(&self.acknowledged).clone()
    }
}

async fn sign_in_until_over(target: Target, is_over: Arc<AtomicBool>, acknowledged: Arc<Mutex<Vec<String>>>) {
    let mut number = 0;
    while !is_over.load(Ordering::Acquire) {
        number += 1;
        if let Ok(pair) = target.login(&format!("{SIGN_IN}{}-{number}", target.public.port())).await {
            lock(&acknowledged).push(pair.token_id);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// `fault` gets the number of the machine with the primary. Afterwards there are a primary and a standby again.
fn survive_failover(case: &str, fault: impl FnOnce(&mut Scene<'_, Patroni>, usize)) {
    let mut patroni = Patroni::start();
    let mut cluster = Cluster::start(&patroni, Setup::default());
    let background = Background::start();
    let sign_ins = SignIns::start(&background, &cluster);
    let expected = (LONG, Expected::default());
    let history = survive_on(case, &mut cluster, &mut patroni, expected, |scene| {
        scene.tell(version());
        scene.moment(80);
        let primary = scene.server.primary();
        fault(scene, primary);
        scene.server.wait_until_redundant();
        scene.tell("there are a primary and a synchronous standby");
        scene.moment(80);
    });
    let acknowledged = sign_ins.stop();
    let stored = cluster.sql(&patroni, &format!("select id from families where subject like '{SIGN_IN}%'"));
    let stored: HashSet<&str> = stored.lines().collect();
    let lost: Vec<&String> = acknowledged.iter().filter(|id| !stored.contains(id.as_str())).collect();
    let refreshes = lock(&history.refreshes);
    eprintln!(
        "{case}: {} sign-ins, {} lost; {} revocations, 0 lost; no refresh for {:.1?}, one refresh took {:.1?}; {}",
        acknowledged.len(),
        lost.len(),
        lock(&history.revocations).len(),
        longest_silence(&refreshes),
        longest_outage(&refreshes),
        version(),
    );
    assert!(lost.is_empty() && !acknowledged.is_empty(), "{lost:?} of {} were lost", acknowledged.len());
    assert!(cluster.forks().iter().all(|forks| *forks == 0.0), "nothing was lost, so it must not look like a fork");
}

fn wait_for_takeover(scene: &mut Scene<'_, Patroni>, primary: usize) {
    scene.server.wait_for_primary(1 - primary);
    scene.tell("the standby is the primary");
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_switchover_loses_nothing() {
    survive_failover("a switchover", |scene, primary| {
        scene.server.switch_over(primary);
        scene.tell("patronictl has switched over");
        scene.server.wait_for_primary(1 - primary);
    });
}

/// Its agent starts it again.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_killed_primary_loses_nothing() {
    survive_failover("a killed primary", |scene, primary| {
        scene.server.kill_server(primary);
        scene.tell("all processes of the primary are killed");
        scene.moment(40);
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_dead_machine_loses_nothing() {
    survive_failover("a dead machine", |scene, primary| {
        scene.server.kill_agent(primary);
        scene.server.kill_server(primary);
        scene.server.kill_etcd(primary);
        scene.tell("the primary, its agent and its member of etcd are killed");
        wait_for_takeover(scene, primary);
        scene.moment(40);
        scene.server.start_etcd(primary);
        scene.server.start_agent(primary);
        scene.tell("the machine starts again");
    });
}

/// The standby takes over while the old primary goes on: it has no watchdog.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_killed_agent_loses_nothing() {
    survive_failover("a killed agent", |scene, primary| {
        scene.server.kill_agent(primary);
        scene.tell("the agent of the primary is killed");
        scene.server.wait_for_primary(1 - primary);
        scene.tell("the standby is the primary, and the old one still accepts connections");
        // They are made while there are two.
        scene.moment(80);
        scene.server.start_agent(primary);
        scene.tell("the agent starts again");
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_killed_leader_of_etcd_loses_nothing() {
    survive_failover("a killed leader of etcd", |scene, _| {
        let leader = scene.server.leader_of_etcd();
        scene.server.kill_etcd(leader);
        scene.tell("the leader of etcd is killed");
        scene.moment(80);
        let next = scene.server.leader_of_etcd();
        assert_ne!(next, leader, "it was killed");
        scene.server.start_etcd(leader);
        scene.tell("it starts again");
    });
}

/// The primary reaches neither etcd nor its standby. The gateways still reach it.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_partition_with_a_reachable_primary_loses_nothing() {
    survive_failover("a partition, the gateways reach the primary", |scene, primary| {
        scene.server.cut(primary);
        scene.tell("the machine of the primary reaches only the gateways");
        wait_for_takeover(scene, primary);
        scene.moment(40);
        scene.server.mend(primary);
        scene.tell("the network works again");
    });
}

/// The primary reaches neither etcd nor its standby, and the gateways do not reach it.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_partition_loses_nothing() {
    survive_failover("a partition, nothing reaches the primary", |scene, primary| {
        scene.server.unplug(primary);
        scene.tell("the machine of the primary is unplugged");
        wait_for_takeover(scene, primary);
        scene.moment(40);
        scene.server.plug(primary);
        scene.tell("the network works again");
    });
}
