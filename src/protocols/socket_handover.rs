//! Listening sockets of another process: of systemd, or of the gateway that this process replaces.
//!
//! Two processes that hold the same socket share its accept queue, so a client that connects during the take-over waits
//! there and is not rejected. Two sockets at one address (SO_REUSEPORT) have a queue each, and the connections in a
//! queue are lost when its socket is closed, unless net.ipv4.tcp_migrate_req is set.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use listenfd::ListenFd;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::process::geteuid;

/// What the new process sends first.
const GREETING: &[u8] = b"bearward take-over 2\n";
/// As processes of older versions send it, which confirm nothing.
const GREETING_WITHOUT_CONFIRMATION: &[u8; GREETING.len()] = b"bearward take-over 1\n";
/// Maximum sockets in one message. The kernel allows 253.
const SOCKETS_PER_MESSAGE: usize = 64;
const SOCKETS: u8 = b's';
const END: u8 = b'.';
/// The new process has all sockets that it needs.
const CONFIRMATION: u8 = b'!';
/// How long one side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets that systemd passed (sd_listen_fds(3)); empty if it passed none. To be called once.
pub fn from_systemd() -> io::Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    (0..passed.len()).filter_map(|at| passed.take_tcp_listener(at).transpose()).collect()
}

/// The sockets of another gateway, which still accepts. It goes on if this is dropped.
pub struct OfferedSockets {
    pub sockets: Vec<TcpListener>,
    stream: UnixStream,
    /// False for a gateway of an older version, which shuts down already.
    waits: bool,
}

impl OfferedSockets {
    /// Confirms that this process can use the sockets: the other gateway now begins to shut down. Later it can send
    /// more on the stream: see [`read_message`].
    pub fn confirm(mut self) -> io::Result<UnixStream> {
        if self.waits {
            self.stream.write_all(&[CONFIRMATION])?;
        }
        Ok(self.stream)
    }
}

/// Requests the sockets of the gateway that listens at `path`. `None` if there is no gateway.
pub fn request(path: &Path) -> io::Result<Option<OfferedSockets>> {
    match request_with(path, GREETING) {
        // A gateway of an older version has closed the connection.
        Err(error) if is_closed(&error) => request_with(path, GREETING_WITHOUT_CONFIRMATION),
        requested => requested,
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn request_with(path: &Path, greeting: &[u8]) -> io::Result<Option<OfferedSockets>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(greeting)?;
    let mut sockets = Vec::new();
    while receive(&stream, &mut sockets)? != END {}
    Ok(Some(OfferedSockets { sockets, stream, waits: greeting == GREETING }))
}

/// Sends the sockets to the process that requests them on this stream, if it runs as the same user or as root, and
/// waits until it has confirmed them. Returns the stream, for a message.
pub fn send(mut stream: UnixStream, listeners: &[TcpListener]) -> io::Result<UnixStream> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    if peer != geteuid() && !peer.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "a process of another user requested the sockets"));
    }
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting)?;
    let confirms = greeting == *GREETING;
    if !confirms && greeting != *GREETING_WITHOUT_CONFIRMATION {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the process that requested the sockets is not a gateway of this version",
        ));
    }
    for listeners in listeners.chunks(SOCKETS_PER_MESSAGE) {
        send_message(&stream, listeners)?;
    }
    stream.write_all(&[END])?;
    if confirms {
        read_confirmation(&mut stream)?;
    }
    Ok(stream)
}

fn read_confirmation(stream: &mut UnixStream) -> io::Result<()> {
    let mut byte = [0];
    let read = stream.read(&mut byte)?;
    match (read, byte[0]) {
        (1, CONFIRMATION) => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the next gateway cannot start; this one goes on")),
    }
}

/// Sends what the other process needs besides, and ends the stream.
pub fn write_message(mut stream: UnixStream, message: &[u8]) -> io::Result<()> {
    stream.write_all(message)
}

