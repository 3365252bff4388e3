//! The state of the follower, and its answer to the result of a poll. No I/O: the times come with each call.
//!
//! The cursor is the end of the prefix of the log that was applied without a gap, never the highest number that was
//! seen. Each entry has a random tag, and each poll reads the entry at the cursor again: after a failover that lost
//! commits, numbers are used twice, and only the tag tells that the log is another one. Then everything is read again.
//! Nothing is taken back: the revocations of both logs stay in force, and those that the new log lacks are written to
//! it.

use std::time::Duration;
use std::vec;

use super::recent::{MAX, Missing, Recent, SPAN};
use crate::tokens::family::revocation::Revocation;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// Maximum number of entries of one poll. With fewer, the poll has read to the end.
pub(super) const PAGE: usize = 4_096;
/// From one poll to the next. One poll costs the database some 30 µs.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// The same if the database tells of new entries. One poll then reads all that were written meanwhile.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// How long a gap in the log may be a transaction that is not visible yet. The server ends statements before.
const GAP_PATIENCE: Duration = Duration::from_secs(10);
/// How much earlier than its retention ends the log counts as incomplete.
const RETENTION_MARGIN: Duration = Duration::from_mins(5);

pub(super) type Tag = [u8; 16];

/// A place in the log. The default is before its first entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) sequence: u64,
    pub(super) tag: Tag,
}

#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) revocation: Revocation,
    pub(super) tag: Tag,
}

impl LogEntry {
    fn position(&self) -> Position {
        Position { sequence: self.revocation.sequence, tag: self.tag }
    }
}

/// The result of a poll, all of it from one snapshot of the database.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// The newest entry of the log, which is known even if it was deleted.
    pub(super) newest: Position,
    /// From [`FollowerState::read_from`] on, that one included, in order: at most [`PAGE`].
    pub(super) entries: Vec<LogEntry>,
}

/// What an operator must learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The log is not the one that was followed: the database was rolled back.
    Fork { at: u64, newest: u64 },
    /// This number is missing in the log, although later ones are there.
    Gap { missing: u64 },
    /// The number of revocations that the database has lost, and that are written to it again.
    Lost(usize),
}

/// What to do after a poll.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// To enforce, in this order.
    pub(super) apply: Vec<Revocation>,
    pub(super) alarms: Vec<Alarm>,
    /// What the log lacks, to be written to it again.
    pub(super) write_back: Vec<Revocation>,
    /// The log was read from its start again.
    pub(super) reloaded: bool,
}

pub(super) struct FollowerState {
    /// Entries stay in the log for at least so long.
    retention: Duration,
    page: usize,
    cursor: Position,
    /// Until when the entry at the cursor matters. Later it may be deleted.
    needed_until: UnixTime,
    /// Set while the log is read from its start.
    reload: Option<Reload>,
    /// When the last poll that read to the end was sent.
    complete_at: Option<BootTime>,
    /// When the gap after the cursor was met first.
    gap_since: Option<BootTime>,
    recent: Recent,
    last_poll: Option<BootTime>,
    next_poll: BootTime,
}

struct Reload {
    after: Position,
    /// The time of that entry.
    at: Option<UnixTime>,
    missing: Missing,
}

impl FollowerState {
    /// Begins by reading the whole log.
    pub(super) fn new(retention: Duration) -> Self {
        let recent = Recent::default();
        let reload = Some(Reload { after: Position::default(), at: None, missing: Missing::default() });
        FollowerState {
            retention: retention.saturating_sub(RETENTION_MARGIN),
            page: PAGE,
            cursor: Position::default(),
            needed_until: UnixTime::default(),
            reload,
            complete_at: None,
            gap_since: None,
            recent,
            last_poll: None,
            next_poll: BootTime::default(),
        }
    }

    /// With smaller pages, for tests.
    #[cfg(test)]
    pub(super) fn with_page(self, page: usize) -> Self {
        FollowerState { page, ..self }
    }

