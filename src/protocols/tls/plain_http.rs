//! HTTP requests without TLS to a port that expects TLS.

/// The response: the mistake is in the URL.
pub const RESPONSE: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                            Content-Length: 47\r\nConnection: close\r\n\r\n\
                            This port accepts only HTTPS. Use an https URL.";

/// Returns true if the first byte of a client begins such a request. Methods begin with a capital letter, and a
/// handshake with byte 22.
pub fn begins_request(first: u8) -> bool {
    first.is_ascii_uppercase()
}
