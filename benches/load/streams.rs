//! WebSockets that are open and silent beside the requests of a scenario: what they cost others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::Outcome;

/// Opens so many, in turn for each of these tokens. They are closed when the answer is dropped.
pub fn open(address: SocketAddr, tokens: &[String], count: usize) -> Outcome<Vec<TcpStream>> {
    tokens.iter().cycle().take(count).map(|token| open_one(address, token)).collect()
}

fn open_one(address: SocketAddr, token: &str) -> Outcome<TcpStream> {
    let too_many =
        |error| format!("{error}: each stream takes two open files here and in the gateway; see `ulimit -n`");
    let mut stream = TcpStream::connect(address).map_err(too_many)?;
    let handshake = format!(
        "GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(handshake.as_bytes())?;
    let mut heard = Vec::new();
    let mut buffer = [0; 1024];
    while !heard.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => break,
            count => heard.extend_from_slice(&buffer[..count]),
        }
    }
    match heard.starts_with(b"HTTP/1.1 101 ") {
        true => Ok(stream),
        false => Err(format!("no WebSocket was opened: {}", String::from_utf8_lossy(&heard)).into()),
    }
}
