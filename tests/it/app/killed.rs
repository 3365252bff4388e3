//! `kill -9` of the real program at random moments of a storm of logins, refreshes and logouts: what it had answered is true
//! after its next start, what it had not is asked for again, and no token works twice.
//!
//! The suite has a few rounds. Five hundred, by hand, with a count of what was checked:
//!
//! ```console
//! $ BEARWARD_ROUNDS=500 cargo test --test it killed -- --nocapture
//! ```

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use bearward::types::ids::TokenId;
use bearward::types::secret;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::program::Served;
use crate::support::rounds::rounds;
use crate::support::session::{Body, Session, empty, full};
use crate::support::{Gateway, Pair, Upstream};

const ROUNDS: usize = 8;
const CLIENTS: usize = 8;

/// One login, as its client remembers it.
struct Login {
    /// Every pair that was answered, the oldest first.
    pairs: Vec<Pair>,
    /// What was asked and not answered.
    open: Option<Call>,
    revoked: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Call {
    Refresh,
    Revoke,
}

/// What all rounds had to show.
#[derive(Default)]
struct Checked {
    rotations: usize,
    revocations: usize,
    /// Refreshes and logouts that were on their way when the program was killed.
    lost_refreshes: usize,
    lost_revocations: usize,
}

#[tokio::test]
async fn nothing_answered_is_lost_and_no_token_works_twice_however_often_it_is_killed() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), configuration(&upstream)).expect("written");
    let began = Instant::now();
    let mut checked = Checked::default();
    let mut dead = Vec::new();
    let mut told = HashSet::new();
    let rounds = rounds(ROUNDS);

    let mut served = Served::start(folder.path());
    for round in 1..=rounds {
        let logins = storm(served, folder.path()).await;
        collect_events(folder.path(), &mut told);
        served = Served::start(folder.path());
        let door = Door::to(&served, folder.path());
        eprintln!("round {round}: {} logins", logins.len());
        let mut checks: JoinSet<_> = logins.into_iter().map(|login| check(login, door.clone())).collect();
        while let Some(done) = checks.join_next().await {
            let (login, seen) = done.expect("what was answered is true");
            checked.add(&seen);
            dead.push(login);
        }
    }
    // Those of the first rounds have been through all kills since.
    let door = Door::to(&served, folder.path());
    let mut public = door.public().await;
    for login in &dead {
        is_dead(&mut public, login).await;
    }
    has_told_of_all(folder.path(), &mut told, &dead).await;
    assert!(checked.rotations > rounds && checked.revocations > rounds, "the storm was a breeze");
    eprintln!(
        "{rounds} kills in {:.0?}: {} rotations and {} revocations that were answered hold; {} refreshes and {} logouts were \
         on their way; {} logins are dead at the end",
        began.elapsed(),
        checked.rotations,
        checked.revocations,
        checked.lost_refreshes,
        checked.lost_revocations,
        dead.len(),
    );
}

/// A grace and a lifetime that no round outlasts: the machine's own clock runs in here.
fn configuration(upstream: &Upstream) -> String {
    let text = Gateway::text(&upstream.address.to_string(), "");
    let text = text.replace("file = \"access.log\"", "file = \"off\"");
    text.replace("[tokens]\n", "[tokens]\naccess_lifetime = \"24h\"\nrefresh_grace = \"60s\"\n")
}

/// Where clients come in.
#[derive(Clone)]
struct Door {
    public: SocketAddr,
    admin: SocketAddr,
    admin_token: String,
}

impl Door {
    fn to(served: &Served, folder: &Path) -> Door {
        let token = std::fs::read_to_string(folder.join("admin.token")).expect("made at the start");
        Door { public: served.addresses[0], admin: served.admin, admin_token: token.trim().to_owned() }
    }

    async fn public(&self) -> Session {
        Session::http1(self.public).await
    }
}

/// Everybody works until the program is killed.
async fn storm(served: Served, folder: &Path) -> Vec<Login> {
    let door = Door::to(&served, folder);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(work(door.public().await, Session::http1(door.admin).await, door.admin_token.clone()));
    }
    let calm = Duration::from_millis(150 + u64::from(secret::random::<1>()[0]));
    tokio::time::sleep(calm).await;
    served.program.kill();
    clients.join_all().await.into_iter().flatten().collect()
}

/// Logs in, refreshes, and logs out every other time; and again, until there is no answer.
async fn work(mut public: Session, mut admin: Session, admin_token: String) -> Vec<Login> {
    let mut logins: Vec<Login> = Vec::new();
    while let Some(pair) = log_in(&mut admin, &admin_token).await {
        let logs_out = logins.len().is_multiple_of(2);
        logins.push(Login { pairs: vec![pair], open: None, revoked: false });
        let Some(login) = logins.last_mut() else { break };
        if login.live(&mut public, logs_out).await.is_none() {
            break;
        }
    }
    logins
}

impl Login {
    fn newest(&self) -> &Pair {
        self.pairs.last().expect("it began with one")
    }

    /// `None` when an answer did not come.
    async fn live(&mut self, public: &mut Session, logs_out: bool) -> Option<()> {
        for _ in 0..3 {
            self.open = Some(Call::Refresh);
            let (status, answer) = refresh(public, self.newest(), self.newest()).await?;
            assert_eq!(status, 200, "{answer}");
            self.pairs.push(Pair::of(&answer));
            self.open = None;
        }
        if logs_out {
            self.open = Some(Call::Revoke);
            let (status, answer) = revoke(public, self.newest()).await?;
            assert_eq!(status, 200, "{answer}");
            self.revoked = true;
            self.open = None;
        }
        Some(())
    }
}