/// What the other process sends after the sockets. Empty if it sends nothing, as older versions. Waits until it has
/// ended the stream.
pub fn read_message(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut message = Vec::new();
    stream.read_to_end(&mut message)?;
    Ok(message)
}

fn send_message(stream: &UnixStream, listeners: &[TcpListener]) -> io::Result<()> {
    let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many sockets in one message"));
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(&[SOCKETS])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one byte, and adds the sockets of its message to `sockets`.
fn receive(stream: &UnixStream, sockets: &mut Vec<TcpListener>) -> io::Result<u8> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the running gateway closed the connection"));
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            sockets.extend(descriptors.map(TcpListener::from));
        }
    }
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_passed_with_their_accept_queues() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("socket");
        assert!(request(&path).expect("requested").is_none(), "no gateway listens there");
        let listening = UnixListener::bind(&path).expect("bound");
        // More than fit into one message.
        let listeners: Vec<_> = (0..70).map(|_| TcpListener::bind("127.0.0.1:0").expect("bound")).collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let waiting: Vec<_> = addresses.iter().map(std::net::TcpStream::connect).collect();
        let sending = std::thread::spawn(move || {
            let stream = send(listening.accept().expect("a request").0, &listeners)?;
            // More than the kernel keeps.
            write_message(stream, &[7; 1 << 20])
        });
        let mut offered = request(&path).expect("requested").expect("sent");
        let received = std::mem::take(&mut offered.sockets);
        let stream = offered.confirm().expect("confirmed");
        assert_eq!(read_message(&stream).expect("a message"), [7; 1 << 20]);
        sending.join().expect("no panic").expect("sent");
        for ((listener, address), client) in received.iter().zip(addresses).zip(waiting) {
            assert_eq!(listener.local_addr().expect("an address"), address);
            let (_, peer) = listener.accept().expect("it waited");
            assert_eq!(peer, client.expect("connected").local_addr().expect("an address"));
        }
        assert!(request(&path).expect("requested").is_none(), "no gateway listens there any more");
    }

    #[test]
    fn a_process_that_does_not_confirm_replaces_no_gateway() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("socket");
        let listening = UnixListener::bind(&path).expect("bound");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let sending = std::thread::spawn(move || send(listening.accept().expect("a request").0, &[listener]));
        let offered = request(&path).expect("requested").expect("sent");
        assert_eq!(offered.sockets.len(), 1);
        drop(offered);
        let error = sending.join().expect("no panic").expect_err("it goes on");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }

    /// An operator updates from an older version, or goes back to it.
    #[test]
    fn an_older_version_takes_over_and_is_replaced_without_a_confirmation() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("socket");
        let listening = UnixListener::bind(&path).expect("bound");
        let older = std::thread::spawn(move || {
            let mut greetings = Vec::new();
            loop {
                let (mut stream, _) = listening.accept().expect("a request");
                let mut greeting = [0; GREETING.len()];
                stream.read_exact(&mut greeting).expect("a greeting");
                greetings.push(greeting);
                if greeting == *GREETING_WITHOUT_CONFIRMATION {
                    stream.write_all(&[END]).expect("sent");
                    let mut rest = Vec::new();
                    stream.read_to_end(&mut rest).expect("read");
                    return (greetings.len(), rest);
                }
            }
        });
        drop(request(&path).expect("requested").expect("sent").confirm().expect("nothing to say"));
        assert_eq!(older.join().expect("no panic"), (2, Vec::new()), "it gets no byte that it does not expect");

        let (mut older, server) = UnixStream::pair().expect("a pair");
        older.write_all(GREETING_WITHOUT_CONFIRMATION).expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        assert!(send(server, &[listener]).is_ok());
    }

    #[test]
    fn another_program_gets_no_sockets() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        client.write_all(b"GET / HTTP/1.1\r\n\r\n....").expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        assert_eq!(send(server, &[listener]).map_err(|error| error.kind()).err(), Some(io::ErrorKind::InvalidData));
    }
}
