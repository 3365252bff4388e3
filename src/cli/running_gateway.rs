//! The admin socket of a gateway after the key that names its path was edited: the gateway listens at the old path
//! until it is restarted.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::Value;

use super::admin_client;

/// The end of the path, unless `admin.socket` names another one.
const ENDING: &str = "admin";

/// Where the gateway listens that was started with this file, if it does not listen at `named`. Only the folder of that
/// one is looked at: the operator has named it, and a command must not call whatever another user lets it find.
pub(super) fn find(file: &Path, named: &Path) -> Option<PathBuf> {
    let is_missing = fs::symlink_metadata(named).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !is_missing {
        return None;
    }
    let file = fs::canonicalize(file).ok()?;
    let folder = named.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let mut sockets = paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
    sockets.find(|path| is_of(path, &file))
}

/// Asks the gateway that listens there. The call sends nothing to a process of another user.
fn is_of(socket: &Path, file: &Path) -> bool {
    // A call would wait for a gateway that is starting.
    if UnixStream::connect(socket).is_err() {
        return false;
    }
    let found = admin_client::call(socket, Method::GET, "/admin/v1/config", None);
    let served = found.ok().and_then(|found| found.get("file").and_then(Value::as_str).map(PathBuf::from));
    served.and_then(|served| fs::canonicalize(served).ok()).is_some_and(|served| served == file)
}
