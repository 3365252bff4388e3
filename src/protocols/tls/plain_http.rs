//! HTTP requests without TLS to a port that expects TLS.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The response: the mistake is in the URL.
const RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                        Content-Length: 47\r\nConnection: close\r\n\r\n\
                        This port accepts only HTTPS. Use an https URL.";

/// Bytes of the client that are read and discarded after the end.
const MAX_DISCARDED: usize = 64 * 1024;

/// Returns true if the first byte of a client begins such a request. Methods begin with a capital letter, and a
/// handshake with byte 22.
pub fn begins_request(first: u8) -> bool {
    first.is_ascii_uppercase()
}

/// Sends the response and ends the connection.
pub async fn reject(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(RESPONSE.as_bytes()).await?;
    close(stream).await
}

/// Ends the connection. Reads a little first, because to close a socket with unread data would discard what was sent.
pub async fn close(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    let (mut unread, mut left) = ([0; 4096], MAX_DISCARDED);
    while left > 0 {
        match stream.read(&mut unread).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}
