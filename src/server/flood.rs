//! Flood protection of HTTP/2: counts frames that carry no data and begin no request, before h2 acts on them.
//!
//! h2 itself limits header blocks that never end, streams that the client resets before h2 looks at them
//! (CVE-2023-44487), and streams that the client makes h2 reset (CVE-2025-8671). It replies to any number of PING and
//! SETTINGS frames (CVE-2019-9512, CVE-2019-9515). It accepts any number of PRIORITY, WINDOW_UPDATE and unknown frames,
//! and any number of requests that are cancelled after they began. This file counts all of those. It also counts empty
//! DATA frames: h2 limits them, but reports that only when the connection is over.
//!
//! Honest clients send such frames too: they widen a window for data that arrived, or cancel a stream now and then. So
//! requests, request data and response data that the client reads earn further control frames. The clock is read only
//! when a budget is used up.

use std::time::{Duration, Instant};

use super::settings::FloodSettings;
use super::trailers;

const CONTROL_PERIOD: Duration = Duration::from_secs(1);
const RESETS_PERIOD: Duration = Duration::from_secs(10);

/// Maximum empty DATA frames without END_STREAM in one connection (CVE-2019-9518). h2 has the same limit, and no option
/// for it.
const MAX_EMPTY_DATA: u32 = 100;

/// Response bytes that earn one control frame. A client that widens its windows for every piece it reads does so for
/// about 4 KiB or more, once for the stream and once for the connection.
const BYTES_PER_CONTROL_FRAME: usize = 1024;

/// How much work a client may cause before other clients have their turn, in bytes to read. A frame costs something
/// however small it is. A request costs as much as some thousand bytes; eight requests take half a millisecond.
pub(super) const TURN: usize = 256 * 1024;
const FRAME_COST: usize = TURN / 512;
const REQUEST_COST: usize = TURN / 8;

/// Length of the connection preface (RFC 9113 section 3.4).
const PREFACE: usize = 24;
/// Length of a frame header (RFC 9113 section 4.1).
const FRAME_HEADER: usize = 9;

// RFC 9113 section 6
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ENHANCE_YOUR_CALM: u8 = 11;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;

/// The client exceeded a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// `limits.http2_control_frames`, or a limit of h2.
    Frames,
    /// `limits.http2_resets`, or a limit of h2.
    Resets,
}

/// Follows the frames of one connection.
pub(super) struct FloodGuard {
    header: [u8; FRAME_HEADER],
    /// Bytes of `header` read so far.
    header_len: usize,
    /// Bytes until the next frame header.
    payload_left: usize,
    /// The stream of the newest request.
    last_stream: [u8; 4],
    control: Budget,
    /// A cancelled request costs two and each request earns one, so a client may cancel half of its requests for ever.
    resets: Budget,
    empty_data: u32,
    /// Response bytes that have not earned a control frame yet.
    unearned: usize,
}

struct Budget {
    capacity: u32,
    left: u32,
    refilled_at: Instant,
    period: Duration,
    /// What it is to have used it up.
    flood: Flood,
}

impl Budget {
    fn new(capacity: u32, period: Duration, flood: Flood) -> Budget {
        let capacity = if capacity == 0 { u32::MAX } else { capacity };
        Budget { capacity, left: capacity, refilled_at: Instant::now(), period, flood }
    }

    fn earn(&mut self, amount: u32) {
        self.left = self.left.saturating_add(amount).min(self.capacity);
    }

    fn spend(&mut self, amount: u32) -> Result<(), Flood> {
        if self.left < amount {
            if self.refilled_at.elapsed() < self.period {
                return Err(self.flood);
            }
            (self.left, self.refilled_at) = (self.capacity, Instant::now());
        }
        self.left = self.left.saturating_sub(amount);
        Ok(())
    }
}

impl FloodGuard {
    pub(super) fn new(settings: FloodSettings) -> FloodGuard {
        FloodGuard {
            header: [0; FRAME_HEADER],
            header_len: 0,
            payload_left: PREFACE,
            last_stream: [0; 4],
            control: Budget::new(settings.http2_control_frames, CONTROL_PERIOD, Flood::Frames),
            resets: Budget::new(settings.http2_resets.saturating_mul(2), RESETS_PERIOD, Flood::Resets),
            empty_data: 0,
            unearned: 0,
        }
    }

