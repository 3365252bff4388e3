//! The progress of long work: in a terminal one line that is overwritten, otherwise a line every few seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a terminal shows the progress.
const IN_PLACE: Duration = Duration::from_millis(200);
/// How often a line is printed elsewhere, such as in the log of a job.
const LINES: Duration = Duration::from_secs(5);

/// Back to the start of the line, and clear it.
const AGAIN: &str = "\r\x1b[K";

/// The progress of one part of the work after the other.
pub(super) struct Progress<W> {
    out: W,
    is_in_place: bool,
    /// The name of the part, when it began, and when its progress was last shown.
    part: Option<(String, Instant, Option<Instant>)>,
}

impl Progress<io::Stderr> {
    pub(super) fn on_stderr() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress::new(io::stderr(), io::stderr().is_terminal() && !is_dumb)
    }
}

impl<W: Write> Progress<W> {
    fn new(out: W, is_in_place: bool) -> Self {
        Progress { out, is_in_place, part: None }
    }

    /// `done` of `total` are done; `None` until the total is known. The end of a part is always shown.
    pub(super) fn show(&mut self, part: &str, done: u64, total: Option<u64>) {
        self.show_at(part, done, total, Instant::now());
    }

    fn show_at(&mut self, part: &str, done: u64, total: Option<u64>, now: Instant) {
        if self.part.as_ref().is_none_or(|(name, ..)| name != part) {
            self.part = Some((part.to_owned(), now, None));
        }
        let Some((_, began, shown)) = &mut self.part else { return };
        let interval = if self.is_in_place { IN_PLACE } else { LINES };
        let is_done = Some(done) == total;
        if !is_done && shown.is_some_and(|shown| now.duration_since(shown) < interval) {
            return;
        }
        *shown = Some(now);
        let line = line(part, done, total, now.duration_since(*began));
        let (start, end) = match (self.is_in_place, is_done) {
            (true, true) => (AGAIN, "\n"),
            (true, false) => (AGAIN, ""),
            (false, _) => ("", "\n"),
        };
        // Progress that cannot be shown does not stop the work.
        let _ = write!(self.out, "{start}{line}{end}").and_then(|()| self.out.flush());
    }
}

fn line(part: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let count = total.map_or_else(|| format!("{part}: {done}"), |total| format!("{part}: {done} of {total}"));
    let seconds = elapsed.as_secs_f64();
    if seconds < 0.1 || done == 0 {
        return count;
    }
    let rate = done as f64 / seconds;
    match total.filter(|total| *total > done) {
        Some(total) => format!("{count}, {rate:.0} per second, {:.0} s left", (total - done) as f64 / rate),
        None => format!("{count}, {rate:.0} per second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown for 1,000 of 10,000 after each second.
    fn shown(is_in_place: bool) -> String {
        let mut progress = Progress::new(Vec::new(), is_in_place);
        let began = Instant::now();
        for second in 0..=10 {
            progress.show_at("sessions", second * 1_000, Some(10_000), began + Duration::from_secs(second));
        }
        progress.show_at("keys", 2, Some(2), began + Duration::from_secs(10));
        String::from_utf8(progress.out).expect("text")
    }

    #[test]
    fn a_log_has_a_line_every_few_seconds_and_at_the_end() {
        let expected = "sessions: 0 of 10000\nsessions: 5000 of 10000, 1000 per second, 5 s left\n\
                        sessions: 10000 of 10000, 1000 per second\nkeys: 2 of 2\n";
        assert_eq!(shown(false), expected);
    }

    #[test]
    fn a_terminal_has_one_line_for_each_part() {
        let text = shown(true);
        assert_eq!((text.matches('\n').count(), text.matches(AGAIN).count()), (2, 12));
        assert!(
            text.ends_with("\r\x1b[Ksessions: 10000 of 10000, 1000 per second\n\r\x1b[Kkeys: 2 of 2\n"),
            "{text:?}"
        );
    }
}
