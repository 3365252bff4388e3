//! Invariants of each recorded history, whatever failed. Pure functions: each returns the violations.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// When a request began and when its response was complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) began: Instant,
    pub(super) ended: Instant,
}

/// How a request ended for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With this refresh token.
    Done(String),
    /// With another status than 503.
    Rejected(u16),
    /// No response, or 503: the change may have been made.
    Unknown,
}

/// One refresh: a family's token of generation `parent` was presented.
#[derive(Clone, Debug)]
pub(super) struct Refresh {
    pub(super) family: String,
    pub(super) parent: u64,
    pub(super) span: Span,
    pub(super) outcome: Outcome,
}

/// Checker A: each refresh token has one child. `stored`: the generation of each family in the database at the end. The
/// clients of the history never present a token again after they have got its child.
pub(super) fn one_child_per_parent(history: &[Refresh], stored: &HashMap<String, u64>) -> Vec<String> {
    let mut violations = Vec::new();
    let mut parents: BTreeMap<(&str, u64), Vec<&Refresh>> = BTreeMap::new();
    for refresh in history {
        if let Outcome::Rejected(status) = refresh.outcome {
            violations.push(format!("{}: an honest refresh of {} got {status}", refresh.family, refresh.parent));
        }
        parents.entry((&refresh.family, refresh.parent)).or_default().push(refresh);
    }
    for ((family, parent), refreshes) in &parents {
        let children: HashSet<_> = refreshes.iter().filter_map(|refresh| child(refresh)).collect();
        if children.len() > 1 {
            violations.push(format!("{family}: the token of generation {parent} has {} children", children.len()));
        }
        // A token that was got later cannot have been spent earlier.
        let earlier = parents.get(&(*family, parent.saturating_sub(1))).into_iter().flatten();
        let got = earlier.filter(|refresh| child(refresh).is_some()).map(|refresh| refresh.span.began).min();
        if got.is_some_and(|got| refreshes.iter().any(|refresh| refresh.span.ended < got)) {
            violations.push(format!("{family}: generation {parent} was refreshed before it existed"));
        }
    }
    for (family, generation) in stored {
        let of_family = || history.iter().filter(|refresh| refresh.family == *family);
        let newest = of_family().filter(|refresh| child(refresh).is_some()).map(|refresh| refresh.parent + 1).max();
        let newest = newest.unwrap_or(1);
        let unknown = of_family().any(|refresh| refresh.parent == newest && refresh.outcome == Outcome::Unknown);
        if *generation != newest && !(unknown && *generation == newest + 1) {
            violations.push(format!("{family}: the store has generation {generation}, its client {newest}"));
        }
    }
    violations
}

fn child(refresh: &Refresh) -> Option<&str> {
    match &refresh.outcome {
        Outcome::Done(token) => Some(token),
        Outcome::Rejected(_) | Outcome::Unknown => None,
    }
}

/// A revocation that was answered with 200.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revocation {
    pub(super) token: usize,
    pub(super) replica: usize,
    pub(super) acknowledged: Instant,
}

/// What a gateway says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted,
    Rejected,
    /// 503: the gateway does not know now.
    Unsure,
    /// Another response, or none.
    Unknown,
}

/// A request with a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) token: usize,
    pub(super) replica: usize,
    pub(super) span: Span,
    pub(super) verdict: Verdict,
}

/// Checker B: no revocation is missed. The replica that answered rejects the token at once, every other one after at
/// most `patience`, and none accepts it again after it has rejected it.
pub(super) fn no_missed_revocation(revocations: &[Revocation], probes: &[Probe], patience: Duration) -> Vec<String> {
    let mut first_rejected: HashMap<(usize, usize), Instant> = HashMap::new();
    for probe in probes.iter().filter(|probe| probe.verdict == Verdict::Rejected) {
        let first = first_rejected.entry((probe.token, probe.replica)).or_insert(probe.span.ended);
        *first = (*first).min(probe.span.ended);
    }
    let acknowledged: HashMap<usize, &Revocation> =
        revocations.iter().map(|revocation| (revocation.token, revocation)).collect();
    let mut violations = Vec::new();
    for probe in probes.iter().filter(|probe| probe.verdict == Verdict::Accepted) {
        let Probe { token, replica, span, .. } = *probe;
        if first_rejected.get(&(token, replica)).is_some_and(|rejected| span.began > *rejected) {
            violations.push(format!("replica {replica} accepted token {token} again"));
        }
        let Some(revocation) = acknowledged.get(&token) else { continue };
        let allowed = if revocation.replica == replica { Duration::ZERO } else { patience };
        if span.began > revocation.acknowledged + allowed {
            let late = span.began.duration_since(revocation.acknowledged);
            violations.push(format!("replica {replica} accepted token {token} {late:?} after its revocation"));
        }
    }
    violations
}

