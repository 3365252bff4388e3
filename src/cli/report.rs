//! What `explain` and `verify` have in common: a token on standard input, a time, steps and how they ended.

use std::io::Read;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Failed, shown, wrong};
use crate::types::clock::{Clock, SystemClock, UnixTime};
use crate::types::reject::Reject;
use crate::types::trace::Step;

#[derive(clap::Args)]
pub(super) struct TimeArguments {
    /// As if it were this time, in RFC 3339, as a line of the access log has it. Left out, it is now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<UnixTime>,
}

impl TimeArguments {
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        match self.at {
            Some(time) => Arc::new(At(time)),
            None => Arc::new(SystemClock),
        }
    }
}

/// The clock of one moment.
struct At(UnixTime);

impl Clock for At {
    fn now(&self) -> UnixTime {
        self.0
    }
}

fn time(text: &str) -> Result<UnixTime, String> {
    UnixTime::parse(text).ok_or_else(|| "expected a time as 2026-11-20T23:05:21Z".to_owned())
}

/// A token from standard input. A command line is no place for one: other users can read it.
pub(super) fn read_token() -> Result<String, Failed> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| wrong(format!("standard input: {error}")))?;
    Ok(text.trim().to_owned())
}

pub(super) fn print_steps(steps: &[(Step, String)]) {
    for (step, found) in steps {
        println!("{:10}  {}", step.name(), shown(found));
    }
}

pub(super) fn print_decision(decision: &str) {
    println!("{:10}  {}", "decision", shown(decision));
}

pub(super) fn refusal(reject: &Reject) -> String {
    let (status, code) = (reject.reason.status().as_u16(), reject.reason.code());
    let detail = if reject.detail.is_empty() { reject.reason.message() } else { &*reject.detail };
    format!("{status} {code}, {detail}")
}

pub(super) fn as_json(steps: &[(Step, String)], decision: &str, reject: Option<&Reject>) -> Value {
    let steps = steps.iter().map(|(step, found)| json!({ "step": step.name(), "found": found }));
    json!({
        "steps": steps.collect::<Vec<_>>(),
        "decision": decision,
        "reason": reject.map(|reject| reject.reason.code()),
        "status": reject.map(|reject| reject.reason.status().as_u16()),
        "detail": reject.map(|reject| &*reject.detail),
    })
}
