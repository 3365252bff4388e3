//! Revocations of tokens of another issuer, and requests with these tokens: the history of checker B.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tokio::time::{interval, sleep};

use super::checkers::{Probe, Revocation, Span, Verdict};
use super::load::{Task, lock};
use crate::support::tokens::EXTERNAL_ISSUER;

/// Revokes every `step`th token, each at another replica. Repeats what was not acknowledged. Waits for up to `pause`
/// milliseconds after each.
pub(super) async fn revoke(mut task: Task, step: usize, pause: u64) {
    for token in (task.number..task.tokens.len()).step_by(step) {
        loop {
            if task.is_stopping() {
                return;
            }
            let replica = task.replica_to_revoke_at();
            let what = json!({ "jti": task.tokens[token].0, "issuer": EXTERNAL_ISSUER });
            if task.targets[replica].revoke(what).await == Some(StatusCode::OK) {
                let acknowledged = Instant::now();
                lock(&task.history.revocations).push(Revocation { token, replica, acknowledged });
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        sleep(task.random.millis(pause)).await;
    }
}

/// How long a replica may take for the responses that a case waits for.
const MOST: Duration = Duration::from_secs(60);

/// Sends a token of those that were revoked last to one replica, fifty times per second.
pub(super) async fn probe(mut task: Task, replica: usize) {
    let mut ticks = interval(Duration::from_millis(20));
    while !task.is_stopping() {
        ticks.tick().await;
        // A replica that was cut off accepts what was revoked a while ago.
        let choice = if task.random.one_in(2) { task.random.below(10) } else { task.random.below(200) };
        let newest = lock(&task.history.revocations).iter().rev().nth(choice).map(|revocation| revocation.token);
        let token = newest.unwrap_or_else(|| task.random.below(task.tokens.len().max(1)));
        probe_once(&task, replica, token).await;
    }
}

pub(super) async fn probe_once(task: &Task, replica: usize, token: usize) -> Verdict {
    let Some((_, text)) = task.tokens.get(token) else { return Verdict::Unknown };
    let began = Instant::now();
    let status = task.targets[replica].get(text).await;
    let span = Span { began, ended: Instant::now() };
    let verdict = match status {
        Some(StatusCode::OK) => Verdict::Accepted,
        Some(StatusCode::UNAUTHORIZED) => Verdict::Rejected,
        Some(StatusCode::SERVICE_UNAVAILABLE) => Verdict::Unsure,
        _ => Verdict::Unknown,
    };
    lock(&task.history.probes).push(Probe { token, replica, span, verdict });
    verdict
}

/// What a replica said of tokens.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) accepted: usize,
    pub(super) rejected: usize,
    /// 503
    pub(super) unsure: usize,
}

/// Sends tokens that were revoked after the first `before` ones, and at least `patience` ago, to one replica.
pub(super) async fn probe_missed(
    mut task: Task,
    replica: usize,
    before: usize,
    patience: Duration,
    count: usize,
) -> Answers {
    let (deadline, mut answers) = (Instant::now() + MOST, Answers::default());
    while answers.accepted + answers.rejected + answers.unsure < count {
        assert!(Instant::now() < deadline, "replica {replica} gave too few responses: {answers:?}");
        let missed: Vec<usize> = {
            let revocations = lock(&task.history.revocations);
            let late =
                revocations.iter().skip(before).filter(|revocation| revocation.acknowledged.elapsed() > patience);
            late.map(|revocation| revocation.token).collect()
        };
        if missed.is_empty() {
            sleep(Duration::from_millis(10)).await;
            continue;
        }
        let token = missed[task.random.below(missed.len())];
        match probe_once(&task, replica, token).await {
            Verdict::Accepted => answers.accepted += 1,
            Verdict::Rejected => answers.rejected += 1,
            Verdict::Unsure => answers.unsure += 1,
            Verdict::Unknown => {}
        }
    }
    answers
}

/// Sends each of these tokens to one replica until it rejects it, or for `patience` at most. Returns how many it
/// accepted to the end. Checker B judges these requests too.
pub(super) async fn count_accepted(task: Task, revoked: Vec<usize>, patience: Duration) -> usize {
    let (replica, began, mut accepted) = (task.number, Instant::now(), 0);
    for token in revoked {
        while probe_once(&task, replica, token).await != Verdict::Rejected {
            if began.elapsed() > patience {
                accepted += 1;
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    accepted
}
