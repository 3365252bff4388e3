//! The boundaries of WebSocket frames (RFC 6455 section 5.2). Only frame heads are parsed; payloads are neither kept
//! nor unmasked. Invalid frames lead to wrong boundaries, and to nothing worse.

use crate::protocols::boundaries::Boundaries;

/// Maximum bytes of a frame head: two, a length of eight, a mask of four.
const MAX_HEAD: usize = 14;
const CLOSE: u8 = 0x8;
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Maximum payload of a close frame, its code included.
const MAX_CONTROL_PAYLOAD: usize = 125;

/// The position of one direction within its frames.
#[derive(Clone, Default)]
pub(super) struct Frames {
    head: [u8; MAX_HEAD],
    /// How many bytes of the head have passed; 0 between two frames.
    head_bytes: usize,
    /// How many bytes of the payload are still to come.
    remaining: u64,
    is_closed: bool,
}

impl Frames {
    /// Returns true after a close frame. No frame may follow it.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl Boundaries for Frames {
    fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.remaining == 0
    }

    fn advance(&mut self, bytes: &[u8]) -> usize {
        if self.head_bytes == 0 && self.remaining > 0 {
            let taken = self.remaining.min(bytes.len() as u64);
            self.remaining -= taken;
            return taken as usize;
        }
        self.head[self.head_bytes] = bytes[0];
        self.head_bytes += 1;
        if self.head_bytes == head_len(&self.head[..self.head_bytes]) {
            self.remaining = payload_len(&self.head);
            self.is_closed |= self.head[0] & 0x0f == CLOSE;
            self.head_bytes = 0;
        }
        1
    }
}

/// The length of the head that begins with these bytes; the maximum as long as it is not known.
fn head_len(head: &[u8]) -> usize {
    let Some(second) = head.get(1) else { return MAX_HEAD };
    let extended = match second & !MASKED {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + extended + if second & MASKED == 0 { 0 } else { 4 }
}

fn payload_len(head: &[u8; MAX_HEAD]) -> u64 {
    let [_, second, rest @ ..] = head;
    match second & !MASKED {
        126 => u64::from(u16::from_be_bytes([rest[0], rest[1]])),
        127 => u64::from_be_bytes(std::array::from_fn(|place| rest[place])),
        len => u64::from(len),
    }
}

/// A close frame with a code and a reason, masked if the gateway sends it as a client.
pub(super) fn close(code: u16, reason: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    let reason = &reason.as_bytes()[..reason.len().min(MAX_CONTROL_PAYLOAD - 2)];
    let payload = code.to_be_bytes().into_iter().chain(reason.iter().copied());
    let len = reason.len() as u8 + 2;
    match mask {
        None => [FIN | CLOSE, len].into_iter().chain(payload).collect(),
        Some(mask) => {
            let masked = payload.zip(mask.into_iter().cycle()).map(|(byte, mask)| byte ^ mask);
            [FIN | CLOSE, MASKED | len].into_iter().chain(mask).chain(masked).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, len: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { MASKED } else { 0 };
        let mut frame = vec![FIN | opcode];
        match len {
            0..126 => frame.push(mask | len as u8),
            126..65_536 => {
                frame.push(mask | 126);
                frame.extend((len as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((len as u64).to_be_bytes());
            }
        }
        frame.extend(if masked { &[1, 2, 3, 4][..] } else { &[] });
        // A payload that looks like a close frame.
        frame.extend(std::iter::repeat_n(FIN | CLOSE, len));
        frame
    }

    #[test]
    fn boundaries_are_found_however_the_bytes_are_cut() {
        for masked in [false, true] {
            let sizes = [0, 1, 125, 126, 127, 65_535, 65_536, 70_000];
            let all_frames: Vec<Vec<u8>> = sizes.iter().map(|size| frame(2, *size, masked)).collect();
            let end_of = |count: usize| all_frames[..count].iter().map(Vec::len).sum::<usize>();
            let ends: Vec<usize> = (1..=all_frames.len()).map(end_of).collect();
            let all = all_frames.concat();
            for step in [1, 2, 3, 7, 1000, 65_537, all.len()] {
                let mut frames = Frames::default();
                let mut at = 0;
                for piece in all.chunks(step) {
                    frames.follow(piece);
                    at += piece.len();
                    assert_eq!(frames.is_between(), ends.contains(&at), "{at} by {step}");
                }
                assert!(!frames.is_closed());
            }
        }
    }

    #[test]
    fn only_the_rest_of_a_frame_is_consumed() {
        let first = frame(1, 300, false);
        let second = frame(8, 2, false);
        let both = [&first[..], &second].concat();
        for cut in 0..=first.len() {
            let mut frames = Frames::default();
            frames.follow(&both[..cut]);
            let rest = if cut == 0 { 0 } else { first.len() - cut };
            assert_eq!(frames.rest_of_unit(&both[cut..]), rest, "{cut}");
            assert!(frames.is_between() && !frames.is_closed());
        }
        let mut frames = Frames::default();
        frames.follow(&both);
        assert!(frames.is_closed());
    }

    #[test]
    fn close_frames_are_encoded_as_the_standard_says() {
        assert_eq!(close(1008, "no", None), [0x88, 4, 3, 0xf0, b'n', b'o']);
        assert_eq!(close(1001, "", Some([1, 2, 3, 4])), [0x88, 0x82, 1, 2, 3, 4, 3 ^ 1, 0xe9 ^ 2]);
        assert_eq!(close(1008, &"x".repeat(200), None).len(), 127);
    }
}
