//! "Log out everywhere" while the subject refreshes, each through another replica: the history of checker C.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use tokio::time::{interval, sleep};

use super::checkers::{Dated, Span, Use, Watermark};
use super::load::{History, Task, lock};
use super::target::Target;
use crate::support::TokenPair;
use crate::support::tokens::claims_of;

/// Number of refreshes of one login.
const REFRESHES: usize = 2;
/// How many of the newest logged-out sessions are tried again and again.
const NEWEST: usize = 20;

/// The access tokens of one login.
#[derive(Clone)]
pub(super) struct Sessions {
    subject: String,
    login: Instant,
    tokens: Vec<String>,
}

impl Sessions {
    pub(super) fn new(subject: String, login: Instant, pair: &TokenPair) -> Sessions {
        Sessions { subject, login, tokens: vec![pair.access.clone()] }
    }

    pub(super) fn add(&mut self, pair: &TokenPair) {
        self.tokens.push(pair.access.clone());
    }
}

/// The tokens of a login, and when the response to "log out everywhere" was complete.
#[derive(Clone)]
pub(super) struct LoggedOut {
    pub(super) sessions: Sessions,
    pub(super) ended: Instant,
}

/// Logs in, and then refreshes and logs out at the same time, until the load stops.
pub(super) async fn race(mut task: Task) {
    let mut round = 0;
    while !task.is_stopping() {
        round += 1;
        let subject = format!("racer-{}-{round}", task.number);
        let [first, second, third] = [(); 3].map(|()| task.any_replica());
        let (before, between) = (task.random.millis(10), task.random.millis(10));
        let Ok(pair) = task.targets[first].login(&subject).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let sessions = Sessions::new(subject, Instant::now(), &pair);
        let refreshing = task.targets[second].clone();
        let refreshed = async move {
            sleep(between).await;
            refresh(&refreshing, pair).await
        };
        let ended = async {
            sleep(before).await;
            log_out_only(&mut task, third, &sessions.subject).await
        };
        let (tokens, ended) = tokio::join!(refreshed, ended);
        if let Some(ended) = ended {
            let mut sessions = sessions;
            sessions.tokens.extend(tokens);
            lock(&task.history.logged_out).push(LoggedOut { sessions, ended });
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The access tokens of the refreshes. The session may end meanwhile.
async fn refresh(target: &Target, mut pair: TokenPair) -> Vec<String> {
    let mut tokens = Vec::new();
    for _ in 0..REFRESHES {
        let Some((StatusCode::OK, body)) = target.refresh(&pair).await else { break };
        pair = TokenPair::from_json(&body);
        tokens.push(pair.access.clone());
    }
    tokens
}

/// Logs a subject out, and remembers its tokens.
pub(super) async fn log_out(task: &mut Task, replica: usize, sessions: Sessions) {
    if let Some(ended) = log_out_only(task, replica, &sessions.subject).await {
        lock(&task.history.logged_out).push(LoggedOut { sessions, ended });
    }
}

/// Repeats it until it is acknowledged. `None` if the load stops before.
pub(super) async fn log_out_only(task: &mut Task, first: usize, subject: &str) -> Option<Instant> {
    let (mut replica, began) = (first, Instant::now());
    loop {
        if task.targets[replica].log_out_everywhere(subject).await == Some(StatusCode::OK) {
            let ended = Instant::now();
            let watermark = Watermark { subject: subject.to_owned(), span: Span { began, ended } };
            lock(&task.history.watermarks).push(watermark);
            return Some(ended);
        }
        if task.is_stopping() {
            return None;
        }
        sleep(Duration::from_millis(50)).await;
        replica = task.any_replica();
    }
}

/// Sends a token of a subject that was logged out to one replica, again and again.
pub(super) async fn use_old_tokens(mut task: Task, replica: usize) {
    let mut ticks = interval(Duration::from_millis(30));
    while !task.is_stopping() {
        ticks.tick().await;
        let chosen = {
            let logged_out = lock(&task.history.logged_out);
            let newest = logged_out.len().saturating_sub(NEWEST);
            let choices = logged_out.get(newest..).unwrap_or_default();
            if choices.is_empty() {
                continue;
            }
            choices[task.random.below(choices.len())].sessions.clone()
        };
        let token = &chosen.tokens[task.random.below(chosen.tokens.len())];
        let used = use_once(&task.targets[replica], &chosen, token).await;
        lock(&task.history.uses).push(used);
    }
}

async fn use_once(target: &Target, sessions: &Sessions, token: &str) -> Use {
    let began = Instant::now();
    let status = target.get(token).await;
    let (subject, login) = (sessions.subject.clone(), sessions.login);
    let span = Span { began, ended: Instant::now() };
    Use { subject, login, dated: dated(token), span, accepted: status == Some(StatusCode::OK) }
}

fn dated(token: &str) -> Dated {
    let claims = claims_of(token);
    let number = |name: &str| claims[name].as_u64().expect("own access tokens have it");
    Dated { issued: number("iat") * 1000, login: number("auth_time_ms") }
}

/// Each token once more at each replica. One that is accepted is sent again until checker C counts it.
pub(super) async fn use_all(history: &History, targets: &[Target], patience: Duration) {
    let all = lock(&history.logged_out).clone();
    join_all(targets.iter().map(async |target| {
        for LoggedOut { sessions, ended } in &all {
            for token in &sessions.tokens {
                loop {
                    let used = use_once(target, sessions, token).await;
                    let is_final = !used.accepted || used.span.began > *ended + patience;
                    lock(&history.uses).push(used);
                    if is_final {
                        break;
                    }
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }))
    .await;
}
