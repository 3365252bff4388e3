//! Load, a fault, and what must hold after each fault.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::checkers::{
    Probe, Verdict, Watermark, gapless, no_missed_revocation, no_overtaken_watermark, one_child_per_parent,
};
use super::cluster::{Cluster, Database, MAX_STALENESS, Setup};
use super::load::{History, Load, Volume, lock};
use super::revocations::Answers;
use super::story::Story;
use crate::support::postgres::PostgresServer;

/// Time for a request in flight when staleness begins, and for the clock of the machine under load.
pub(super) const SLACK: Duration = Duration::from_millis(500);

/// How long the load may take for all its revocations, faults included.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const VOLUME: Volume = Volume { families: 8, tokens: 300, revokers: 4, pause: 0, races: 2 };

/// Revocations go on during a fault of some seconds.
pub(super) const STEADY: Volume = Volume { tokens: 400, pause: 100, ..VOLUME };

/// How many revocations a replica misses at least before it is asked about their tokens.
const MISSED: usize = 30;

/// How many of its responses are awaited.
const ANSWERS: usize = 100;

/// What a fault is made of.
pub(super) struct Scene<'a, D = PostgresServer> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) server: &'a mut D,
    pub(super) load: &'a mut Load,
    pub(super) story: &'a mut Story,
}

impl<D> Scene<'_, D> {
    /// Waits for the moment that the story chooses: a number of acknowledged revocations, `most` more than now at most,
    /// or all. A failover can take so long that few are left. Then sends the request that the story chooses, so that it
    /// is in flight at the fault.
    pub(super) fn moment(&mut self, most: usize) {
        let more = self.story.between(most / 4, most);
        let count = (self.load.revoked() + more).min(self.load.tokens());
        self.load.wait_until_revoked(count, PATIENCE);
        self.story.tell(format!("{count} revocations were acknowledged"));
        self.load.send_one(self.story);
    }

    /// Chooses a moment as [`Scene::moment`] does. From here on, revocations go to the other replicas, so that they go
    /// on. Returns how many were acknowledged.
    pub(super) fn moment_without(&mut self, replica: usize, most: usize) -> usize {
        self.load.spare(Some(replica));
        self.moment(most);
        self.load.revoked()
    }

    /// Waits until a replica misses enough revocations, and then for a time. `before`: how many it may know.
    pub(super) fn miss(&mut self, before: usize, least: Duration, most: Duration) {
        self.load.wait_until_revoked(before + MISSED, PATIENCE);
        self.last(least, most);
    }

    /// The replica has no way to learn of the tokens that were revoked meanwhile. It must know that, and accept none.
    pub(super) fn assert_fenced(&mut self, replica: usize, before: usize) {
        let Answers { accepted, rejected, unsure } =
            self.load.probe_missed(replica, before, MAX_STALENESS + SLACK, ANSWERS);
        self.tell(format!(
            "replica {replica} accepts {accepted} tokens, rejects {rejected}, does not know of {unsure}"
        ));
        assert_eq!(accepted, 0, "replica {replica} accepted tokens that were revoked long before");
        assert!(unsure > rejected, "replica {replica} rejects what it cannot know: it was not cut off");
    }

    pub(super) fn any_replica(&mut self) -> usize {
        self.story.random().below(self.cluster.replicas.len())
    }

    pub(super) fn tell(&self, what: impl std::fmt::Display) {
        self.story.tell(what);
    }

    /// A time for a fault.
    pub(super) fn last(&mut self, least: Duration, most: Duration) {
        let more = self.story.random().millis((most - least).as_millis() as u64);
        self.tell(format!("for {:?}", least + more));
        thread::sleep(least + more);
    }
}

/// What a case expects besides the rules for all.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    /// How long after its acknowledgement another replica may accept what was revoked.
    pub(super) patience: Duration,
}

impl Default for Expected {
    fn default() -> Self {
        Expected { patience: MAX_STALENESS + SLACK }
    }
}

