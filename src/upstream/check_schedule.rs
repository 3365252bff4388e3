//! The schedule of the health checks of a server. It belongs to the server, so a reload does not restart them: three
//! quick reloads are not three checks in a row. Pure: every decision takes `now`.

use std::time::Instant;

use super::settings::HealthCheckSettings;

#[derive(Default)]
pub(super) struct CheckSchedule {
    /// The settings of the last check. With others, the next check begins at once.
    settings: Option<HealthCheckSettings>,
    /// When the last check began; `None` before the first one.
    begun: Option<Instant>,
    /// If true, the last check has no result yet.
    is_running: bool,
}

impl CheckSchedule {
    /// When the next check begins.
    pub(super) fn next(&self, settings: &HealthCheckSettings, now: Instant) -> Instant {
        match self.begun {
            // An unfinished check is repeated at once.
            Some(begun) if self.is_of(settings) && !self.is_running => begun + settings.interval,
            _ => now,
        }
    }

    /// Begins a check, or repeats one that has no result. Returns true if the checks before it had other settings.
    pub(super) fn begin(&mut self, settings: &HealthCheckSettings, now: Instant) -> bool {
        let is_repeated = self.is_running && self.is_of(settings);
        let had_others = self.settings.is_some() && !self.is_of(settings);
        if !is_repeated {
            self.begun = Some(now);
        }
        if !self.is_of(settings) {
            self.settings = Some(settings.clone());
        }
        self.is_running = true;
        had_others
    }

    /// When the check that runs must have ended.
    pub(super) fn deadline(&self, settings: &HealthCheckSettings, now: Instant) -> Instant {
        self.begun.unwrap_or(now) + settings.timeout
    }

    /// The check has a result.
    pub(super) fn end(&mut self) {
        self.is_running = false;
    }

    fn is_of(&self, settings: &HealthCheckSettings) -> bool {
        self.settings.as_ref() == Some(settings)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn settings(path: &str) -> HealthCheckSettings {
        HealthCheckSettings {
            path: path.into(),
            interval: SECOND * 10,
            timeout: SECOND * 5,
            healthy_threshold: 1,
            unhealthy_threshold: 3,
            status: Vec::new(),
        }
    }

    #[test]
    fn checks_keep_their_interval() {
        let mut schedule = CheckSchedule::default();
        let settings = settings("/");
        let start = Instant::now();
        assert_eq!(schedule.next(&settings, start), start, "the first one begins at once");
        assert!(!schedule.begin(&settings, start));
        schedule.end();
        for later in [0, 1, 9, 11] {
            assert_eq!(schedule.next(&settings, start + SECOND * later), start + SECOND * 10);
        }
    }

    #[test]
    fn an_interrupted_check_gets_the_rest_of_its_time() {
        let mut schedule = CheckSchedule::default();
        let settings = settings("/");
        let start = Instant::now();
        for reloaded in 0..5 {
            let now = start + SECOND * reloaded;
            assert_eq!(schedule.next(&settings, now), now);
            schedule.begin(&settings, now);
            assert_eq!(schedule.deadline(&settings, now), start + SECOND * 5);
        }
        schedule.end();
        let now = start + SECOND * 5;
        assert_eq!(schedule.next(&settings, now), start + SECOND * 10);
        schedule.begin(&settings, start + SECOND * 10);
        assert_eq!(schedule.deadline(&settings, start + SECOND * 10), start + SECOND * 15);
    }

    #[test]
    fn other_settings_begin_anew() {
        let mut schedule = CheckSchedule::default();
        let now = Instant::now();
        schedule.begin(&settings("/"), now);
        let later = now + SECOND;
        assert_eq!(schedule.next(&settings("/other"), later), later);
        assert!(schedule.begin(&settings("/other"), later), "the results so far count no more");
        assert_eq!(schedule.deadline(&settings("/other"), later), later + SECOND * 5);
        assert!(!schedule.begin(&settings("/other"), later));
    }
}
