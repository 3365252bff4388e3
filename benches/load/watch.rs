//! Three operators who watch a gateway: each has an open stream of statistics, and asks for the newest rejections and
//! the servers once a second.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Outcome;
use crate::client::{Connection, Target};

const OPERATORS: usize = 3;

/// They stop when this is dropped.
pub struct Watch {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    pub fn begin(admin: SocketAddr, token: &str) -> Outcome<Watch> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watch = Watch { streams: Vec::new(), threads: Vec::new(), stop: stop.clone() };
        for _ in 0..OPERATORS {
            let mut stream = TcpStream::connect(admin)?;
            stream.write_all(&get("/admin/v1/stats/stream", token))?;
            let mut first = [0; 12];
            stream.read_exact(&mut first)?;
            if first != *b"HTTP/1.1 200" {
                return Err(format!("stats/stream: got {}", String::from_utf8_lossy(&first)).into());
            }
            watch.streams.push(stream.try_clone()?);
            watch.threads.push(thread::spawn(move || {
                let mut buffer = [0; 16 * 1024];
                while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
            }));
            let mut polled = Connection::open(&Target::plain(admin))?;
            let calls = ["/admin/v1/rejections", "/admin/v1/upstreams"].map(|path| get(path, token));
            for call in &calls {
                let status = polled.exchange(call)?.status;
                if status != 200 {
                    return Err(format!("a call of an operator: got {status}").into());
                }
            }
            let stop = stop.clone();
            watch.threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_secs(1));
                    if calls.iter().any(|call| polled.exchange(call).is_err()) {
                        return;
                    }
                }
            }));
        }
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for stream in &self.streams {
            // Ignored: the gateway may have ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn get(path: &str, token: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n").into_bytes()
}
