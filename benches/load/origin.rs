//! The backend of the load test. Depending on the path, it responds with 1 KiB, with 1 MiB, or never.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Starts the origin in a thread that runs until the process exits.
pub fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    thread::Builder::new().name("origin".into()).spawn(move || runtime.block_on(accept(listener)))?;
    Ok(address)
}

async fn accept(listener: TcpListener) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (connection, _) = listener.accept().await?;
        tokio::spawn(serve(connection));
    }
}

/// Reads each request, including a body with Content-Length, and responds.
async fn serve(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let response = response(1024);
    // Allocated on first use: most connections never need it.
    let mut large = Vec::new();
    let mut read = Vec::with_capacity(4096);
    loop {
        if connection.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        while let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            if read.starts_with(b"GET /public/never ") || read.starts_with(b"POST /public/never ") {
                return read_forever(connection).await;
            }
            let switched = read.starts_with(b"GET /stream ").then(|| switching_protocols(&read[..end + 2]));
            let is_large = read.starts_with(b"GET /public/1m ");
            let is_login = read.starts_with(b"POST /login ");
            let is_post = read.starts_with(b"POST ");
            let length =
                if is_post { field(&read[..end + 2], "content-length").parse().unwrap_or_default() } else { 0 };
            read.drain(..end + 4);
            while read.len() < length {
                if connection.read_buf(&mut read).await? == 0 {
                    return Ok(());
                }
            }
            read.drain(..length);
            if let Some(switched) = switched {
                connection.write_all(switched.as_bytes()).await?;
                continue;
            }
            if is_login {
                connection.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await?;
                continue;
            }
            if is_large {
                if large.is_empty() {
                    large = self::response(1 << 20);
                }
                connection.write_all(&large).await?;
                continue;
            }
            connection.write_all(&response).await?;
        }
    }
}

/// The response that opens a WebSocket. No message follows.
fn switching_protocols(head: &[u8]) -> String {
    let accept = derive_accept_key(field(head, "sec-websocket-key").as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

/// The value of a field, or an empty string. The gateway and its peers write one space after the colon.
fn field(head: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(head);
    let fields = text.lines().filter_map(|line| line.split_once(": "));
    let value = fields.into_iter().find(|(sent, _)| sent.eq_ignore_ascii_case(name));
    value.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// Reads and discards everything. Never responds.
async fn read_forever(mut connection: TcpStream) -> io::Result<()> {
    let mut space = vec![0; 16 * 1024];
    while connection.read(&mut space).await? > 0 {}
    Ok(())
}

fn response(length: usize) -> Vec<u8> {
    let body = "x".repeat(length);
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}
