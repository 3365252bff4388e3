//! Single HTTP/2 frames, also those that no client library would send.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::pipe::soon;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

/// `:status: 200` in the static table of HPACK.
pub const OK: u8 = 0x88;

/// The first bytes of a client (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The four bytes of the payload at this place.
    pub fn number_at(&self, place: usize) -> u32 {
        let bytes = self.payload[place..place + 4].try_into();
        u32::from_be_bytes(bytes.expect("four bytes"))
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface and empty SETTINGS.
pub fn begin() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// A complete request.
pub fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &request("GET", &[]))
}

/// The head of a request with a body.
pub fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &request("POST", &[]))
}

/// The header block of a request with further fields.
pub fn request(method: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    block(&[&pseudo, fields].concat())
}

/// Fields in their order, without compression (RFC 7541 section 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("a short text"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

pub async fn send(peer: &mut DuplexStream, frames: &[Vec<u8>]) {
    peer.write_all(&frames.concat()).await.expect("the library is there");
}

/// Reads the next frame of one of these kinds. Skips all others.
pub async fn next(peer: &mut DuplexStream, kinds: &[u8]) -> Frame {
    loop {
        let mut head = [0; 9];
        soon(peer.read_exact(&mut head)).await.expect("the library sends a frame");
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        soon(peer.read_exact(&mut payload)).await.expect("the library sends all of a frame");
        if kinds.contains(&kind) {
            return Frame { kind, flags, stream: u32::from_be_bytes(stream), payload };
        }
    }
}
