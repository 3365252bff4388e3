//! The HTTP/2 streams that the client of a connection has opened, and those that it has ended.

use std::ops::Range;

/// Maximum requests of which the gateway remembers that their body has not ended, and maximum gaps between the streams
/// that the client has opened. What is older is unknown: h2 alone looks at it, and drops pseudo-headers in its
/// trailers.
const MAX_REMEMBERED: usize = 256;

/// The streams that the client may open have odd numbers, and each a higher one than all before (RFC 9113 section
/// 5.1.1).
#[derive(Default)]
pub(super) struct ClientStreams {
    /// The stream of the newest request. 0: there was none.
    last: u32,
    /// Streams before this one are unknown.
    known_from: u32,
    /// Streams of which the client may send more, the oldest first.
    open: Vec<u32>,
    /// Streams that the client has never opened, the oldest first.
    skipped: Vec<Range<u32>>,
}

impl ClientStreams {
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// Notes that a header block begins. Only the first one of a stream opens it: others are trailers.
    pub(super) fn open(&mut self, stream: u32) {
        if stream <= self.last {
            return;
        }
        match self.last {
            0 => self.known_from = stream,
            last if stream > last + 2 => self.skipped.push(last + 1..stream),
            _ => {}
        }
        self.last = stream;
        self.open.push(stream);
        if self.open.len() > MAX_REMEMBERED {
            let forgotten = self.open.remove(0);
            self.known_from = self.known_from.max(forgotten + 1);
        }
        if self.skipped.len() > MAX_REMEMBERED {
            let forgotten = self.skipped.remove(0);
            self.known_from = self.known_from.max(forgotten.end);
        }
    }

    /// Notes that the client sends no more of this stream.
    pub(super) fn end(&mut self, stream: u32) {
        if let Ok(place) = self.open.binary_search(&stream) {
            self.open.remove(place);
        }
    }

    /// Returns true if the client may send more of this stream.
    pub(super) fn is_open(&self, stream: u32) -> bool {
        self.open.binary_search(&stream).is_ok()
    }

    /// Returns true if the client has opened this stream, and has ended it. A stream that the gateway has reset is open
    /// until then: its frames may be on the way (RFC 9113 section 5.1).
    pub(super) fn has_ended(&self, stream: u32) -> bool {
        let is_known = stream >= self.known_from && stream <= self.last && stream % 2 == 1;
        is_known && !self.is_open(stream) && !self.skipped.iter().any(|gap| gap.contains(&stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_ended_if_the_client_has_opened_it() {
        let mut streams = ClientStreams::default();
        for stream in [3, 5, 7, 13] {
            streams.open(stream);
        }
        for stream in [3, 13, 9, 100] {
            streams.end(stream);
        }
        // Trailers.
        streams.open(5);
        let ended: Vec<_> = (0..20).filter(|stream| streams.has_ended(*stream)).collect();
        let open: Vec<_> = (0..20).filter(|stream| streams.is_open(*stream)).collect();
        assert_eq!((ended, open, streams.last()), (vec![3, 13], vec![5, 7], 13));
    }

    #[test]
    fn a_client_makes_the_gateway_remember_no_more_than_a_limit() {
        for step in [2, 4] {
            let mut streams = ClientStreams::default();
            let opened: Vec<u32> = (0..1_000).map(|number| 1 + step * number).collect();
            for stream in &opened {
                streams.open(*stream);
            }
            assert!(streams.open.len() == MAX_REMEMBERED && streams.skipped.len() <= MAX_REMEMBERED);
            // An older one may be open or not.
            assert!(!opened.iter().any(|stream| streams.has_ended(*stream)));
            for stream in &opened[999 - 9..] {
                streams.end(*stream);
            }
            assert_eq!(opened.iter().filter(|stream| streams.has_ended(**stream)).count(), 10);
        }
    }
}