/// The log of revocations in the database: 1, 2, 3, … without gaps, and with every acknowledged entry.
pub(super) fn gapless(sequences: &[u64], acknowledged: usize) -> Vec<String> {
    let mut violations = Vec::new();
    for (expected, sequence) in (1..).zip(sequences) {
        if expected != *sequence {
            violations.push(format!("the log has {sequence} where {expected} should be"));
            break;
        }
    }
    if sequences.len() < acknowledged {
        violations.push(format!("{acknowledged} revocations were acknowledged, the log has {}", sequences.len()));
    }
    violations
}

/// "Log out everywhere" of a subject that was answered with 200.
#[derive(Clone, Debug)]
pub(super) struct Watermark {
    pub(super) subject: String,
    /// From the first attempt to the response.
    pub(super) span: Span,
}

/// Times in an access token, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dated {
    /// `iat`
    pub(super) issued: u64,
    /// `auth_time_ms`
    pub(super) login: u64,
}

/// A request with an access token of a login, and whether the gateway accepted it.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) subject: String,
    /// When the response to the login was complete, by the clock of the test.
    pub(super) login: Instant,
    pub(super) dated: Dated,
    pub(super) span: Span,
    pub(super) accepted: bool,
}

/// The same history, if gateways compared `date` of each token with the watermark. `not_after`: of each subject.
pub(super) fn by_rule(uses: &[Use], not_after: &HashMap<String, u64>, date: fn(&Dated) -> u64) -> Vec<Use> {
    let judged = |used: &Use| {
        let is_late = not_after.get(&used.subject).is_none_or(|mark| date(&used.dated) > *mark);
        Use { accepted: is_late, ..used.clone() }
    };
    uses.iter().map(judged).collect()
}

/// Checker C: after "log out everywhere", no token of an earlier login passes, also if it was refreshed meanwhile.
pub(super) fn no_overtaken_watermark(watermarks: &[Watermark], uses: &[Use], patience: Duration) -> Vec<String> {
    let mut violations = Vec::new();
    for used in uses.iter().filter(|used| used.accepted) {
        let overtaken = watermarks.iter().find(|mark| {
            mark.subject == used.subject && used.login < mark.span.began && used.span.began > mark.span.ended + patience
        });
        if let Some(mark) = overtaken {
            let late = used.span.began.duration_since(mark.span.ended);
            violations.push(format!("a token of an earlier login of {} passed {late:?} after it ended", used.subject));
        }
    }
    violations
}

/// How long a refresh took at most: from its first request to the next success of its family. A request may wait in the
/// gateway, and succeed late.
pub(super) fn longest_outage(history: &[Refresh]) -> Duration {
    let mut since: HashMap<&str, Instant> = HashMap::new();
    let mut longest = Duration::ZERO;
    let mut ordered: Vec<&Refresh> = history.iter().collect();
    ordered.sort_by_key(|refresh| refresh.span.ended);
    for refresh in ordered {
        match refresh.outcome {
            Outcome::Done(_) => {
                let began = since.remove(refresh.family.as_str()).unwrap_or(refresh.span.began);
                longest = longest.max(refresh.span.ended.saturating_duration_since(began.min(refresh.span.began)));
            }
            _ => {
                since.entry(&refresh.family).or_insert(refresh.span.began);
            }
        }
    }
    longest
}

/// The longest time in which no refresh succeeded, of any family.
pub(super) fn longest_silence(history: &[Refresh]) -> Duration {
    let done = history.iter().filter(|refresh| child(refresh).is_some());
    let mut ended: Vec<Instant> = done.map(|refresh| refresh.span.ended).collect();
    ended.sort();
    ended.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}
