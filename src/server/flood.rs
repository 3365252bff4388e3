//! HTTP/2 frames that ask for nothing and cost something: counted as they are read, before they are acted on.
//!
//! h2 itself bounds header blocks without end, streams that are reset before they are looked at (CVE-2023-44487), and streams
//! that it is made to reset (CVE-2025-8671). It answers any number of PING and SETTINGS (CVE-2019-9512, -9515),
//! takes any number of PRIORITY, WINDOW_UPDATE and unknown frames, and any number of requests that are cancelled once they
//! have begun. So those are counted here. And so is empty DATA, although h2 bounds it: we hear of that only when the connection is
//! over.
//!
//! Honest clients send such frames with something: a window is widened for data that came, a stream is cancelled now and then.
//! What they ask for, send and are sent earns the right to more. The clock is read only by those who have used up all.

use std::time::{Duration, Instant};

/// What of a connection may ask for nothing. 0: any number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// `limits.http2_control_frames`: within a second.
    pub http2_control_frames: u32,
    /// `limits.http2_resets`: within [`RESETS_WITHIN`].
    pub http2_resets: u32,
}

const CONTROL_WITHIN: Duration = Duration::from_secs(1);
const RESETS_WITHIN: Duration = Duration::from_secs(10);

/// DATA that is empty and ends nothing (CVE-2019-9518), for as long as a connection lasts. h2 takes no more, and has no option
/// for it.
const EMPTY_DATA: u32 = 100;

/// So much data earns one control frame. Clients that widen their windows with every piece they read do so for about 4 KiB at
/// the least, for the stream and for the connection.
const EARNS_ONE: usize = 1024;

/// What a client may give us to do before others have their turn, in bytes to be read. A frame costs something however small
/// it is; a request costs what some thousand bytes do, and eight of them are half a millisecond.
pub(super) const TURN: usize = 256 * 1024;
const OF_A_FRAME: usize = TURN / 512;
const OF_A_REQUEST: usize = TURN / 8;

/// RFC 9113 section 3.4
const PREFACE: usize = 24;
/// RFC 9113 section 4.1
const HEAD: usize = 9;

// RFC 9113 section 6
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ENHANCE_YOUR_CALM: u8 = 11;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// Too much of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flood;

/// Follows what a client says from frame to frame.
pub(super) struct FloodGuard {
    head: [u8; HEAD],
    /// Of the head, read so far.
    read: usize,
    /// Bytes until the next head.
    skip: usize,
    /// The newest request's stream.
    newest: [u8; 4],
    control: Budget,
    /// A cancelled request costs two, any request earns one: at most half of what is asked may be cancelled for ever.
    resets: Budget,
    empty_data: u32,
    /// Data that has earned nothing yet.
    unearned: usize,
}

struct Budget {
    full: u32,
    left: u32,
    /// When it was full, the last time that anybody looked.
    since: Instant,
    back_within: Duration,
}

impl Budget {
    fn of(full: u32, back_within: Duration) -> Budget {
        let full = if full == 0 { u32::MAX } else { full };
        Budget { full, left: full, since: Instant::now(), back_within }
    }

    fn earn(&mut self, amount: u32) {
        self.left = self.left.saturating_add(amount).min(self.full);
    }

    fn spend(&mut self, amount: u32) -> Result<(), Flood> {
        if self.left < amount {
            if self.since.elapsed() < self.back_within {
                return Err(Flood);
            }
            (self.left, self.since) = (self.full, Instant::now());
        }
        self.left = self.left.saturating_sub(amount);
        Ok(())
    }
}

impl FloodGuard {
    pub(super) fn new(settings: Settings) -> FloodGuard {
        FloodGuard {
            head: [0; HEAD],
            read: 0,
            skip: PREFACE,
            newest: [0; 4],
            control: Budget::of(settings.http2_control_frames, CONTROL_WITHIN),
            resets: Budget::of(settings.http2_resets.saturating_mul(2), RESETS_WITHIN),
            empty_data: 0,
            unearned: 0,
        }
    }