/// Runs the load on three replicas while `fault` runs, and checks what must hold after every fault.
pub(super) fn survive(case: &str, server: &mut PostgresServer, fault: impl FnOnce(&mut Scene<'_>)) {
    survive_in(case, server, Setup::default(), fault);
}

pub(super) fn survive_in(
    case: &str,
    server: &mut PostgresServer,
    setup: Setup<'_>,
    fault: impl FnOnce(&mut Scene<'_>),
) {
    let mut cluster = Cluster::start(server, setup);
    survive_on(case, &mut cluster, server, (VOLUME, Expected::default()), fault);
}

/// Returns the history.
pub(super) fn survive_on<D: Database>(
    case: &str,
    cluster: &mut Cluster,
    server: &mut D,
    (volume, expected): (Volume, Expected),
    fault: impl FnOnce(&mut Scene<'_, D>),
) -> Arc<History> {
    let mut story = Story::begin(case);
    let mut load = Load::start(cluster, volume, &story);
    fault(&mut Scene { cluster, server, load: &mut load, story: &mut story });
    load.wait_until_all_are_revoked(PATIENCE);
    story.tell("all revocations were acknowledged");
    cluster.wait_until_ready();
    let history = load.stop();
    let accepted = load.accepted_at_the_end(expected.patience);
    load.use_old_tokens_at_the_end(expected.patience);

    let refreshes = lock(&history.refreshes).clone();
    let mut violations = one_child_per_parent(&refreshes, &cluster.generations(&*server));
    violations.extend(revocations_hold(&history, expected.patience));
    violations.extend(gapless(&cluster.log(&*server), lock(&history.revocations).len()));
    conclude(&story, &history, violations);
    assert_eq!(accepted, 0, "revoked tokens were accepted at the end");
    assert_eq!(cluster.audit_events("refresh.reuse_detected"), 0, "honest clients repeated their tokens");
    assert!(refreshes.len() > volume.families, "the load did nothing");
    for replica in 0..cluster.replicas.len() {
        let accepts = |probe: &Probe| probe.replica == replica && probe.verdict == Verdict::Accepted;
        assert!(lock(&history.probes).iter().any(accepts), "replica {replica} accepted no token at all");
    }
    history
}

/// Checkers B and C.
pub(super) fn revocations_hold(history: &History, patience: Duration) -> Vec<String> {
    let mut violations = no_missed_revocation(&lock(&history.revocations), &lock(&history.probes), patience);
    violations.extend(no_overtaken_watermark(&lock(&history.watermarks), &lock(&history.uses), patience));
    violations
}

pub(super) fn conclude(story: &Story, history: &History, violations: Vec<String>) {
    let History { refreshes, revocations, probes, watermarks, uses, .. } = history;
    let count = |length: usize, what: &str| format!("{length} {what}");
    let counts = [
        count(lock(refreshes).len(), "refreshes"),
        count(lock(revocations).len(), "revocations"),
        count(lock(probes).len(), "probes"),
        count(lock(watermarks).len(), "times logged out everywhere"),
        count(lock(uses).len(), "uses of tokens of before"),
    ];
    story.tell(format!("{}: {} violations", counts.join(", "), violations.len()));
    let shown: Vec<_> = violations.iter().take(10).collect();
    assert!(violations.is_empty(), "{} violations: {shown:#?}", violations.len());
}

pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The watermark of each subject in the database, in milliseconds since 1970.
pub(super) fn marks(cluster: &Cluster, server: &PostgresServer, watermarks: &[Watermark]) -> HashMap<String, u64> {
    let rows = cluster.sql(server, "select subject, not_after from subjects");
    let row = |line: &str| line.split_once('|').map(|(name, at)| (name.to_owned(), at.parse().expect("a number")));
    let all: HashMap<String, u64> = rows.lines().filter_map(row).collect();
    assert!(watermarks.iter().all(|mark| all.contains_key(&mark.subject)), "an acknowledged watermark is not there");
    all
}