    /// Counts the frames in `bytes`, which the client sent, and deducts their cost from `turn`. Returns how many of the
    /// bytes h2 may act on in this turn: at least one. Marks malformed trailers for h2.
    pub(super) fn count_received(&mut self, bytes: &mut [u8], turn: &mut usize) -> Result<usize, Flood> {
        let mut at = 0;
        while at < bytes.len() {
            let skipped = self.payload_left.min(bytes.len() - at);
            self.payload_left -= skipped;
            at += skipped;
            let taken = (FRAME_HEADER - self.header_len).min(bytes.len() - at);
            self.header[self.header_len..self.header_len + taken].copy_from_slice(&bytes[at..at + taken]);
            self.header_len += taken;
            at += taken;
            if self.header_len == FRAME_HEADER {
                self.header_len = 0;
                // The reserved bit of the stream identifier, which receivers ignore (RFC 9113 section 4.1).
                self.header[5] &= 0x7f;
                self.mark_malformed_trailers(bytes, at);
                let turn_is_over = *turn == 0;
                *turn = turn.saturating_sub(self.count_frame()?);
                // h2 acts on the frame before this one now.
                if turn_is_over {
                    break;
                }
            }
        }
        *turn = turn.saturating_sub(at);
        Ok(at)
    }

    /// Takes END_STREAM from trailers with a pseudo-header, so that h2 resets their stream. `at`: where the payload of
    /// the current frame begins. A client that sends header and payload apart is not stopped; h2 then drops its
    /// pseudo-headers.
    fn mark_malformed_trailers(&self, bytes: &mut [u8], at: usize) {
        let [high, middle, low, kind, flags, stream @ ..] = self.header;
        // The HEADERS of a request have a higher stream than all before.
        if kind != HEADERS || flags & END_STREAM == 0 || stream > self.last_stream {
            return;
        }
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let payload = &bytes[at..bytes.len().min(at + length)];
        // The flags are the fifth of the nine bytes before the payload.
        if trailers::begin_with_pseudo_header(flags, payload)
            && let Some(flags) = at.checked_sub(5).and_then(|flags| bytes.get_mut(flags))
        {
            *flags &= !END_STREAM;
        }
    }

    /// Counts bytes that were sent to the client.
    pub(super) fn count_sent(&mut self, bytes: usize) {
        self.unearned += bytes;
        if self.unearned >= BYTES_PER_CONTROL_FRAME {
            self.control.earn(u32::try_from(self.unearned / BYTES_PER_CONTROL_FRAME).unwrap_or(u32::MAX));
            self.unearned %= BYTES_PER_CONTROL_FRAME;
        }
    }

    /// Counts the frame of the current header and returns its cost.
    fn count_frame(&mut self) -> Result<usize, Flood> {
        let [high, middle, low, kind, flags, stream @ ..] = self.header;
        self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        match kind {
            HEADERS => {
                self.last_stream = self.last_stream.max(stream);
                self.control.earn(1);
                self.resets.earn(1);
                return Ok(REQUEST_COST);
            }
            DATA if self.payload_left == 0 && flags & END_STREAM == 0 => {
                self.empty_data += 1;
                if self.empty_data > MAX_EMPTY_DATA {
                    return Err(Flood::Frames);
                }
            }
            // The payload may be padding only. h2 counts such a frame as empty.
            DATA if flags & PADDED != 0 && self.payload_left <= 256 => self.control.spend(1)?,
            DATA => self.control.earn(1),
            CONTINUATION => {}
            RST_STREAM => self.resets.spend(2)?,
            _ => self.control.spend(1)?,
        }
        Ok(FRAME_COST)
    }

    /// Returns a GOAWAY frame up to the newest request, with ENHANCE_YOUR_CALM (RFC 9113 section 10.5).
    pub(super) fn goaway(&self) -> [u8; FRAME_HEADER + 8] {
        let [a, b, c, d] = self.last_stream;
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
        fn receive(&mut self, bytes: &[u8]) -> Result<(), Flood> {
            self.count_received(&mut bytes.to_vec(), &mut usize::MAX.clone())
                .map(|passed| assert_eq!(passed, bytes.len()))
        }
    }

    fn guard(control_frames: u32, resets: u32) -> FloodGuard {
        let mut guard = FloodGuard::new(FloodSettings { http2_control_frames: control_frames, http2_resets: resets });
        // A slow test machine must not refill the budgets.
        guard.control.period = Duration::MAX;
        guard.resets.period = Duration::MAX;
        assert_eq!(guard.receive(&[b'P'; PREFACE]), Ok(()));
        guard
    }

