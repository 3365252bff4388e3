//! A proxy in front of a provider that holds calls of the token endpoint back, so that a test can stop the gateway at a
//! point of a sign-in or of a refresh.

use std::net::{SocketAddr, TcpListener as StdListener};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::wait::eventually;

/// What does not pass.
#[derive(Clone, Copy, PartialEq)]
pub enum Hold {
    Nothing,
    Requests,
    /// The provider works on the requests. Its responses are held.
    Responses,
}

pub struct Held {
    socket: StdListener,
    pub address: SocketAddr,
    hold: watch::Sender<Hold>,
    /// Number of calls that were held.
    reached: watch::Sender<usize>,
}

impl Held {
    pub fn bind() -> Held {
        let socket = StdListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        Held { socket, address, hold: watch::Sender::new(Hold::Nothing), reached: watch::Sender::new(0) }
    }

    /// Passes connections on, in a thread of its own: a test that waits for a process must not stop it.
    pub fn pass_to(&self, provider: SocketAddr) {
        let socket = self.socket.try_clone().expect("a second handle");
        let (hold, reached) = (self.hold.subscribe(), self.reached.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                socket.set_nonblocking(true).expect("nonblocking");
                let listener = TcpListener::from_std(socket).expect("a listener");
                // The sender is dropped with the test.
                while hold.has_changed().is_ok() {
                    let Ok((client, _)) = listener.accept().await else { continue };
                    tokio::spawn(pass(client, provider, *hold.borrow(), reached.clone()));
                }
            });
        });
    }

    pub fn hold(&self, what: Hold) {
        self.hold.send_replace(what);
    }

    pub async fn is_reached(&self) {
        eventually("a call is held", || *self.reached.borrow() > 0).await;
    }

    pub fn reached(&self) -> usize {
        *self.reached.borrow()
    }
}

async fn pass(mut client: TcpStream, provider: SocketAddr, hold: Hold, reached: watch::Sender<usize>) {
    let Ok(mut server) = TcpStream::connect(provider).await else { return };
    let mut start = [0; 16];
    let Ok(count) = client.peek(&mut start).await else { return };
    if hold == Hold::Nothing || !start[..count].starts_with(b"POST /token ") {
        drop(copy_bidirectional(&mut client, &mut server).await);
        return;
    }
    if hold == Hold::Requests {
        reached.send_modify(|reached| *reached += 1);
        // Returns when the gateway was killed.
        drop(copy(&mut client, &mut tokio::io::sink()).await);
        return;
    }
    let (mut requests, _responses) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let sent = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = requests.read(&mut buffer).await {
            to_server.write_all(&buffer[..count]).await.expect("the provider reads");
        }
    });
    from_server.read_u8().await.expect("a response");
    reached.send_modify(|reached| *reached += 1);
    let _ = sent.await;
}
