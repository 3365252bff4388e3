//! Frames as bytes, in whole and in pieces.

use super::*;

const PING: u8 = 6;

/// With END_HEADERS, which has no meaning in other frames.
fn frame(kind: u8, stream: u32, payload: usize) -> Vec<u8> {
    let length = u16::try_from(payload).expect("short").to_be_bytes();
    let flags = if kind == HEADERS { END_HEADERS } else { 0 };
    let head = [&[0, length[0], length[1], kind, flags], &stream.to_be_bytes()[..]].concat();
    [head, vec![kind; payload]].concat()
}

fn ended(mut frame: Vec<u8>) -> Vec<u8> {
    frame[4] |= END_STREAM;
    frame
}

impl FloodGuard {
    fn receive(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.count_received(&mut bytes.to_vec(), &mut usize::MAX.clone()).map(|passed| assert_eq!(passed, bytes.len()))
    }
}

fn guard(control_frames: u32, resets: u32) -> FloodGuard {
    let mut guard = FloodGuard::new(FloodSettings { http2_control_frames: control_frames, http2_resets: resets });
    // A slow test machine must not refill the budgets.
    guard.control.period = Duration::MAX;
    guard.resets.period = Duration::MAX;
    assert_eq!(guard.receive(&[&[b'P'; PREFACE][..], &frame(SETTINGS, 0, 0)].concat()), Ok(()));
    guard.control.left = guard.control.capacity;
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
        assert_eq!(guard.goaway(Violation::NoSettings)[9..13], [0, 0, 0, 3]);
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
    let request = |stream| frame(HEADERS, stream, 1);
    let cancel = |stream| frame(RST_STREAM, stream, 4);
    let mut honest = guard(0, 10);
    let half = (0..1000).flat_map(|pair| [request(2 * pair + 1), request(2 * pair + 2), cancel(2 * pair + 2)]);
    assert_eq!(honest.receive(&half.flatten().collect::<Vec<u8>>()), Ok(()));
    let mut attacker = guard(0, 10);
    let ended = (1..1000).find(|stream| attacker.receive(&[request(*stream), cancel(*stream)].concat()).is_err());
    assert_eq!(ended, Some(20));
    assert_eq!(guard(0, 0).receive(&cancel(1).repeat(1000)), Ok(()), "no limit");
}

#[test]
fn empty_data_frames_without_end_stream_are_limited() {
    let mut guard = guard(0, 0);
    let empty = frame(DATA, 1, 0);
    let mut last = frame(DATA, 1, 0);
    last[4] = END_STREAM;
    assert_eq!(guard.receive(&[last, frame(DATA, 1, 1)].concat().repeat(1000)), Ok(()));
    assert_eq!(guard.receive(&empty.repeat(100)), Ok(()));
    assert_eq!(guard.receive(&empty), Err(Flood::Frames.into()));
}

#[test]
fn padding_does_not_count_as_data() {
    let mut guard = guard(3, 0);
    let mut padded = frame(DATA, 1, 1);
    padded[4] = PADDED;
    assert_eq!(guard.receive(&padded.repeat(3)), Ok(()));
    assert_eq!(guard.receive(&padded), Err(Flood::Frames.into()));
}

#[test]
fn the_first_frame_is_settings_however_it_is_read() {
    let mut ack = frame(SETTINGS, 0, 0);
    ack[4] = ACK;
    for (first, expected) in [
        (frame(SETTINGS, 0, 6), Ok(())),
        (ack, Err(Violation::NoSettings)),
        (frame(PING, 0, 8), Err(Violation::NoSettings)),
        (frame(HEADERS, 1, 9), Err(Violation::NoSettings)),
    ] {
        let sent = [&[b'P'; PREFACE][..], &first].concat();
        for piece in 1..sent.len() {
            let mut guard = FloodGuard::new(FloodSettings { http2_control_frames: 0, http2_resets: 0 });
            let received = sent.chunks(piece).try_for_each(|bytes| guard.receive(bytes));
            assert_eq!(received, expected, "{first:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_body_ends_with_data_with_trailers_or_with_a_reset() {
    let mut guard = guard(0, 0);
    let begun = [frame(HEADERS, 1, 1), ended(frame(HEADERS, 3, 1)), frame(HEADERS, 5, 1), frame(HEADERS, 7, 1)];
    assert_eq!(guard.receive(&begun.concat()), Ok(()));
    assert_eq!([1, 3, 5, 7].map(|stream| guard.streams.is_open(stream)), [true, false, true, true]);
    let ends = [ended(frame(DATA, 5, 1)), frame(DATA, 1, 1), frame(RST_STREAM, 7, 4), ended(frame(HEADERS, 1, 1))];
    assert_eq!(guard.receive(&ends.concat()), Ok(()));
    assert_eq!([1, 3, 5, 7].map(|stream| guard.streams.has_ended(stream)), [true; 4]);
}

#[test]
fn a_request_goes_on_until_the_client_has_ended_it() {
    let closed = Err(Violation::StreamClosed);
    let open = Ok(());
    for (sent, expected) in [
        (vec![ended(frame(HEADERS, 1, 1)), frame(DATA, 1, 1)], closed),
        (vec![ended(frame(HEADERS, 1, 1)), ended(frame(HEADERS, 1, 1))], closed),
        (vec![frame(HEADERS, 1, 1), ended(frame(DATA, 1, 1)), frame(HEADERS, 1, 1)], closed),
        (vec![frame(HEADERS, 1, 1), frame(RST_STREAM, 1, 4), frame(DATA, 1, 1)], closed),
        (vec![frame(HEADERS, 1, 1), frame(DATA, 1, 1), ended(frame(HEADERS, 1, 1))], open),
        (vec![frame(HEADERS, 1, 1), ended(frame(HEADERS, 3, 1)), frame(DATA, 1, 1)], open),
        (vec![ended(frame(HEADERS, 1, 1)), frame(RST_STREAM, 1, 4), frame(PING, 0, 8)], open),
        (vec![ended(frame(HEADERS, 1, 1)), frame(HEADERS, 3, 1), frame(DATA, 1, 1)], closed),
        (vec![ended(frame(HEADERS, 1, 1)), frame(HEADERS, 3, 1), frame(RST_STREAM, 1, 4)], open),
        (vec![ended(frame(HEADERS, 1, 1)), frame(HEADERS, 5, 1), ended(frame(HEADERS, 1, 1))], closed),
        (vec![frame(HEADERS, 1, 1), frame(HEADERS, 3, 1), ended(frame(HEADERS, 1, 1))], open),
        // h2 rejects these.
        (vec![ended(frame(HEADERS, 1, 1)), frame(HEADERS, 5, 1), frame(DATA, 3, 1)], open),
        (vec![frame(DATA, 0, 1)], open),
    ] {
        assert_eq!(guard(0, 0).receive(&sent.concat()), expected, "{sent:?}");
    }
}

#[test]
fn a_turn_holds_fewer_requests_than_frames() {
    for (kind, payload, at_least, at_most) in [(PING, 8, 400, 512), (HEADERS, 30, 7, 9), (DATA, 4_000, 50, 60)] {
        let frame = frame(kind, 1, payload);
        let sent = frame.repeat(5000);
        let mut guard = guard(0, 0);
        let mut passed = 0;
        let mut turns = 0;
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
