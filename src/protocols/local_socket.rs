//! Unix sockets between the gateway and its own tools: the admin API for the command line, and take-overs.
//!
//! Both sides ask the kernel for the user of the other process (SO_PEERCRED), which cannot be forged. So no secret
//! travels, and a process of another user that created the socket first gets nothing.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::types::process::{self, ROOT};

/// Maximum bytes of the path of a socket: `sun_path` of unix(7), without the zero at its end.
pub const MAX_PATH_SIZE: usize = 107;

/// A listening socket at a path. Dropping it removes the path.
pub struct LocalListener {
    socket: net::UnixListener,
    path: PathBuf,
}

impl LocalListener {
    /// Replaces a socket that a killed process has left behind. Fails if a process still listens there.
    pub fn bind(path: &Path) -> io::Result<Self> {
        remove_unused(path)?;
        let listener = LocalListener { socket: net::UnixListener::bind(path)?, path: path.to_owned() };
        // Connections before this line are harmless, because each side checks the user of the other.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.socket.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Registers a copy of the socket with the runtime of the current thread. When the path is removed, connections
    /// that wait already can still be accepted.
    pub fn accepting(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.socket.try_clone()?)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        // The next process replaces a socket that is left behind.
        let _ = fs::remove_file(&self.path);
    }
}

fn remove_unused(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "the path is that of another file"));
        }
        Ok(_) => {}
    }
    match net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            fs::remove_file(path).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
        }
        Err(error) => Err(error),
    }
}

/// Connects to the gateway that listens at `path`. Fails before anything is sent if the process there runs as a user
/// that is not trusted.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await?;
    let peer = stream.peer_cred()?.uid();
    let own = process::user();
    let folder = || folder_owner(path);
    if is_trusted_server(peer, own, folder) {
        Ok(stream)
    } else {
        Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("the process that listens there runs as user {peer}, which is neither {own} nor root"),
        ))
    }
}

/// A command of root also trusts the user of the gateway: the one that owns the folder of the socket, if no other user
/// can write to that folder.
fn is_trusted_server(peer: u32, own: u32, folder_owner: impl FnOnce() -> Option<u32>) -> bool {
    peer == own || peer == ROOT || (own == ROOT && folder_owner() == Some(peer))
}

/// `None` if other users than the owner can write to the folder.
fn folder_owner(path: &Path) -> Option<u32> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = fs::metadata(folder).ok()?;
    (folder.mode() & 0o022 == 0).then(|| folder.uid())
}

/// Fails if the client is a process of another user. Root may do everything anyway.
pub fn check_client(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer == process::user() || peer == ROOT {
        Ok(())
    } else {
        Err(io::Error::new(ErrorKind::PermissionDenied, format!("the client runs as user {peer}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_trusts_its_own_user_and_root_only() {
        let never = || -> Option<u32> { panic!("only root asks for the folder") };
        for (peer, own, trusted) in [(7, 7, true), (0, 7, true), (8, 7, false), (0, 0, true)] {
            assert_eq!(is_trusted_server(peer, own, never), trusted, "{peer} {own}");
        }
        assert!(is_trusted_server(7, 0, || Some(7)), "root calls the gateway of user 7");
        assert!(!is_trusted_server(8, 0, || Some(7)));
        assert!(!is_trusted_server(8, 0, || None), "others can write to the folder");
    }

    #[test]
    fn a_folder_that_others_can_write_to_has_no_owner() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("socket");
        for (mode, is_private) in [(0o700, true), (0o755, true), (0o770, false), (0o777, false), (0o1777, false)] {
            fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("set");
            assert_eq!(folder_owner(&path).is_some(), is_private, "{mode:o}");
        }
    }

    #[test]
    fn only_a_socket_that_no_process_uses_is_replaced() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("socket");
        let first = LocalListener::bind(&path).expect("bound");
        assert_eq!(fs::metadata(&path).expect("it exists").mode() & 0o777, 0o600);
        let kind = |result: io::Result<LocalListener>| result.err().expect("it fails").kind();
        assert_eq!(kind(LocalListener::bind(&path)), ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "the path is removed");
        // As after a kill.
        drop(net::UnixListener::bind(&path).expect("bound"));
        drop(LocalListener::bind(&path).expect("replaced"));
        fs::write(&path, "a file of the operator").expect("written");
        assert_eq!(kind(LocalListener::bind(&path)), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("it is still there"), "a file of the operator");
    }
}
