//! HTTP requests without TLS to a port that expects TLS.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The response: the mistake is in the URL.
const RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                        Content-Length: 47\r\nConnection: close\r\n\r\n\
                        This port accepts only HTTPS. Use an https URL.";

/// Bytes of the client that are read and discarded after the end.
const MAX_DISCARDED: usize = 64 * 1024;

/// Returns true if the first byte of a client begins such a request: with a method, which is a token (RFC 9110 section
/// 9.1). A handshake begins with byte 22, which is in no token.
pub fn begins_request(first: u8) -> bool {
    first.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&first)
}

/// Sends the response and ends the connection.
pub async fn reject(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(RESPONSE.as_bytes()).await?;
    close(stream).await
}

/// Ends the connection. Reads a little first, because to close a socket with unread data would discard what was sent.
pub async fn close(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    let mut unread = [0; 4096];
    let mut left = MAX_DISCARDED;
    while left > 0 {
        match stream.read(&mut unread).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_with_any_byte_of_a_token() {
        for first in 0..=u8::MAX {
            let is_method = http::Method::from_bytes(&[first]).is_ok();
            assert_eq!(begins_request(first), is_method, "{first}");
        }
        assert!(!begins_request(22), "a handshake");
    }
}
