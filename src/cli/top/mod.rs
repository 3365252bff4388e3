//! `bearward top`: what a running gateway does now, each second.
//!
//! In a terminal it is one screen, otherwise one line for each second.

mod line;
mod numbers;
mod screen;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::admin_client::{CallError, call};
use super::config_argument::ConfigArgument;
use super::error::CommandError;
use super::terminal::array_member;

const INTERVAL: Duration = Duration::from_secs(1);
/// How many seconds the screen shows. Lines need only those since the last response.
const SECONDS: usize = 60;
/// The first second of a gateway ends a second after its start.
const FIRST_SECOND_RETRY: Duration = Duration::from_millis(100);

/// Moves to the upper left corner.
const HOME: &str = "\x1b[H";
/// Clears the rest of the line, or of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgument,
    /// Print the last second only, and end.
    #[arg(long)]
    once: bool,
    /// Print a line of JSON for each second.
    #[arg(long)]
    json: bool,
}

enum Format {
    Json,
    Lines,
    Screen { is_colored: bool },
}

pub(super) fn run(Arguments { config, once, json }: Arguments) -> Result<(), CommandError> {
    let socket = config.admin_socket()?;
    let format = Format::chosen(json);
    let mut last_time = None;
    loop {
        let stats = read(&socket)?;
        let output = match format {
            Format::Json => new_seconds(&stats, last_time.as_ref(), once).map(|second| format!("{second}\n")).collect(),
            Format::Lines => new_seconds(&stats, last_time.as_ref(), once).map(line::of).collect(),
            Format::Screen { is_colored } if once => screen::of(&stats, is_colored),
            Format::Screen { is_colored } => in_place(&screen::of(&stats, is_colored)),
        };
        match print(&output) {
            // The reader, such as `head`, has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            printed => printed?,
        }
        if once {
            return Ok(());
        }
        last_time = newest(&stats).and_then(|second| second.get("time")).cloned();
        sleep(INTERVAL);
    }
}

impl Format {
    fn chosen(json: bool) -> Self {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        match () {
            () if json => Format::Json,
            // A dumb terminal cannot move the cursor.
            () if !io::stdout().is_terminal() || variable("TERM") == "dumb" => Format::Lines,
            // https://no-color.org: any value but an empty one.
            () => Format::Screen { is_colored: variable("NO_COLOR").is_empty() },
        }
    }
}

/// Waits for the first second of a gateway that has started just now.
fn read(socket: &Path) -> Result<Value, CallError> {
    loop {
        let stats = call(socket, Method::GET, &format!("/admin/v1/stats?seconds={SECONDS}"), None)?;
        if newest(&stats).is_some() {
            return Ok(stats);
        }
        sleep(FIRST_SECOND_RETRY);
    }
}

fn newest(stats: &Value) -> Option<&Value> {
    array_member(stats, "seconds").next()
}

/// Those since the one with `last_time`, the oldest first. Only the newest if that one is not in the list.
fn new_seconds<'s>(stats: &'s Value, last_time: Option<&Value>, once: bool) -> impl Iterator<Item = &'s Value> {
    let seconds: Vec<_> = array_member(stats, "seconds").collect();
    let known = seconds.iter().position(|second| last_time.is_some_and(|last| second.get("time") == Some(last)));
    let count = if once { 1 } else { known.unwrap_or(1) };
    seconds.into_iter().take(count).rev()
}

/// Overwrites the last screen, without a moment in which it is empty.
fn in_place(screen: &str) -> String {
    let lines = screen.lines().map(|line| format!("{line}{CLEAR_LINE}\n"));
    format!("{HOME}{}{CLEAR_REST}", lines.collect::<String>())
}

fn print(output: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(output.as_bytes())?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_second_is_printed_once() {
        let stats =
            |times: &[u64]| json!({ "seconds": times.iter().map(|time| json!({ "time": time })).collect::<Vec<_>>() });
        for (times, last, expected) in [
            (&[5, 4, 3][..], None, &[5][..]),
            (&[5, 4, 3], Some(5), &[]),
            (&[5, 4, 3], Some(3), &[4, 5]),
            (&[5, 4, 3], Some(9), &[5]),
        ] {
            let stats = stats(times);
            let last = last.map(|last: u64| json!(last));
            let printed: Vec<_> =
                new_seconds(&stats, last.as_ref(), false).map(|second| second["time"].clone()).collect();
            assert_eq!(printed, expected, "after {last:?}");
        }
    }

    #[test]
    fn a_screen_replaces_the_one_before_it() {
        assert_eq!(in_place("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