    /// The lowest sequence that the next poll must read.
    pub(super) fn read_from(&self) -> u64 {
        self.reload.as_ref().map_or(self.cursor.sequence, |reload| reload.after.sequence)
    }

    /// The newest entry that is applied with all before it.
    pub(super) fn applied(&self) -> u64 {
        self.cursor.sequence
    }

    /// When the newest poll was sent that read to the end of the log. Everything that was durable then is applied.
    pub(super) fn complete_at(&self) -> Option<BootTime> {
        self.complete_at
    }

    /// Returns true until a poll has read all of the log.
    pub(super) fn is_beginning(&self) -> bool {
        self.complete_at.is_none()
    }

    /// Returns true while a log is read again that may lack what this gateway remembers.
    pub(super) fn is_reading_again(&self) -> bool {
        self.reload.is_some() && self.complete_at.is_some()
    }

    /// How long to wait until the next poll.
    pub(super) fn wait(&self, now: BootTime) -> Duration {
        self.next_poll.since(now)
    }

    /// Remembers a revocation of this gateway, which is durable and enforced. The poll brings it again.
    pub(super) fn on_own(&mut self, revocation: &Revocation, now: BootTime) {
        self.recent.remember(revocation, now);
    }

    /// Reads the whole log again: what the last poll brought is not in force.
    pub(super) fn restart(&mut self) {
        self.complete_at = None;
        self.begin_reload(BootTime::now(), &mut Step::default());
    }

    /// The database told of new entries.
    pub(super) fn on_wake(&mut self, now: BootTime) {
        let earliest = self.last_poll.map_or(now, |last| last + MIN_INTERVAL);
        self.next_poll = self.next_poll.min(earliest.max(now));
    }

    /// The poll failed. The caller reconnects, which has its own pauses.
    pub(super) fn on_error(&mut self, now: BootTime) {
        self.last_poll = Some(now);
        self.next_poll = now + INTERVAL;
    }

    /// `sent`: when the poll was sent. `now`: the time of the database.
    pub(super) fn on_poll(&mut self, page: Page, sent: BootTime, now: UnixTime) -> Step {
        self.last_poll = Some(sent);
        let newest = page.newest.sequence;
        let mut step = Step::default();
        let was_away = self.complete_at.is_some_and(|last| sent.since(last) >= self.retention);
        let read_to_end = match self.reload.take() {
            Some(reload) => self.reload_page(reload, page, sent, now, &mut step),
            // Entries may have been deleted that were never read.
            None if was_away => self.begin_reload(sent, &mut step),
            None => self.follow_page(page, sent, now, &mut step),
        };
        // Of a long log, what is not among its newest entries would only push out others, which it may lack.
        let is_recent = |each: &&Revocation| each.at + SPAN >= now && each.sequence + MAX as u64 > newest;
        for revocation in step.apply.iter().filter(is_recent) {
            self.recent.remember(revocation, sent);
        }
        let goes_on = !read_to_end && self.gap_since.is_none();
        self.next_poll = if goes_on { sent } else { sent + INTERVAL };
        if read_to_end {
            self.complete_at = Some(sent);
        }
        step
    }

    /// Returns true if the end of the log was read, and everything before it is applied.
    fn follow_page(&mut self, page: Page, sent: BootTime, now: UnixTime, step: &mut Step) -> bool {
        let newest = page.newest;
        let is_full = page.entries.len() >= self.page;
        let next = page.entries.first().map(|entry| entry.revocation.sequence);
        // Deleted since the last poll. No standby lags by as long as an entry matters, so that it is the same log.
        let is_deleted = next == Some(self.cursor.sequence + 1) && self.needed_until < now;
        let entries = if is_deleted { Some(page.entries.into_iter()) } else { entries_after(self.cursor, page) };
        let Some(entries) = entries else {
            step.alarms.push(Alarm::Fork { at: self.cursor.sequence, newest: newest.sequence });
            return self.begin_reload(sent, step);
        };
        let mut gap = false;
        for entry in entries {
            let is_next = entry.revocation.sequence == self.cursor.sequence + 1;
            gap |= !gap && !is_next && !self.accepts_gap(self.cursor, sent, step);
            if !gap {
                self.cursor = entry.position();
                self.needed_until = entry.revocation.until;
                self.gap_since = None;
            }
            step.apply.push(entry.revocation);
        }
        if gap || is_full {
            return false;
        }
        if self.cursor != newest {
            if !self.accepts_gap(self.cursor, sent, step) {
                return false;
            }
            self.move_to_newest(newest);
        }
        self.gap_since = None;
        true
    }