    #[test]
    fn frames_are_counted_across_any_read_boundary() {
        let sent = [frame(PING, 0, 8), frame(HEADERS, 3, 300), frame(DATA, 3, 1), frame(PING, 0, 8)].concat();
        for piece in 1..40 {
            let mut guard = guard(10, 10);
            for bytes in sent.chunks(piece) {
                assert_eq!(guard.receive(bytes), Ok(()));
            }
            assert_eq!((guard.control.left, guard.payload_left, guard.header_len), (9, 0, 0), "in pieces of {piece}");
            assert_eq!(guard.goaway()[9..13], [0, 0, 0, 3]);
        }
    }

    #[test]
    fn requests_and_data_earn_control_frames() {
        let mut guard = guard(3, 0);
        let ping = frame(PING, 0, 8);
        assert_eq!(guard.receive(&ping.repeat(3)), Ok(()));
        assert_eq!(guard.control.spend(1), Err(Flood::Frames));
        guard.count_sent(BYTES_PER_CONTROL_FRAME - 1);
        assert_eq!(guard.control.spend(1), Err(Flood::Frames));
        guard.count_sent(1);
        assert_eq!(guard.control.spend(1), Ok(()));
        let useful = [frame(DATA, 1, 1), ping.clone(), frame(HEADERS, 1, 1), ping.clone()].concat();
        assert_eq!(guard.receive(&useful), Ok(()));
        guard.count_sent(1_000_000);
        assert_eq!(guard.control.left, 3, "the budget never exceeds its capacity");
        assert_eq!(guard.receive(&ping.repeat(3)), Ok(()));
        guard.control.period = Duration::ZERO;
        assert_eq!(guard.receive(&ping.repeat(3)), Ok(()), "a new period refills the budget");
    }

    #[test]
    fn a_client_may_cancel_half_of_its_requests() {
        let (request, cancel) = (frame(HEADERS, 1, 1), frame(RST_STREAM, 1, 4));
        let mut honest = guard(0, 10);
        assert_eq!(honest.receive(&[request.clone(), request.clone(), cancel.clone()].concat().repeat(1000)), Ok(()));
        let mut attacker = guard(0, 10);
        let ended = (1..1000).find(|_| attacker.receive(&[request.clone(), cancel.clone()].concat()).is_err());
        assert_eq!(ended, Some(20));
        assert_eq!(guard(0, 0).receive(&cancel.repeat(1000)), Ok(()), "no limit");
    }

    #[test]
    fn empty_data_frames_without_end_stream_are_limited() {
        let mut guard = guard(0, 0);
        let (empty, mut last) = (frame(DATA, 1, 0), frame(DATA, 1, 0));
        last[4] = END_STREAM;
        assert_eq!(guard.receive(&[last, frame(DATA, 1, 1)].concat().repeat(1000)), Ok(()));
        assert_eq!(guard.receive(&empty.repeat(100)), Ok(()));
        assert_eq!(guard.receive(&empty), Err(Flood::Frames));
    }

    #[test]
    fn padding_does_not_count_as_data() {
        let mut guard = guard(3, 0);
        let mut padded = frame(DATA, 1, 1);
        padded[4] = PADDED;
        assert_eq!(guard.receive(&padded.repeat(3)), Ok(()));
        assert_eq!(guard.receive(&padded), Err(Flood::Frames));
    }

    #[test]
    fn a_turn_holds_fewer_requests_than_frames() {
        for (kind, payload, at_least, at_most) in [(PING, 8, 400, 512), (HEADERS, 30, 7, 9), (DATA, 4_000, 50, 60)] {
            let frame = frame(kind, 1, payload);
            let sent = frame.repeat(5000);
            let (mut guard, mut passed, mut turns) = (guard(0, 0), 0, 0);
            while passed < sent.len() {
                let mut left = TURN;
                while left > 0 && passed < sent.len() {
                    // As the gateway reads them: some KiB at once.
                    let mut read = sent[passed..sent.len().min(passed + 8192)].to_vec();
                    passed += guard.count_received(&mut read, &mut left).expect("no limit");
                }
                turns += 1;
            }
            let in_one = 5000 / turns;
            assert!((at_least..=at_most).contains(&in_one), "{kind}: {in_one} frames in a turn");
            assert_eq!((guard.payload_left, guard.header_len), (0, 0));
        }
    }
}
