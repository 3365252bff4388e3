//! Counts of the reports of identity providers, for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::telemetry::metrics::LabelledValue;
use crate::types::clock::Uptime;

/// What became of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportOutcome {
    /// It ended a session, or all sessions of a user.
    Revoked,
    /// Logins are refreshed at their provider before their time.
    Refreshed,
    /// The transmitter shows that the stream works.
    Verified,
    /// The transmitter has stopped the stream.
    Stopped,
    /// The same report came again.
    Repeated,
    /// It ends no session by its kind.
    Ignored,
    /// It names no session or user that the gateway can know.
    Unmapped,
    Rejected,
    /// The gateway could not carry it out. The sender repeats it.
    Failed,
}

impl ReportOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            ReportOutcome::Revoked => "revoked",
            ReportOutcome::Refreshed => "refreshed",
            ReportOutcome::Verified => "verified",
            ReportOutcome::Stopped => "stopped",
            ReportOutcome::Repeated => "repeated",
            ReportOutcome::Ignored => "ignored",
            ReportOutcome::Unmapped => "unmapped",
            ReportOutcome::Rejected => "rejected",
            ReportOutcome::Failed => "failed",
        }
    }
}

/// Reports are rare, so that one lock for all is enough. Its size is bounded by the configuration: senders choose no
/// label.
#[derive(Default)]
pub struct ReportCounts(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    reports: BTreeMap<(Arc<str>, &'static str, ReportOutcome), u64>,
    /// When each event stream last had a valid event.
    last: BTreeMap<Arc<str>, Uptime>,
    /// How long each event stream may be silent, if it cannot be silent for ever.
    longest: BTreeMap<Arc<str>, Duration>,
}

impl ReportCounts {
    /// `source`: the name of the provider or the event stream. `kind`: of the report.
    pub fn count(&self, source: &Arc<str>, kind: &'static str, outcome: ReportOutcome) {
        *self.0.lock().reports.entry((source.clone(), kind, outcome)).or_default() += 1;
    }

    /// A valid event came from this event stream, or its transmitter said that there is none.
    pub fn heard_of(&self, stream: &Arc<str>, now: Uptime) {
        self.0.lock().last.insert(stream.clone(), now);
    }

    /// Shows this source in the metrics before its first report: a rise from nothing is none for Prometheus.
    pub fn expect(&self, source: &Arc<str>, kind: &'static str, outcome: ReportOutcome) {
        self.0.lock().reports.entry((source.clone(), kind, outcome)).or_default();
    }

    /// This event stream has a sign of life more often than this. Its silence counts from now.
    pub fn watch(&self, stream: &Arc<str>, longest: Option<Duration>, now: Uptime) {
        let mut counts = self.0.lock();
        counts.last.insert(stream.clone(), now);
        counts.longest.extend(longest.map(|longest| (stream.clone(), longest)));
    }

    pub fn by_outcome(&self) -> Vec<LabelledValue> {
        let labelled = |((source, kind, outcome), count): (&(Arc<str>, &'static str, ReportOutcome), &u64)| {
            let labels = vec![
                ("source", source.to_string()),
                ("kind", (*kind).to_owned()),
                ("outcome", outcome.as_str().to_owned()),
            ];
            (labels, *count as f64)
        };
        self.0.lock().reports.iter().map(labelled).collect()
    }

    /// Seconds since each event stream was last heard of.
    pub fn silences(&self, now: Uptime) -> Vec<LabelledValue> {
        let silence = |(stream, last): (&Arc<str>, &Uptime)| {
            (vec![("stream", stream.to_string())], now.since(*last).as_secs_f64())
        };
        self.0.lock().last.iter().map(silence).collect()
    }

    /// Whether each event stream is silent for longer than it may be.
    pub fn overdue(&self, now: Uptime) -> Vec<LabelledValue> {
        let counts = self.0.lock();
        let is_overdue = |(stream, longest): (&Arc<str>, &Duration)| {
            let silence = counts.last.get(stream).map_or(Duration::ZERO, |last| now.since(*last));
            (vec![("stream", stream.to_string())], f64::from(u8::from(silence > *longest)))
        };
        counts.longest.iter().map(is_overdue).collect()
    }
}
