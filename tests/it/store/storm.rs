//! `kill -9` at random moments: everything that the store acknowledged is there after it is opened again.
//!
//! The test starts itself again as a child process. The child works on the store and writes a line for each
//! acknowledgement. The parent kills it, reads the complete lines and compares. `app/killed` does the same to the whole
//! program, with real tokens. To run more rounds than the suite does:
//!
//! ```console
//! $ BEARWARD_ROUNDS=500 cargo test --test it storm
//! ```

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bearward::store::{RevokeOutcome, RevokedBy, Store};
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::types::ids::TokenId;
use bearward::types::secret;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::given::*;
use super::{embedded, postgres};
use crate::support::postgres::PostgresServer;
use crate::support::repetitions::repetitions;

const ROUNDS: usize = 10;
/// Names the database to the child.
const DATABASE: &str = "BEARWARD_TEST_STORM";
/// The name of the child among the tests of this binary.
const CHILD: &str = "store::storm::child";

/// Everything that the store acknowledged in all rounds so far.
#[derive(Default)]
struct Acknowledged {
    generations: HashMap<TokenId, u64>,
    revoked: HashSet<TokenId>,
    tokens: HashMap<u64, String>,
}

impl Acknowledged {
    fn read(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["family", id, generation] => {
                self.generations.insert(family_id(id), number(generation));
            }
            ["revoked", id] => {
                self.revoked.insert(family_id(id));
            }
            ["token", sequence, jti] => {
                self.tokens.insert(number(sequence), jti.into());
            }
            // Output of the child's test harness.
            _ => {}
        }
    }

    async fn compare(&self, store: &dyn Store) {
        let log = store.revocations_since(0, LOGIN).await.expect("reads");
        for (place, entry) in (1..).zip(&log) {
            assert_eq!(entry.sequence, place, "the log has a gap");
        }
        for (sequence, jti) in &self.tokens {
            let entry = log.get(*sequence as usize - 1).expect("an acknowledged entry is there");
            assert_eq!(entry.what, Revoked::Token { issuer: ISSUER.into(), jti: jti.clone() });
        }

        let logged: HashSet<_> = log.iter().filter_map(family_of).collect();
        // Starts all reads first, because waiting for each one separately takes most of the test's time.
        let answers: Vec<_> = self.generations.iter().map(|(id, seen)| (id, seen, store.family(*id))).collect();
        for (id, generation, answer) in answers {
            let family = answer.await.expect("reads").expect("an acknowledged family is there");
            assert!(family.generation >= *generation, "{id} fell back to {} from {generation}", family.generation);
            if self.revoked.contains(id) {
                assert!(family.revoked.is_some() && logged.contains(id), "{id} is no longer revoked");
            }
        }
    }
}

fn family_of(entry: &Revocation) -> Option<TokenId> {
    match entry.what {
        Revoked::Family(id) => Some(id),
        _ => None,
    }
}

fn family_id(text: &str) -> TokenId {
    TokenId::parse(text).expect("the child writes token ids")
}

fn number(text: &str) -> u64 {
    text.parse().expect("the child writes numbers")
}

/// The database of a child, and how a name tells it.
enum Place {
    File(PathBuf),
    Schema { url: String, schema: String },
}

impl Place {
    fn parse(name: &str) -> Place {
        match name.split_once('#') {
            Some((url, schema)) => Place::Schema { url: url.into(), schema: schema.into() },
            None => Place::File(name.into()),
        }
    }

    fn name(&self) -> String {
        match self {
            Place::File(path) => path.display().to_string(),
            Place::Schema { url, schema } => format!("{url}#{schema}"),
        }
    }

    fn open(&self) -> Box<dyn Store> {
        match self {
            Place::File(path) => Box::new(embedded::open(path)),
            Place::Schema { url, schema } => Box::new(postgres::open_at(url, schema)),
        }
    }

