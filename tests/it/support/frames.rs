//! Builds single HTTP/2 frames, also those that no client library would send.

use std::net::SocketAddr;

use super::wire::Wire;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// `:status: 200` in the static table of HPACK: the first byte of a response's HEADERS.
pub const OK: u8 = 0x88;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The first bytes of a client, before its SETTINGS (RFC 9113 section 3.4).
pub const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface and empty SETTINGS.
pub fn connection_preface() -> Vec<u8> {
    [PREFACE.as_bytes(), &frame(SETTINGS, 0, 0, &[])].concat()
}

/// The preface and the largest flow-control windows.
pub fn connection_preface_with_max_windows() -> Vec<u8> {
    let initial_window = [&[0, 4], (i32::MAX).to_be_bytes().as_slice()].concat();
    let increment = (i32::MAX - 65_535).to_be_bytes();
    [PREFACE.as_bytes(), &frame(SETTINGS, 0, 0, &initial_window), &frame(WINDOW_UPDATE, 0, 0, &increment)].concat()
}

/// A complete `GET path` for the host `a`.
pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &header_block("GET", path))
}

/// The pseudo-headers of a request, without compression (RFC 7541 section 6.2.2).
pub fn header_block(method: &str, path: &str) -> Vec<u8> {
    let indexed =
        |index: u8, value: &str| [&[index, u8::try_from(value.len()).expect("short")], value.as_bytes()].concat();
    [indexed(2, method), indexed(6, "http"), indexed(1, "a"), indexed(4, path)].concat()
}

/// Header fields as given, also invalid ones, without compression.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// Opens a connection and sends `frames`.
pub async fn connect(address: SocketAddr, frames: &[Vec<u8>]) -> Wire {
    let mut wire = Wire::connect(address).await;
    wire.send(frames.concat()).await;
    wire
}

/// Reads the next frame of one of these kinds. Skips all others.
pub async fn next(wire: &mut Wire, kinds: &[u8]) -> Frame {
    loop {
        let head = wire.read_bytes(9).await;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = wire.read_bytes(length).await;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if kinds.contains(&head[3]) {
            return Frame { kind: head[3], stream, payload };
        }
    }
}
