//! The times at which a name needs an order. Pure.

use std::time::Duration;

use super::failure::FailureKind;
use super::renewal_info::Window;
use super::state::{Certificate, NameState};
use crate::types::clock::UnixTime;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// How long to wait after failed orders in a row. Let's Encrypt accepts 5 failed validations of a name in an hour.
const DELAYS: [u64; 6] = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, DAY];
/// The longest wait while the authority does not respond: that costs it nothing.
const LONGEST_ABSENCE: u64 = 30 * MINUTE;
/// RFC 9773 section 4.3.2 recommends these limits for `Retry-After`.
const ASK_AGAIN: (u64, u64) = (MINUTE, DAY);
/// RFC 9773 section 4.3.3 recommends this after an error, and 4.3 without `Retry-After`.
const ASK_AFTER_ERROR: u64 = 6 * HOUR;

impl NameState {
    /// When to order. `directory`: that of the authority now.
    pub(super) fn order_at(&self, directory: &str) -> UnixTime {
        let due = match &self.certificate {
            Some(certificate) if certificate.directory == directory => certificate.renew_at,
            _ => 0,
        };
        UnixTime::from_secs(due.max(self.retry_at))
    }

    /// When to ask the authority for its window. `None`: not at all.
    pub(super) fn ask_at(&self, directory: &str) -> Option<UnixTime> {
        let certificate = self.certificate.as_ref().filter(|certificate| certificate.directory == directory)?;
        Some(UnixTime::from_secs(certificate.ask_at))
    }

    /// How many orders began in the last hour.
    pub(super) fn begun_since_an_hour(&self, now: UnixTime) -> usize {
        self.begun.iter().filter(|at| **at + HOUR > now.as_secs()).count()
    }

    pub(super) fn begin(&mut self, now: UnixTime) {
        self.begun.retain(|at| *at + HOUR > now.as_secs());
        self.begun.push(now.as_secs());
    }

    /// `retry_after`: what the authority has asked for. `random`: from 0 to 1.
    pub(super) fn fail(
        &mut self,
        kind: FailureKind,
        error: String,
        retry_after: Option<Duration>,
        now: UnixTime,
        random: f64,
    ) {
        let delay = DELAYS[(self.failures as usize).min(DELAYS.len() - 1)];
        let delay = if kind == FailureKind::Absent { delay.min(LONGEST_ABSENCE) } else { delay };
        // Some later, so that many gateways do not come back at the same moment.
        let delay = delay + (delay as f64 * random / 10.0) as u64;
        let asked = retry_after.map_or(0, |delay| delay.as_secs().min(DAY));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now.as_secs() + delay.max(asked);
        self.error = Some(error);
    }
}

impl Certificate {
    /// A certificate that was issued now.
    pub(super) fn new(
        directory: String,
        chain: String,
        key: Vec<u8>,
        life: (UnixTime, UnixTime),
        now: UnixTime,
        random: f64,
    ) -> Self {
        let life = (life.0.as_secs(), life.1.as_secs());
        let issued_at = now.as_secs();
        // After two thirds of its life, less a twentieth at random.
        let lifetime = life.1.saturating_sub(life.0);
        let renew_at = life.0 + lifetime / 3 * 2 - (lifetime as f64 * random / 20.0) as u64;
        let mut certificate = Certificate { directory, chain, key, life, issued_at, renew_at, window: None, ask_at: 0 };
        certificate.limit_renewal();
        certificate
    }

    /// `None`: the authority has not responded, or has none. The time from before counts.
    pub(super) fn use_window(&mut self, window: Option<Window>, now: UnixTime, random: f64) {
        let Some(Window { start, end, ask_again }) = window else {
            self.ask_at = now.as_secs() + ASK_AFTER_ERROR;
            return;
        };
        let (shortest, longest) = ASK_AGAIN;
        let ask_again = ask_again.map_or(ASK_AFTER_ERROR, |pause| pause.as_secs());
        self.ask_at = now.as_secs() + ask_again.clamp(shortest, longest);
        // The moment in a window stays, so that it comes.
        if self.window != Some((start, end)) {
            self.window = Some((start, end));
            self.renew_at = start + ((end - start) as f64 * random) as u64;
            self.limit_renewal();
        }
    }

