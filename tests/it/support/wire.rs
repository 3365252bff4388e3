//! One end of a TCP connection that sends and reads raw bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// How long tests wait for something before they fail. Much more than it takes, also beside a compiler.
pub const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Wire {
    pub stream: TcpStream,
    /// Bytes that were received and not returned yet.
    buffer: Vec<u8>,
}

/// A response as it was received.
#[derive(Debug)]
pub struct RawResponse {
    pub status: u16,
    /// The lines of the header section, the status line first.
    pub head: Vec<String>,
    /// The body by Content-Length, or all bytes of a chunked body.
    pub body: String,
}

impl RawResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.iter().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Wire {
    pub async fn connect(address: SocketAddr) -> Wire {
        Wire::of(TcpStream::connect(address).await.expect("the gateway listens"))
    }

    /// Connects from a chosen client address, for example to find the connection in a log. All of `127.0.0.0/8` is this
    /// machine.
    pub async fn connect_from(client: IpAddr, address: SocketAddr) -> Wire {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(client, 0)).expect("an address of this machine");
        Wire::of(socket.connect(address).await.expect("the gateway listens"))
    }

    pub fn of(stream: TcpStream) -> Wire {
        Wire { stream, buffer: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.expect("the peer reads the bytes");
    }

    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Reads up to and including `end`. Panics if the peer closes the connection first.
    pub async fn read_until(&mut self, end: &str) -> String {
        let received = self.try_read_until(end).await;
        received.unwrap_or_else(|| panic!("closed before {end:?}; received: {}", self.received()))
    }

    /// As [`Wire::read_until`]. Returns `None` if the peer closes the connection first.
    pub async fn try_read_until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end.as_bytes()) {
                let rest = self.buffer.split_off(at + end.len());
                return Some(String::from_utf8_lossy(&std::mem::replace(&mut self.buffer, rest)).into_owned());
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    /// Reads one response, and no byte after it.
    pub async fn read_response(&mut self) -> RawResponse {
        let head = self.read_until("\r\n\r\n").await;
        let head: Vec<String> = head.trim_end().split("\r\n").map(str::to_owned).collect();
        let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {head:?}"));
        let mut response = RawResponse { status, head, body: String::new() };
        if status == 101 || status == 204 || status == 304 || status == 100 {
            return response;
        }
        response.body = match response.header("content-length").map(|length| length.parse().expect("a number")) {
            Some(length) => String::from_utf8_lossy(&self.read_bytes(length).await).into_owned(),
            None if response.header("transfer-encoding").is_some() => self.read_until("0\r\n\r\n").await,
            None => self.read_to_end().await,
        };
        response
    }

    pub async fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.read_more().await, "closed before {count} bytes; received: {}", self.received());
        }
        let rest = self.buffer.split_off(count);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads until the peer closes the connection. Panics if it does not.
    pub async fn read_to_end(&mut self) -> String {
        while self.read_more().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned()
    }

    /// Asserts that the peer closes the connection and sends nothing more.
    pub async fn assert_closed(&mut self) {
        let rest = self.read_to_end().await;
        assert!(rest.is_empty(), "the peer sent this before it closed the connection: {rest}");
    }

    /// Sends, and waits for the first bytes of a response. Returns false if the peer closes the connection instead.
    pub async fn is_answered(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok() && self.read_more().await
    }

    /// Returns false if the peer has closed or reset the connection.
    async fn read_more(&mut self) -> bool {
        let reading = tokio::time::timeout(TIMEOUT, self.stream.read_buf(&mut self.buffer));
        match reading.await {
            Ok(read) => read.unwrap_or(0) > 0,
            Err(_) => panic!("no byte within {TIMEOUT:?}; received: {}", self.received()),
        }
    }

    fn received(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }
}