    /// Only one process can have a file open. Any number can share a schema.
    fn assert_in_use(&self, child: &Child) {
        let Place::File(path) = self else { return };
        let message = embedded::try_open(path).err().expect("another process has opened it").message;
        assert!(message.contains(&child.id().to_string()), "{message}");
    }
}

#[tokio::test]
async fn an_acknowledged_write_survives_kill_9() {
    let folder = TempDir::new().expect("a folder");
    kill_again_and_again(&Place::File(folder.path().join("bearward.db"))).await;
}

#[tokio::test]
async fn an_acknowledged_write_to_postgresql_survives_kill_9() {
    let server = PostgresServer::shared();
    kill_again_and_again(&Place::Schema { url: server.url(), schema: server.schema() }).await;
}

async fn kill_again_and_again(place: &Place) {
    let mut acknowledged = Acknowledged::default();
    for _ in 0..repetitions(ROUNDS) {
        let mut child = start(place);
        let mut lines = BufReader::new(child.stdout.take().expect("is piped"));
        read_acknowledgements(&mut lines, &mut acknowledged, Duration::ZERO);
        place.assert_in_use(&child);
        // Kills right after an acknowledgement, because that shows an acknowledgement that came too early.
        let wait = Duration::from_millis(u64::from(secret::random::<1>()[0] / 2));
        read_acknowledgements(&mut lines, &mut acknowledged, wait);
        child.kill().expect("kills");
        child.wait().expect("is dead");

        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("reads");
        // The kill may have truncated the last line.
        let complete = rest.rfind('\n').map_or("", |end| &rest[..end]);
        complete.lines().for_each(|line| acknowledged.read(line));
        acknowledged.compare(&*place.open()).await;
    }
    assert!(!acknowledged.revoked.is_empty() && !acknowledged.tokens.is_empty(), "the children did too little");
    assert!(acknowledged.generations.values().any(|generation| *generation > 2), "the children did too little");
}

fn start(place: &Place) -> Child {
    Command::new(std::env::current_exe().expect("is known"))
        .args([CHILD, "--exact", "--ignored", "--nocapture"])
        .env(DATABASE, place.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts")
}

/// Reads for this time, then until the next acknowledgement.
fn read_acknowledgements(lines: &mut impl BufRead, acknowledged: &mut Acknowledged, wait: Duration) {
    let start = Instant::now();
    let mut line = String::new();
    while start.elapsed() < wait || !line.starts_with("family ") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("reads"), 0, "the child ended by itself");
        acknowledged.read(line.trim_end());
    }
}

/// The child process. Ignored, because it runs until one of the tests above kills it.
#[tokio::test]
#[ignore = "the child process of the tests above"]
async fn child() {
    let name = std::env::var(DATABASE).expect("only the tests above start this, and name the database");
    let store: &'static dyn Store = Box::leak(Place::parse(&name).open());
    let mut clients: JoinSet<()> = (0..8).map(|_| work(store)).collect();
    while clients.join_next().await.is_some() {}
}

/// Logs in, refreshes, logs out and revokes a token, again and again until the process is killed.
async fn work(store: &'static dyn Store) {
    let mut now = LOGIN;
    loop {
        now = now + AFTER_GRACE;
        let family = issued(store, "alice", now).await;
        write_line(&format!("family {} 1", family.id));
        for generation in 1..4 {
            let next = rotated(store, &family, generation, now).await;
            write_line(&format!("family {} {}", next.id, next.generation));
        }
        let outcome = store.revoke_family(family.id, RevokedBy::Admin, now.into()).await.expect("the store works");
        assert_eq!(outcome, RevokeOutcome::Revoked);
        write_line(&format!("revoked {}", family.id));
        let revoked = Revoked::Token { issuer: ISSUER.into(), jti: family.id.to_string() };
        let sequence = store.revoke(revoked, now.into()).await.expect("the store works");
        write_line(&format!("token {sequence} {}", family.id));
    }
}

/// Writes each line immediately, because the test harness would capture `println!`.
fn write_line(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
}
