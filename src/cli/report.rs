//! The parts that `explain` and `verify` share: the token from standard input, `--at`, and the steps with the decision.

use std::io::Read;
use std::sync::Arc;

use super::error::CommandError;
use super::output::say;
use super::terminal::printable;
use crate::types::clock::{Clock, SystemClock, UnixTime};
use crate::types::reject::Reject;
use crate::types::step::Step;

#[derive(clap::Args)]
pub(super) struct TimeArguments {
    /// Decide as at this time, in RFC 3339 as in the access log. Default: now.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<UnixTime>,
}

impl TimeArguments {
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        match self.at {
            Some(time) => Arc::new(FixedClock(time)),
            None => Arc::new(SystemClock),
        }
    }
}

struct FixedClock(UnixTime);

impl Clock for FixedClock {
    fn now(&self) -> UnixTime {
        self.0
    }
}

fn time(text: &str) -> Result<UnixTime, String> {
    UnixTime::parse(text).ok_or_else(|| "expected a time as 2026-11-20T23:05:21Z".to_owned())
}

/// Reads a token from standard input. It is not an argument, because other users of the machine can read those.
pub(super) fn read_token() -> Result<String, CommandError> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| CommandError::invalid(format!("cannot read the token from standard input: {error}")))?;
    Ok(text.trim().to_owned())
}

pub(super) fn print_steps(steps: &[(Step, String)]) {
    for (step, result) in steps {
        say!("{:10}  {}", step.name(), printable(result));
    }
}

pub(super) fn print_decision(decision: &str) {
    say!("{:10}  {}", "decision", printable(decision));
}

pub(super) fn describe(reject: &Reject) -> String {
    let status = reject.reason.status().as_u16();
    let code = reject.reason.code();
    let detail = if reject.detail.is_empty() { reject.reason.message() } else { &*reject.detail };
    format!("{status} {code}, {detail}")
}