async fn log_in(admin: &mut Session, token: &str) -> Option<Pair> {
    let login = json!({ "sub": TokenId::random() });
    let (status, answer) = ask(admin, Method::POST, "/admin/v1/tokens", token, Some(login)).await?;
    assert_eq!(status, 201, "{answer}");
    Some(Pair::of(&answer))
}

/// Presents the refresh token of one pair with the access token of another.
async fn refresh(public: &mut Session, presented: &Pair, bearer: &Pair) -> Option<(u16, Value)> {
    let body = json!({ "refreshToken": presented.refresh });
    ask(public, Method::POST, "/user/refresh", &bearer.access, Some(body)).await
}

async fn revoke(public: &mut Session, pair: &Pair) -> Option<(u16, Value)> {
    ask(public, Method::DELETE, &format!("/token/{}", pair.token_id), &pair.access, None).await
}

/// `None` if the whole answer did not come.
async fn ask(
    session: &mut Session,
    method: Method,
    path: &str,
    bearer: &str,
    body: Option<Value>,
) -> Option<(u16, Value)> {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {bearer}"));
    let request = request.header("content-type", "application/json");
    let body: Body = body.map_or_else(empty, |body| full(body.to_string()));
    let response = session.try_send(request.body(body).expect("a request")).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    // What the backend answers is not JSON, and nobody looks at it.
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// Compares what the client remembers with what is true after the restart; then ends the login.
async fn check(mut login: Login, door: Door) -> (Login, Checked) {
    let mut public = door.public().await;
    let mut seen = Checked { rotations: login.pairs.len() - 1, ..Checked::default() };
    let answered_nothing = |call| usize::from(login.open == Some(call));
    seen.lost_refreshes = answered_nothing(Call::Refresh);
    seen.lost_revocations = answered_nothing(Call::Revoke);
    seen.revocations = usize::from(login.revoked);

    let ended_unheard = login.open == Some(Call::Revoke) && status_of(&mut public, login.newest()).await == 401;
    if !login.revoked && !ended_unheard {
        goes_on_once(&mut public, &mut login).await;
        assert_eq!(expect(revoke(&mut public, login.newest()).await).0, 200);
    }
    login.revoked = true;
    is_dead(&mut public, &login).await;
    (login, seen)
}

/// The newest token that was answered leads to one child, whether it was asked for before the kill or not, and however
/// often; those before it lead nowhere.
async fn goes_on_once(public: &mut Session, login: &mut Login) {
    let newest = login.newest().clone();
    let spent = login.pairs.iter().rev().nth(1).cloned();
    let (status, answer) = expect(refresh(public, &newest, &newest).await);
    assert_eq!(status, 200, "an answered rotation is lost: {answer}");
    let child = Pair::of(&answer);
    let (status, answer) = expect(refresh(public, &newest, &newest).await);
    assert_eq!((status, Pair::of(&answer).refresh), (200, child.refresh.clone()), "the same child again");
    if let Some(spent) = spent {
        is_spent(public, &spent, &child).await;
    }
    let (status, answer) = expect(refresh(public, &child, &child).await);
    assert_eq!(status, 200, "{answer}");
    let grandchild = Pair::of(&answer);
    is_spent(public, &newest, &grandchild).await;
    assert_eq!(status_of(public, &grandchild).await, 200);
    login.pairs.extend([child, grandchild]);
}

async fn is_spent(public: &mut Session, spent: &Pair, bearer: &Pair) {
    let (status, answer) = expect(refresh(public, spent, bearer).await);
    assert_eq!((status, &answer["error"]), (409, &json!("refresh_conflict")));
}

/// No token of it is good for anything.
async fn is_dead(public: &mut Session, login: &Login) {
    for pair in &login.pairs {
        assert_eq!(status_of(public, pair).await, 401, "{} lives again", pair.token_id);
    }
    let (status, answer) = expect(refresh(public, login.newest(), login.newest()).await);
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")), "{} lives again", login.newest().token_id);
}

async fn status_of(public: &mut Session, pair: &Pair) -> u16 {
    expect(ask(public, Method::GET, "/", &pair.access, None).await).0
}

fn expect(answer: Option<(u16, Value)>) -> (u16, Value) {
    answer.expect("nobody kills it now")
}

/// Takes the file of audit events away, as logrotate does, and keeps what it told of: an event's name, login and generation.
fn collect_events(folder: &Path, told: &mut HashSet<String>) {
    let path = folder.join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        told.insert(name(&event["event"], &event["token_id"], &event["generation"]));
    }
}

fn name(event: &Value, token_id: &Value, generation: &Value) -> String {
    format!("{event} {token_id} {generation}")
}

/// What was durable is in the audit record too, by the time that it is delivered.
async fn has_told_of_all(folder: &Path, told: &mut HashSet<String>, logins: &[Login]) {
    let expected: Vec<_> = logins.iter().flat_map(events_of).collect();
    for _ in 0..500 {
        collect_events(folder, told);
        if expected.iter().all(|event| told.contains(event)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let missing: Vec<_> = expected.iter().filter(|event| !told.contains(*event)).collect();
    panic!("{} events are missing: {missing:?}", missing.len());
}

fn events_of(login: &Login) -> Vec<String> {
    let id = json!(login.newest().token_id);
    let rotated = (2..=login.pairs.len()).map(|generation| name(&json!("token.refreshed"), &id, &json!(generation)));
    rotated.chain([name(&json!("token.revoked"), &id, &Value::Null)]).collect()
}

impl Checked {
    fn add(&mut self, seen: &Checked) {
        self.rotations += seen.rotations;
        self.revocations += seen.revocations;
        self.lost_refreshes += seen.lost_refreshes;
        self.lost_revocations += seen.lost_revocations;
    }
}
