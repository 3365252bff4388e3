//! Flood protection of HTTP/2: counts frames that carry no data and begin no request, before h2 acts on them.
//!
//! It also checks what h2 does not: that the first frame is SETTINGS, and that no request goes on when the client has
//! ended it. h2 would end the connection with PROTOCOL_ERROR.
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

use super::client_streams::ClientStreams;
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
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const PROTOCOL_ERROR: u8 = 1;
const STREAM_CLOSED: u8 = 5;
const ENHANCE_YOUR_CALM: u8 = 11;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// The client exceeded a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// `limits.http2_control_frames`, or a limit of h2.
    Frames,
    /// `limits.http2_resets`
    Resets,
}

/// Why the gateway reads nothing more of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    Flood(Flood),
    /// The first frame is not SETTINGS (RFC 9113 section 3.4).
    NoSettings,
    /// A frame of a request that the client has ended (RFC 9113 section 5.1).
    StreamClosed,
}

impl From<Flood> for Violation {
    fn from(flood: Flood) -> Self {
        Violation::Flood(flood)
    }
}

/// Follows the frames of one connection.
pub(super) struct FloodGuard {
    header: [u8; FRAME_HEADER],
    /// Bytes of `header` read so far.
    header_len: usize,
    /// Bytes until the next frame header.
    payload_left: usize,
    /// The client has sent its first SETTINGS.
    has_settings: bool,
    /// A header block has begun and not ended. h2 rejects everything but its rest.
    is_in_block: bool,
    streams: ClientStreams,
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
            has_settings: false,
            is_in_block: false,
            streams: ClientStreams::default(),
            control: Budget::new(settings.http2_control_frames, CONTROL_PERIOD, Flood::Frames),
            resets: Budget::new(settings.http2_resets.saturating_mul(2), RESETS_PERIOD, Flood::Resets),
            empty_data: 0,
            unearned: 0,
        }
    }

    /// Counts the frames in `bytes`, which the client sent, and deducts their cost from `turn`. Returns how many of the
    /// bytes h2 may act on in this turn: at least one. Marks malformed trailers for h2.
    pub(super) fn count_received(&mut self, bytes: &mut [u8], turn: &mut usize) -> Result<usize, Violation> {
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
                if !self.has_settings {
                    self.check_first_frame()?;
                }
                self.check_stream()?;
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

    fn check_first_frame(&mut self) -> Result<(), Violation> {
        let [.., kind, flags, _, _, _, _] = self.header;
        self.has_settings = kind == SETTINGS && flags & ACK == 0;
        if self.has_settings { Ok(()) } else { Err(Violation::NoSettings) }
    }

    /// Rejects a frame of a request that the client has ended. PRIORITY, WINDOW_UPDATE and RST_STREAM may follow its
    /// end (RFC 9113 section 5.1).
    fn check_stream(&self) -> Result<(), Violation> {
        let is_of_request = matches!(self.header[3], HEADERS | DATA);
        if is_of_request && !self.is_in_block && self.streams.has_ended(self.stream()) {
            Err(Violation::StreamClosed)
        } else {
            Ok(())
        }
    }

    /// The stream of the current frame.
    fn stream(&self) -> u32 {
        let [.., a, b, c, d] = self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Takes END_STREAM from trailers with a pseudo-header, so that h2 resets their stream. `at`: where the payload of
    /// the current frame begins. A client that sends header and payload apart is not stopped; h2 then drops its
    /// pseudo-headers. HEADERS after the end of the body are no trailers, and h2 rejects them as it must (RFC 9113
    /// section 5.1).
    fn mark_malformed_trailers(&self, bytes: &mut [u8], at: usize) {
        let [high, middle, low, kind, flags, ..] = self.header;
        if kind != HEADERS || flags & END_STREAM == 0 || !self.streams.is_open(self.stream()) {
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

    fn follow_streams(&mut self, kind: u8, flags: u8) {
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_in_block = flags & END_HEADERS == 0;
        }
        let stream = self.stream();
        if kind == HEADERS {
            self.streams.open(stream);
        }
        if kind == RST_STREAM || matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0 {
            self.streams.end(stream);
        }
    }

    /// Counts the frame of the current header and returns its cost.
    fn count_frame(&mut self) -> Result<usize, Flood> {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.follow_streams(kind, flags);
        match kind {
            HEADERS => {
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

    /// Returns a GOAWAY frame up to the newest request, for a flood with ENHANCE_YOUR_CALM (RFC 9113 section 10.5).
    pub(super) fn goaway(&self, violation: Violation) -> [u8; FRAME_HEADER + 8] {
        let [a, b, c, d] = self.streams.last().to_be_bytes();
        let code = match violation {
            Violation::Flood(_) => ENHANCE_YOUR_CALM,
            Violation::NoSettings => PROTOCOL_ERROR,
            Violation::StreamClosed => STREAM_CLOSED,
        };
        [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, a, b, c, d, 0, 0, 0, code]
    }
}

#[cfg(test)]
mod tests;
