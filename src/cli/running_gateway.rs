//! The admin socket of a gateway after the key that names its path was edited: the gateway listens at the old path
//! until it is restarted.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::Value;

use super::admin_client;

/// The sockets of this machine (proc_pid_net(5)).
const SOCKETS: &str = "/proc/net/unix";
/// The flag of a socket that listens.
const LISTENS: &[u8] = b"00010000";
/// The end of the path, unless `admin.socket` names another one.
const ENDING: &str = ".admin";

/// Where the gateway listens that was started with this file, if it does not listen at `named`.
pub(super) fn find(file: &Path, named: &Path) -> Option<PathBuf> {
    let is_missing = fs::symlink_metadata(named).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !is_missing {
        return None;
    }
    let file = fs::canonicalize(file).ok()?;
    // Without such a process, no other gateway is asked.
    if !processes().any(|process| may_serve(&process, &file)) {
        return None;
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    // A relative path begins in the working folder of the gateway: mostly this one, or that of the file.
    let sockets = listening(&fs::read(SOCKETS).ok()?);
    let mut places = sockets.iter().flat_map(|path| [path.clone(), folder.join(path)]).filter(|path| path.exists());
    places.find(|path| is_of(path, &file))
}

/// The folders of the processes of this machine in proc(5).
fn processes() -> impl Iterator<Item = PathBuf> {
    let is_number =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().iter().all(u8::is_ascii_digit));
    fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_number)
}

/// Returns true if this process is a gateway with this file. If the working folder of a process of another user cannot
/// be read, the name of the file decides.
fn may_serve(process: &Path, file: &Path) -> bool {
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let Some(config) = served_file(&command) else { return false };
    let folder = process.join("cwd");
    match fs::read_link(&folder) {
        Err(_) if config.is_relative() => config.file_name() == file.file_name(),
        _ => fs::canonicalize(folder.join(config)).is_ok_and(|served| served == file),
    }
}

/// The file in the arguments of `bearward serve`, each of which ends with a zero. `None` for another command.
fn served_file(command: &[u8]) -> Option<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let mut arguments = command.split(|byte| *byte == 0).skip(1);
    let mut file = path(b"gateway.toml");
    let mut serves = false;
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(b"--config=") {
            Some(value) => file = path(value),
            None if argument == b"--config" => file = path(arguments.next()?),
            None => serves |= argument == b"serve",
        }
    }
    serves.then_some(file)
}

/// The paths of listening sockets with the ending of the default.
fn listening(sockets: &[u8]) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let is_listening = fields.nth(3)? == LISTENS;
        // The path is the rest after the seventh field, and may have spaces.
        let at =
            line.windows(2).position(|two| two == b" /").or_else(|| line.iter().rposition(|byte| *byte == b' '))?;
        let path = Path::new(OsStr::from_bytes(line.get(at + 1..)?)).to_owned();
        (is_listening && path.to_string_lossy().ends_with(ENDING)).then_some(path)
    };
    sockets.split(|byte| *byte == b'\n').filter_map(path).collect()
}

/// Asks the gateway that listens there. The call sends nothing to a process of another user.
fn is_of(socket: &Path, file: &Path) -> bool {
    let found = admin_client::call(socket, Method::GET, "/admin/v1/config", None);
    let named = found.ok().and_then(|found| found.get("file").and_then(Value::as_str).map(PathBuf::from));
    named.and_then(|named| fs::canonicalize(named).ok()).is_some_and(|named| named == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_listening_admin_sockets_are_found() {
        let sockets = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20 /run/a b/bearward.db.admin\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 21 bearward.admin\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 22 /run/connected.admin\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23 /run/other.socket\n\
            0000000000000000: 00000003 00000000 00010000 0001 03 24\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 25 @abstract.admin\n\
            odd\n";
        let paths = ["/run/a b/bearward.db.admin", "bearward.admin", "@abstract.admin"].map(PathBuf::from);
        assert_eq!(listening(sockets), paths);
        assert_eq!(listening(b""), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_file_of_a_gateway_is_in_its_arguments() {
        for (command, file) in [
            (&b"bearward\0serve\0"[..], Some("gateway.toml")),
            (b"/usr/bin/bearward\0serve\0--config\0/etc/a b.toml\0--take-over\0", Some("/etc/a b.toml")),
            (b"bearward\0serve\0--config=c.toml\0", Some("c.toml")),
            (b"bearward\0serve\0--config", None),
            (b"bearward\0reload\0--config\0c.toml\0", None),
            (b"serve\0", None),
            (b"", None),
        ] {
            assert_eq!(served_file(command), file.map(PathBuf::from), "{command:?}");
        }
    }
}
