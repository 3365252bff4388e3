//! A minimal client with one keep-alive HTTP/1.1 connection. It costs less CPU time than the gateway.
//!
//! It blocks and runs in its own thread. A timer of the operating system wakes it to the microsecond when a request is
//! due. The timers of an asynchronous runtime count in milliseconds.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use socket2::{Domain, Socket, Type};

use crate::Outcome;

#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    pub tls: Option<Arc<ClientConfig>>,
    /// Source address of connections; `None`: the kernel chooses.
    pub from: Option<IpAddr>,
}

impl Target {
    pub fn plain(address: SocketAddr) -> Target {
        Target { address, tls: None, from: None }
    }
}

pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

pub struct Connection {
    target: Target,
    /// `None` after a response with `Connection: close`.
    stream: Option<Stream>,
    read: Vec<u8>,
    /// Number of TLS handshakes that resumed a session.
    pub resumed: u64,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    pub fn open(target: &Target) -> Outcome<Connection> {
        let (target, stream) = (target.clone(), Some(connect(target)?));
        Ok(Connection { target, stream, read: Vec::with_capacity(16 * 1024), resumed: 0 })
    }

    /// Closes the connection. The next request opens a new one.
    pub fn close(&mut self) {
        self.stream = None;
    }

    /// Sends one request unchanged and reads the response, which must have a Content-Length.
    pub fn exchange(&mut self, request: &[u8]) -> Outcome<Response> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = connect(&self.target)?;
                self.resumed += u64::from(stream.is_resumed());
                stream
            }
        };
        stream.write_all(request)?;
        self.read.clear();
        let head_end = loop {
            read_more(&mut stream, &mut self.read)?;
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = Head::parse(&self.read[..head_end])?;
        while self.read.len() < head_end + head.content_length {
            read_more(&mut stream, &mut self.read)?;
        }
        if !head.closes {
            self.stream = Some(stream);
        }
        Ok(Response { status: head.status, body: self.read[head_end..].to_vec() })
    }

    /// Opens a WebSocket with this request. The connection carries no request after it.
    pub fn upgrade(&mut self, request: &[u8]) -> Outcome<()> {
        let stream = self.stream.as_mut().ok_or("the connection is closed")?;
        stream.write_all(request)?;
        self.read.clear();
        while !self.read.ends_with(b"\r\n\r\n") {
            read_more(stream, &mut self.read)?;
        }
        if self.read.starts_with(b"HTTP/1.1 101 ") {
            return Ok(());
        }
        Err(format!("cannot open a WebSocket:\n{}", String::from_utf8_lossy(&self.read)).into())
    }

    /// The values of a header of the last response.
    pub fn values<'c>(&'c self, name: &'c str) -> impl Iterator<Item = &'c str> {
        let text = std::str::from_utf8(&self.read).unwrap_or_default();
        let lines = text.split("\r\n").take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
        lines.filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Connects from this source address, or from one that the kernel chooses.
pub fn connect_from(from: Option<IpAddr>, address: SocketAddr) -> io::Result<TcpStream> {
    let Some(from) = from else { return TcpStream::connect(address) };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    // A peer that does not accept ends the bench with an error instead of blocking it.
    socket.connect_timeout(&address.into(), Duration::from_secs(10))?;
    Ok(socket.into())
}

fn connect(target: &Target) -> Outcome<Stream> {
    let tcp = connect_from(target.from, target.address)?;
    tcp.set_nodelay(true)?;
    // A gateway that does not respond ends the bench with an error instead of blocking it.
    tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
    let Some(config) = &target.tls else { return Ok(Stream::Plain(tcp)) };
    let connection = ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
    let mut stream = StreamOwned::new(connection, tcp);
    stream.flush()?;
    Ok(Stream::Tls(Box::new(stream)))
}

impl Stream {
    fn is_resumed(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

fn read_more(stream: &mut Stream, read: &mut Vec<u8>) -> Outcome<()> {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer)? {
        0 => Err("the connection was closed in the middle of a response".into()),
        length => {
            read.extend_from_slice(&buffer[..length]);
            Ok(())
        }
    }
}

struct Head {
    status: u16,
    content_length: usize,
    closes: bool,
}

impl Head {
    fn parse(bytes: &[u8]) -> Outcome<Head> {
        let text = std::str::from_utf8(bytes)?;
        let unexpected = || format!("cannot parse the response:\n{text}");
        let status = text.get(9..12).and_then(|digits| digits.parse().ok()).ok_or_else(unexpected)?;
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        let content_length = field("content-length").and_then(|value| value.parse().ok()).ok_or_else(unexpected)?;
        let closes = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        Ok(Head { status, content_length, closes })
    }
}