    /// The client said this. Answers how much of it may be acted on in this turn, of which `left` is left: a byte at the least.
    pub(super) fn heard(&mut self, bytes: &[u8], left: &mut usize) -> Result<usize, Flood> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let skipped = self.skip.min(rest.len());
            self.skip -= skipped;
            rest = &rest[skipped..];
            let taken = (HEAD - self.read).min(rest.len());
            self.head[self.read..self.read + taken].copy_from_slice(&rest[..taken]);
            self.read += taken;
            rest = &rest[taken..];
            if self.read == HEAD {
                self.read = 0;
                let is_over = *left == 0;
                *left = left.saturating_sub(self.frame()?);
                // What is acted on now is the frame before this one.
                if is_over {
                    break;
                }
            }
        }
        let passed = bytes.len() - rest.len();
        *left = left.saturating_sub(passed);
        Ok(passed)
    }

    /// The client took so many bytes.
    pub(super) fn said(&mut self, bytes: usize) {
        self.unearned += bytes;
        if self.unearned >= EARNS_ONE {
            self.control.earn(u32::try_from(self.unearned / EARNS_ONE).unwrap_or(u32::MAX));
            self.unearned %= EARNS_ONE;
        }
    }

    /// Answers what it costs.
    fn frame(&mut self) -> Result<usize, Flood> {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS => {
                self.newest = stream;
                self.control.earn(1);
                self.resets.earn(1);
                return Ok(OF_A_REQUEST);
            }
            DATA if self.skip == 0 && flags & END_STREAM == 0 => {
                self.empty_data += 1;
                if self.empty_data > EMPTY_DATA {
                    return Err(Flood);
                }
            }
            // Padding may be all that it has, which h2 takes for empty.
            DATA if flags & PADDED != 0 && self.skip <= 256 => self.control.spend(1)?,
            DATA => self.control.earn(1),
            CONTINUATION => {}
            RST_STREAM => self.resets.spend(2)?,
            _ => self.control.spend(1)?,
        }
        Ok(OF_A_FRAME)
    }

    /// GOAWAY, up to the newest request, with ENHANCE_YOUR_CALM (RFC 9113 section 10.5).
    pub(super) fn goodbye(&self) -> [u8; HEAD + 8] {
        let [a, b, c, d] = self.newest;
        [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, a, b, c, d, 0, 0, 0, ENHANCE_YOUR_CALM]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, stream: u8, payload: usize) -> Vec<u8> {
        let length = u16::try_from(payload).expect("short").to_be_bytes();
        [&[0, length[0], length[1], kind, 0, 0, 0, 0, stream], vec![kind; payload].as_slice()].concat()
    }

    impl FloodGuard {
        fn hear(&mut self, bytes: &[u8]) -> Result<(), Flood> {
            self.heard(bytes, &mut usize::MAX.clone()).map(|passed| assert_eq!(passed, bytes.len()))
        }
    }

    fn guard(control: u32, resets: u32) -> FloodGuard {
        let mut guard = FloodGuard::new(Settings { http2_control_frames: control, http2_resets: resets });
        // However long a test takes, no second passes in it but by its own doing.
        guard.control.back_within = Duration::MAX;
        guard.resets.back_within = Duration::MAX;
        assert_eq!(guard.hear(&[b'P'; PREFACE]), Ok(()));
        guard
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let said = [frame(PING, 0, 8), frame(HEADERS, 3, 300), frame(DATA, 3, 1), frame(PING, 0, 8)].concat();
        for piece in 1..40 {
            let mut guard = guard(10, 10);
            for bytes in said.chunks(piece) {
                assert_eq!(guard.hear(bytes), Ok(()));
            }
            assert_eq!((guard.control.left, guard.skip, guard.read), (9, 0, 0), "in pieces of {piece}");
            assert_eq!(guard.goodbye()[9..13], [0, 0, 0, 3]);
        }
    }

    #[test]
    fn what_is_asked_for_sent_and_taken_earns_more() {
        let mut guard = guard(3, 0);
        let ping = frame(PING, 0, 8);
        assert_eq!(guard.hear(&ping.repeat(3)), Ok(()));
        assert_eq!(guard.control.spend(1), Err(Flood));
        guard.said(EARNS_ONE - 1);
        assert_eq!(guard.control.spend(1), Err(Flood));
        guard.said(1);
        assert_eq!(guard.control.spend(1), Ok(()));
        let with_something = [frame(DATA, 1, 1), ping.clone(), frame(HEADERS, 1, 1), ping.clone()].concat();
        assert_eq!(guard.hear(&with_something), Ok(()));
        guard.said(1_000_000);
        assert_eq!(guard.control.left, 3, "nobody saves up more than a second's");
        assert_eq!(guard.hear(&ping.repeat(3)), Ok(()));
        guard.control.back_within = Duration::ZERO;
        assert_eq!(guard.hear(&ping.repeat(3)), Ok(()), "the next second has its own");
    }

    #[test]
    fn half_of_all_requests_may_be_cancelled_for_ever_and_no_more() {
        let (ask, cancel) = (frame(HEADERS, 1, 1), frame(RST_STREAM, 1, 4));
        let mut honest = guard(0, 10);
        assert_eq!(honest.hear(&[ask.clone(), ask.clone(), cancel.clone()].concat().repeat(1000)), Ok(()));
        let mut attacker = guard(0, 10);
        let ended = (1..1000).find(|_| attacker.hear(&[ask.clone(), cancel.clone()].concat()).is_err());
        assert_eq!(ended, Some(20));
        assert_eq!(guard(0, 0).hear(&cancel.repeat(1000)), Ok(()), "no limit");
    }

    #[test]
    fn so_much_data_may_be_empty_that_ends_nothing_and_no_more() {
        let mut guard = guard(0, 0);
        let (empty, mut last) = (frame(DATA, 1, 0), frame(DATA, 1, 0));
        last[4] = END_STREAM;
        assert_eq!(guard.hear(&[last, frame(DATA, 1, 1)].concat().repeat(1000)), Ok(()));
        assert_eq!(guard.hear(&empty.repeat(100)), Ok(()));
        assert_eq!(guard.hear(&empty), Err(Flood));
    }

    #[test]
    fn padding_is_no_data() {
        let mut guard = guard(3, 0);
        let mut padded = frame(DATA, 1, 1);
        padded[4] = PADDED;
        assert_eq!(guard.hear(&padded.repeat(3)), Ok(()));
        assert_eq!(guard.hear(&padded), Err(Flood));
    }

    #[test]
    fn a_turn_is_so_many_frames_and_fewer_requests() {
        for (kind, payload, at_least, at_most) in [(PING, 8, 400, 512), (HEADERS, 30, 7, 9), (DATA, 4_000, 50, 60)] {
            let frame = frame(kind, 1, payload);
            let said = frame.repeat(5000);
            let (mut guard, mut passed, mut turns) = (guard(0, 0), 0, 0);
            while passed < said.len() {
                let mut left = TURN;
                while left > 0 && passed < said.len() {
                    // As they are read: some KiB at once.
                    let read = &said[passed..said.len().min(passed + 8192)];
                    passed += guard.heard(read, &mut left).expect("no limit");
                }
                turns += 1;
            }
            let in_one = 5000 / turns;
            assert!((at_least..=at_most).contains(&in_one), "{kind}: {in_one} frames in a turn");
            assert_eq!((guard.skip, guard.read), (0, 0));
        }
    }
}
