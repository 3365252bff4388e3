//! The row `streams`: from the response to a revocation until the last byte of a response at another gateway, for
//! each of the sessions.
//!
//! The backend sends an event each second, and never ends its response.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::figures::Bench;
use crate::lag::millis;
use crate::postgres::PostgresServer;

/// Between two events of the backend.
const PAUSE: Duration = Duration::from_secs(1);

/// A stream that is open for so long after its revocation was missed.
const PATIENCE: Duration = Duration::from_secs(10);

const EVENT: &[u8] = b"d\r\ndata: hello\n\n\r\n";

impl Bench {
    /// `how` the other gateway learns of revocations.
    pub fn streams(&self, server: &PostgresServer, count: usize, how: &str) -> Outcome<()> {
        let schema = server.schema();
        let store = format!("postgres = \"{}\"\nschema = \"{schema}\"\n", server.url());
        let bench = Bench { program: self.program.clone(), upstream: events()?, clients: self.clients };
        let one = bench.start(&store)?;
        let other = bench.start(&store)?;
        let mut admin = one.admin()?;
        let mut streams = Vec::with_capacity(count);
        for number in 0..count {
            let pair = admin.login(&format!("user-{number}"))?;
            streams.push((pair.token_id, Stream::open(other.address(), &pair.access)?));
        }
        let began = Instant::now();
        let mut lags = Histogram::<u64>::new(3)?;
        let mut missed = 0;
        for (token_id, stream) in streams {
            let revoked = admin.call("DELETE", &format!("/admin/v1/tokens/{token_id}"), None)?;
            if revoked.status != 200 {
                return Err(format!("a revocation got {}", revoked.status).into());
            }
            let answered = Instant::now();
            match stream.0.recv_timeout(PATIENCE) {
                // It may have ended before the response was here.
                Ok(ended) => lags.record(u64::try_from(ended.saturating_duration_since(answered).as_micros())?)?,
                Err(_) => missed += 1,
            }
        }
        println!(
            "| until the last byte of a stream {how}, {count} sessions in {:.0?}, one after the other: p50, p99, max \
             | {} |",
            began.elapsed(),
            millis(&lags)
        );
        println!("| streams that did not end within {PATIENCE:?} {how} | {missed} |");
        Ok(())
    }
}

/// A response that goes on. It says when its last byte came.
struct Stream(Receiver<Instant>);

impl Stream {
    /// Returns when its first event has come.
    fn open(gateway: SocketAddr, access: &str) -> Outcome<Stream> {
        let connection = TcpStream::connect(gateway)?;
        write!(
            &connection,
            "GET /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {access}\r\n\r\n"
        )?;
        let mut lines = BufReader::new(connection);
        let mut seen = String::new();
        while !seen.contains("data: ") {
            if lines.read_line(&mut seen)? == 0 {
                return Err(format!("a stream ended before its first event: {seen}").into());
            }
        }
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut read = [0; 4096];
            while lines.read(&mut read).is_ok_and(|length| length > 0) {}
            sender.send(Instant::now())
        });
        Ok(Stream(receiver))
    }
}

/// A backend with a thread for each connection. Runs until the process exits.
fn events() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || send_events(connection));
        }
    });
    Ok(address)
}

fn send_events(mut connection: TcpStream) -> io::Result<()> {
    let mut head = BufReader::new(connection.try_clone()?);
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes())?;
    loop {
        connection.write_all(EVENT)?;
        thread::sleep(PAUSE);
    }
}
