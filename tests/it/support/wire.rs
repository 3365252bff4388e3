//! A client that says exactly what it is told, byte for byte, and hears exactly what comes back.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What takes longer than this does not happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Wire {
    pub stream: TcpStream,
    /// What came and was not asked for yet.
    heard: Vec<u8>,
}

/// An answer as it stood on the wire.
#[derive(Debug)]
pub struct Heard {
    pub status: u16,
    /// Lines of the head, the status line first.
    pub head: Vec<String>,
    /// As framed by Content-Length; of a chunked body, the chunks as they came.
    pub body: String,
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.iter().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Wire {
    pub async fn connect(address: SocketAddr) -> Wire {
        Wire::of(TcpStream::connect(address).await.expect("the gateway listens"))
    }

    /// From one of this machine's addresses: all of `127.0.0.0/8` are. By it, the connection is found in a log.
    pub async fn connect_from(client: IpAddr, address: SocketAddr) -> Wire {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(client, 0)).expect("an address of this machine");
        Wire::of(socket.connect(address).await.expect("the gateway listens"))
    }

    pub fn of(stream: TcpStream) -> Wire {
        Wire { stream, heard: Vec::new() }
    }

    pub async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_say(bytes).await.expect("the other side takes it");
    }

    pub async fn try_say(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Everything up to and with `end`.
    pub async fn hear_until(&mut self, end: &str) -> String {
        let heard = self.try_hear_until(end).await;
        heard.unwrap_or_else(|| panic!("closed before {end:?}; heard: {}", self.heard_so_far()))
    }

    /// `None` if the other side closes before it says `end`.
    pub async fn try_hear_until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.heard.windows(end.len()).position(|window| window == end.as_bytes()) {
                let rest = self.heard.split_off(at + end.len());
                return Some(String::from_utf8_lossy(&std::mem::replace(&mut self.heard, rest)).into_owned());
            }
            if !self.hear_more().await {
                return None;
            }
        }
    }

    /// One answer, without a byte of what follows it.
    pub async fn answer(&mut self) -> Heard {
        let head = self.hear_until("\r\n\r\n").await;
        let head: Vec<String> = head.trim_end().split("\r\n").map(str::to_owned).collect();
        let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {head:?}"));
        let mut heard = Heard { status, head, body: String::new() };
        if status == 101 || status == 204 || status == 304 || status == 100 {
            return heard;
        }
        heard.body = match heard.header("content-length").map(|length| length.parse().expect("a number")) {
            Some(length) => String::from_utf8_lossy(&self.hear_bytes(length).await).into_owned(),
            None if heard.header("transfer-encoding").is_some() => self.hear_until("0\r\n\r\n").await,
            None => self.hear_to_the_end().await,
        };
        heard
    }

    pub async fn hear_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.heard.len() < count {
            assert!(self.hear_more().await, "closed before {count} bytes; heard: {}", self.heard_so_far());
        }
        let rest = self.heard.split_off(count);
        std::mem::replace(&mut self.heard, rest)
    }

    /// Everything that comes before the other side closes, as it must.
    pub async fn hear_to_the_end(&mut self) -> String {
        while self.hear_more().await {}
        String::from_utf8_lossy(&std::mem::take(&mut self.heard)).into_owned()
    }

    /// Asserts that the other side closes, and says nothing more before it does.
    pub async fn is_closed(&mut self) {
        let rest = self.hear_to_the_end().await;
        assert!(rest.is_empty(), "closed, but not before saying: {rest}");
    }

    /// `false` once the other side has closed. A reset is an end, too.
    async fn hear_more(&mut self) -> bool {
        let reading = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.heard));
        match reading.await {
            Ok(read) => read.unwrap_or(0) > 0,
            Err(_) => panic!("silence, and no end of it; heard: {}", self.heard_so_far()),
        }
    }

    fn heard_so_far(&self) -> String {
        String::from_utf8_lossy(&self.heard).into_owned()
    }
}
