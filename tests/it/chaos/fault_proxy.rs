//! A proxy between a gateway and its database that makes the faults of a network.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// What happens to the bytes of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Each piece waits this long.
    Delay(Duration),
    /// The same for requests only. The server reads its clock late in each round trip then, as if its statements were
    /// slow.
    DelayRequests(Duration),
    /// Nothing passes, as if the network were cut. Connections stay open, and what waits passes later.
    BlackHole,
    /// Requests pass, and the database works on them. Its responses are lost, also those of later.
    SwallowResponses,
    /// Notifications of the database are lost, as behind a pooler. Everything else passes.
    NoNotifications,
}

#[derive(Clone, Copy)]
struct State {
    target: SocketAddr,
    /// It speaks the protocol of PostgreSQL.
    is_database: bool,
    fault: Fault,
    /// Connections of an earlier number are reset.
    resets: u64,
}

/// Listens on a port of its own. Passes nothing more when it is dropped.
pub(super) struct FaultProxy {
    pub(super) address: SocketAddr,
    state: watch::Sender<State>,
}

impl FaultProxy {
    pub(super) fn start(target: SocketAddr) -> FaultProxy {
        Self::start_at(Ipv4Addr::LOCALHOST, target, true)
    }

    /// Listens at this address. Every fault but [`Fault::NoNotifications`] works for a server that is no database.
    pub(super) fn start_at(address: Ipv4Addr, target: SocketAddr, is_database: bool) -> FaultProxy {
        let listener = StdListener::bind((address, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("nonblocking");
        let (state, watched) = watch::channel(State { target, is_database, fault: Fault::None, resets: 0 });
        // A thread of its own: a test that waits in its runtime must not stop the proxy.
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve(listener, watched));
        });
        FaultProxy { address, state }
    }

    pub(super) fn set(&self, fault: Fault) {
        self.state.send_modify(|state| state.fault = fault);
    }

    /// Sends new connections to another server, as an address that moves does, and resets the others.
    pub(super) fn move_to(&self, target: SocketAddr) {
        self.state.send_modify(|state| (state.target, state.resets) = (target, state.resets + 1));
    }

    /// Resets all connections.
    pub(super) fn reset(&self) {
        self.state.send_modify(|state| state.resets += 1);
    }
}

async fn serve(listener: StdListener, state: watch::Receiver<State>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        tokio::spawn(connect(client, state.clone()));
    }
}

async fn connect(client: TcpStream, mut state: watch::Receiver<State>) {
    let State { target, is_database, resets, .. } = *state.borrow();
    let Ok(server) = TcpStream::connect(target).await else { return };
    let content = if is_database { Content::Messages } else { Content::Responses };
    let (client, server) = (client.into_split(), server.into_split());
    let requests = pass(client.0, server.1, state.clone(), Content::Requests);
    let responses = pass(server.0, client.1, state.clone(), content);
    tokio::select! {
        _ = async { tokio::join!(requests, responses) } => {}
        // The halves are dropped, and with them the connections.
        _ = state.wait_for(|state| state.resets != resets) => {}
    }
}

/// What passes in one direction.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Requests,
    /// The responses of a database.
    Messages,
    /// The responses of another server.
    Responses,
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>, content: Content) {
    let mut buffer = vec![0; 64 * 1024];
    let mut is_lost = false;
    let mut messages = Messages::default();
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let Ok(fault) = state.wait_for(|state| state.fault != Fault::BlackHole).await.map(|state| state.fault) else {
            return;
        };
        match fault {
            Fault::Delay(time) => sleep(time).await,
            Fault::DelayRequests(time) if content == Content::Requests => sleep(time).await,
            _ => {}
        }
        is_lost |= content != Content::Requests && fault == Fault::SwallowResponses;
        let piece = match content {
            Content::Messages => messages.pass(&buffer[..count], fault != Fault::NoNotifications),
            Content::Requests | Content::Responses => buffer[..count].to_vec(),
        };
        if !is_lost && to.write_all(&piece).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

/// The messages of the server: a letter, the length with itself but without the letter, and the content. `A` is a
/// notification. Before the first message, single letters tell if the server encrypts.
#[derive(Default)]
struct Messages {
    waiting: Vec<u8>,
    has_begun: bool,
}

impl Messages {
    /// Returns the complete messages so far, with or without notifications.
    fn pass(&mut self, piece: &[u8], with_notifications: bool) -> Vec<u8> {
        self.waiting.extend(piece);
        let mut passed = Vec::new();
        if !self.has_begun && matches!(self.waiting[..], [b'N' | b'S' | b'G']) {
            return std::mem::take(&mut self.waiting);
        }
        self.has_begun = true;
        while let Some(length) = self.waiting.get(1..5) {
            let length = 1 + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
            if self.waiting.len() < length {
                break;
            }
            let message: Vec<u8> = self.waiting.drain(..length).collect();
            if with_notifications || message[0] != b'A' {
                passed.extend(message);
            }
        }
        passed
    }
}
