//! `kill -9` at random moments: everything that the store acknowledged is there after it is opened again.
//!
//! The test starts itself again as a child process. The child works on the store and writes a line for each
//! acknowledgement. The parent kills it, reads the complete lines and compares. `app/killed` does the same to the whole
//! program, with real tokens. To run more rounds than the suite does:
//!
//! ```console
//! $ BEARWARD_ROUNDS=500 cargo test --test programs storm
//! ```

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bearward::store::{
    Mark, MarkKind, Marked, ProviderLogin, RefreshedLogin, Renewed, RevokeOutcome, RevokedBy, SavedLogin, Store,
};
use bearward::tokens::family::revocation::{Revocation, Revoked};
use bearward::tokens::family::{Family, FamilyOrigin};
use bearward::types::ids::TokenId;
use bearward::types::secret;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{embedded, postgres};
use crate::support::given::{self, *};
use crate::support::postgres::PostgresServer;
use crate::support::repetitions::repetitions;

const ROUNDS: usize = 10;
/// How many rounds may pass until each kind of write was acknowledged.
const MAX_ROUNDS: usize = 200;
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
    /// What was used once, with the session that ended with it.
    marks: HashSet<String>,
    /// The newest version of the tokens of each login at a provider.
    logins: HashMap<TokenId, u64>,
}

impl Acknowledged {
    /// Returns true if each kind of write was acknowledged.
    fn has_everything(&self) -> bool {
        let has_rows = !self.revoked.is_empty() && !self.tokens.is_empty() && !self.marks.is_empty();
        has_rows
            && self.logins.values().any(|version| *version > 1)
            && self.generations.values().any(|generation| *generation > 2)
    }

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
            ["mark", name] => {
                self.marks.insert(name.into());
            }
            ["login", id, version] => {
                self.logins.insert(family_id(id), number(version));
            }
            // Output of the child's test harness.
            _ => {}
        }
    }

    async fn compare(&self, store: &dyn Store) {
        let log = store.revocations_since(0).await.expect("reads");
        for (place, entry) in (1..).zip(&log) {
            assert_eq!(entry.sequence, place, "the log has a gap");
        }
        for (sequence, jti) in &self.tokens {
            let entry = log.get(*sequence as usize - 1).expect("an acknowledged entry is there");
            assert_eq!(entry.what, Revoked::Token { issuer: ISSUER.into(), jti: jti.clone() });
        }

        self.compare_marks(store, &log).await;
        self.compare_logins(store).await;
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

impl Acknowledged {
    /// A mark and its revocation are written together: the log has the session of each mark, and of no other.
    async fn compare_marks(&self, store: &dyn Store, log: &[Revocation]) {
        let logged: HashSet<_> = log.iter().filter_map(session_of).collect();
        assert!(self.marks.iter().all(|name| logged.contains(&**name)), "a session that was reported lives");
        let uses: Vec<_> = logged.iter().map(|name| (name, store.mark(mark(name), vec![], LOGIN.into()))).collect();
        for (name, used) in uses {
            assert_eq!(used.await.expect("works"), Marked::Repeated, "{name} ended, and its mark is gone");
        }
    }

    async fn compare_logins(&self, store: &dyn Store) {
        let answers: Vec<_> =
            self.logins.iter().map(|(id, version)| (id, version, store.provider_login(*id))).collect();
        for (id, version, answer) in answers {
            let (family, login) = answer.await.expect("reads").expect("an acknowledged login is there");
            assert!(login.version >= *version, "{id} fell back to the tokens {} from {version}", login.version);
            // The tokens and what they say are of one version.
            assert_eq!((login.sealed, family.scope), (sealed(login.version), format!("scope {}", login.version)));
        }
    }
}

fn session_of(entry: &Revocation) -> Option<&str> {
    match &entry.what {
        Revoked::Session { session, .. } => Some(session),
        _ => None,
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
    let mut rounds = 0;
    // On a busy machine, a child may be killed before it has done everything at least once.
    while rounds < repetitions(ROUNDS) || (!acknowledged.has_everything() && rounds < MAX_ROUNDS) {
        rounds += 1;
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
    assert!(acknowledged.has_everything(), "the children did too little in {rounds} rounds");
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
    (0..4).for_each(|number| drop(clients.spawn(work_with_a_provider(store, number))));
    while clients.join_next().await.is_some() {}
}

const PROVIDER: &str = "https://login.example";

/// Of a report that ends the session with this name.
fn mark(name: &str) -> Mark {
    let until = LOGIN + Duration::from_hours(24);
    Mark { kind: MarkKind::LogoutToken, issuer: PROVIDER.into(), key: name.into(), value: [7; 32], until }
}

fn sealed(version: u64) -> Vec<u8> {
    format!("tokens {version}").into_bytes()
}

/// Signs in at a provider, refreshes there, and gets a report that ends the session.
async fn work_with_a_provider(store: &'static dyn Store, number: u64) {
    for round in 0.. {
        let session = format!("{number}-{round}-{}", u64::from_be_bytes(secret::random()));
        let dated = LOGIN;
        let origin =
            FamilyOrigin { issuer: PROVIDER.into(), subject: session.clone(), session: Some(session.clone()), dated };
        let family = Family { scope: "scope 0".into(), origin: Some(origin), ..given::login(&session, LOGIN) };
        let tokens = |version| ProviderLogin {
            provider: "corp".into(),
            root: 1,
            sealed: sealed(version),
            version,
            due: LOGIN,
            claimed: true,
        };
        let begun = store.begin_login(family, tokens(0), None, ANY, LOGIN.into()).await.expect("the store works");
        let family = begun.expect("a new session");
        write_line(&format!("login {} 0", family.id));
        for version in 1..4 {
            let (scope, claims) = (format!("scope {version}"), family.claims.clone());
            let renewed = Renewed { scope, claims, due_before: LOGIN };
            let refreshed = RefreshedLogin { login: tokens(version), renewed: Some(renewed) };
            let saved = store.save_login(family.id, [1; 16], refreshed, LOGIN.into()).await.expect("the store works");
            assert_eq!(saved, SavedLogin::Saved);
            write_line(&format!("login {} {version}", family.id));
        }
        let revoke = vec![Revoked::Session { issuer: PROVIDER.into(), session: session.clone() }];
        let marked = store.mark(mark(&session), revoke, LOGIN.into()).await.expect("the store works");
        assert_eq!(marked, Marked::First);
        write_line(&format!("mark {session}"));
        write_line(&format!("revoked {}", family.id));
        write_line(&format!("family {} 1", family.id));
    }
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