    /// An authority that always wants a renewal does not get one after the other. If its window is after the end of the
    /// certificate, or so close to it that no failed order could be repeated, the last twentieth of the life is left.
    fn limit_renewal(&mut self) {
        let life = self.life.1.saturating_sub(self.life.0);
        let first = self.issued_at + HOUR.min(life / 2);
        let last = self.life.1.saturating_sub(life / 20);
        self.renew_at = self.renew_at.min(last).max(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_800_000_000);
    const DIRECTORY: &str = "https://ca.example/directory";

    #[test]
    fn failures_are_further_and_further_apart() {
        let mut state = NameState::default();
        let waits = |state: &mut NameState, kind, asked| {
            state.fail(kind, "x".into(), asked, NOW, 0.0);
            state.order_at(DIRECTORY).since(NOW).as_secs() / MINUTE
        };
        for expected in [1, 5, 30, 120, 360, 1440, 1440] {
            assert_eq!(waits(&mut state, FailureKind::Other, None), expected);
        }
        assert_eq!(waits(&mut state, FailureKind::Absent, None), 30, "the authority is away");
        assert_eq!(
            waits(&mut state, FailureKind::Absent, Some(Duration::from_secs(7200))),
            120,
            "it has asked for this"
        );
        let hostile = Some(Duration::from_secs(u64::MAX));
        assert_eq!(waits(&mut state, FailureKind::Other, hostile), 1440);
    }

    #[test]
    fn a_name_is_due_without_a_certificate_of_the_authority() {
        let mut state = NameState::default();
        assert_eq!(state.order_at(DIRECTORY), UnixTime::default());
        state.certificate = Some(certificate());
        let due = state.order_at(DIRECTORY);
        assert_eq!(due.since(NOW).as_secs(), 60 * DAY);
        assert_eq!(state.order_at("https://other.example/directory"), UnixTime::default());
        assert!(state.ask_at(DIRECTORY).is_some() && state.ask_at("https://other.example/directory").is_none());
    }

    #[test]
    fn a_window_decides_and_its_moment_stays() {
        let mut certificate = certificate();
        let start = NOW.as_secs() + 10 * DAY;
        let end = NOW.as_secs() + 12 * DAY;
        let window = |start, pause| Some(Window { start, end, ask_again: Some(Duration::from_secs(pause)) });
        certificate.use_window(window(start, 1), NOW, 0.5);
        assert_eq!((certificate.renew_at, certificate.ask_at), (start + DAY, NOW.as_secs() + MINUTE));
        certificate.use_window(window(start, 10 * DAY), NOW, 0.9);
        assert_eq!((certificate.renew_at, certificate.ask_at), (start + DAY, NOW.as_secs() + DAY));
        certificate.use_window(None, NOW, 0.9);
        assert_eq!((certificate.renew_at, certificate.ask_at), (start + DAY, NOW.as_secs() + 6 * HOUR));
        certificate.use_window(window(0, HOUR), NOW, 0.0);
        assert_eq!(certificate.renew_at, NOW.as_secs() + HOUR, "never at once");
        let late = Window { start: NOW.as_secs() + 89 * DAY, end: u64::MAX, ask_again: None };
        certificate.use_window(Some(late), NOW, 0.5);
        assert_eq!(certificate.renew_at, NOW.as_secs() + 90 * DAY * 19 / 20, "before it expires");
    }

    #[test]
    fn orders_count_for_an_hour() {
        let mut state = NameState::default();
        state.begin(NOW);
        state.begin(NOW + Duration::from_mins(30));
        for (minutes, expected) in [(31, 2), (59, 2), (60, 1), (90, 0)] {
            assert_eq!(state.begun_since_an_hour(NOW + Duration::from_mins(minutes)), expected, "{minutes}");
        }
    }

    /// For 90 days from now.
    fn certificate() -> Certificate {
        let life = (NOW, NOW + Duration::from_secs(90 * DAY));
        Certificate::new(DIRECTORY.into(), String::new(), Vec::new(), life, NOW, 0.0)
    }
}
