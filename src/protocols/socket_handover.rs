//! Listening sockets that another process has bound: systemd, or the gateway that this one replaces.
//!
//! A socket that two processes hold is one socket with one queue: a client that connects while one of them ends and the other
//! begins waits in that queue, and is not refused. Two sockets at one address (SO_REUSEPORT) would have a queue each, and
//! what lies in a queue when its socket is closed is lost, unless net.ipv4.tcp_migrate_req is set.

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

/// What whoever replaces a gateway says first.
const GREETING: &[u8] = b"bearward take-over 1\n";
/// So many sockets come with one byte; the kernel takes up to 253.
const AT_ONCE: usize = 64;
const SOCKETS: u8 = b's';
const END: u8 = b'.';
/// Neither side keeps the other waiting: all is said at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// The sockets of systemd (sd_listen_fds(3)); none if it has passed none. To be asked once.
pub fn from_systemd() -> io::Result<Vec<TcpListener>> {
    let mut passed = ListenFd::from_env();
    (0..passed.len()).filter_map(|place| passed.take_tcp_listener(place).transpose()).collect()
}

/// Asks the gateway that listens at `path` for its sockets. `None` if there is none. When this returns, that gateway has begun
/// to end.
pub fn ask(path: &Path) -> io::Result<Option<Vec<TcpListener>>> {
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(GREETING)?;
    let mut taken = Vec::new();
    while receive(&stream, &mut taken)? != END {}
    Ok(Some(taken))
}

/// Gives the sockets to whoever asks on this stream, if that is a process of the same user, or root.
pub fn give(mut stream: UnixStream, listeners: &[TcpListener]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    if peer != geteuid() && !peer.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else's process asked for the sockets"));
    }
    let mut said = [0; GREETING.len()];
    stream.read_exact(&mut said)?;
    if said != *GREETING {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "something else than a gateway asked for the sockets"));
    }
    for some in listeners.chunks(AT_ONCE) {
        send(&stream, some)?;
    }
    stream.write_all(&[END])
}

fn send(stream: &UnixStream, listeners: &[TcpListener]) -> io::Result<()> {
    let descriptors: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("too many sockets at once"));
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(&[SOCKETS])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// One byte, and the sockets that came with it.
fn receive(stream: &UnixStream, taken: &mut Vec<TcpListener>) -> io::Result<u8> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway that runs broke off"));
    }
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            taken.extend(descriptors.map(TcpListener::from));
        }
    }
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_change_hands_with_what_waits_in_their_queues() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("socket");
        assert!(ask(&path).expect("asked").is_none(), "there is nobody");
        let offering = UnixListener::bind(&path).expect("bound");
        // More than go with one byte.
        let listeners: Vec<_> = (0..70).map(|_| TcpListener::bind("127.0.0.1:0").expect("bound")).collect();
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect();
        let waiting: Vec<_> = addresses.iter().map(std::net::TcpStream::connect).collect();
        let giving = std::thread::spawn(move || give(offering.accept().expect("asked").0, &listeners));
        let taken = ask(&path).expect("asked").expect("given");
        giving.join().expect("no panic").expect("given");
        for ((listener, address), client) in taken.iter().zip(addresses).zip(waiting) {
            assert_eq!(listener.local_addr().expect("an address"), address);
            let (_, peer) = listener.accept().expect("it waited");
            assert_eq!(peer, client.expect("connected").local_addr().expect("an address"));
        }
        assert!(ask(&path).expect("asked").is_none(), "nobody listens there any more");
    }

    #[test]
    fn who_does_not_ask_for_them_gets_none() {
        let (mut asking, offered) = UnixStream::pair().expect("a pair");
        asking.write_all(b"GET / HTTP/1.1\r\n\r\n....").expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        assert_eq!(give(offered, &[listener]).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    }
}