    /// A gap ends by itself if it is a transaction that is not visible yet. If it does not, rows were deleted by hand:
    /// that is an alarm, and the follower goes on, because it would otherwise stop for ever.
    fn accepts_gap(&mut self, before: Position, sent: BootTime, step: &mut Step) -> bool {
        let since = *self.gap_since.get_or_insert(sent);
        let is_over = sent.since(since) >= GAP_PATIENCE;
        if since == sent || is_over {
            step.alarms.push(Alarm::Gap { missing: before.sequence + 1 });
        }
        is_over
    }

    /// The newest entry is not in the log any more.
    fn move_to_newest(&mut self, newest: Position) {
        self.cursor = newest;
        self.needed_until = UnixTime::default();
    }

    fn begin_reload(&mut self, sent: BootTime, step: &mut Step) -> bool {
        step.reloaded = true;
        self.gap_since = None;
        let mut missing = self.recent.expected(sent);
        // What it lacked so far may be forgotten by now.
        if let Some(interrupted) = self.reload.take() {
            missing.merge(interrupted.missing);
        }
        self.reload = Some(Reload { after: Position::default(), at: None, missing });
        false
    }

    /// As [`FollowerState::follow_page`]. Numbers may be missing here: entries that no longer matter are deleted.
    fn reload_page(&mut self, mut reload: Reload, page: Page, sent: BootTime, now: UnixTime, step: &mut Step) -> bool {
        let newest = page.newest;
        let is_full = page.entries.len() >= self.page;
        let Some(entries) = entries_after(reload.after, page) else {
            // Deleted, or another failover: from the start again.
            self.reload = Some(reload);
            return self.begin_reload(sent, step);
        };
        let retained_since = now - self.retention;
        let mut gap = false;
        for entry in entries {
            let revocation = &entry.revocation;
            self.needed_until = revocation.until;
            reload.missing.found(revocation);
            // Too young to be deleted: a transaction that is not visible yet.
            let is_next = revocation.sequence == reload.after.sequence + 1;
            let is_young = reload.at.is_some_and(|at| at > retained_since);
            gap |= !gap && !is_next && is_young && !self.accepts_gap(reload.after, sent, step);
            if !gap {
                reload.after = entry.position();
                reload.at = Some(revocation.at);
                self.gap_since = None;
            }
            step.apply.push(entry.revocation);
        }
        if gap || is_full {
            self.reload = Some(reload);
            return false;
        }
        if reload.after == newest {
            self.cursor = newest;
        } else {
            self.move_to_newest(newest);
        }
        step.write_back = reload.missing.lost();
        if !step.write_back.is_empty() {
            step.alarms.push(Alarm::Lost(step.write_back.len()));
        }
        true
    }
}

/// Up to a fifth less, so that the polls of many gateways spread.
pub(super) fn spread(wait: Duration, random: u8) -> Duration {
    wait - wait / 5 * u32::from(random) / 256
}

/// The entries after `position`. `None` if the log is another one, or does not contain this entry.
fn entries_after(position: Position, page: Page) -> Option<vec::IntoIter<LogEntry>> {
    let mut entries = page.entries.into_iter();
    if position == Position::default() {
        return Some(entries);
    }
    match entries.next() {
        Some(first) if first.position() == position => Some(entries),
        // The newest entry may have been deleted, but it is still the newest one.
        None if page.newest == position => Some(entries),
        _ => None,
    }
}
