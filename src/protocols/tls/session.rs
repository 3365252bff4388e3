//! The negotiated version and cipher of a client connection, for the log.

use rustls::{CipherSuite, ProtocolVersion, ServerConnection};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Such as `TLSv1.3`.
    pub version: &'static str,
    /// The name that IANA gives the cipher suite.
    pub cipher: &'static str,
}

impl Session {
    /// `None` before the handshake has ended.
    pub fn of(connection: &ServerConnection) -> Option<Self> {
        let version = match connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => "other",
        };
        let cipher = match connection.negotiated_cipher_suite()?.suite() {
            // rustls has names of its own for those of TLS 1.3.
            CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
            CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
            other => other.as_str().unwrap_or("other"),
        };
        Some(Session { version, cipher })
    }
}
