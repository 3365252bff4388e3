//! The command line: what the program prints, its exit status, and the files that it creates.

mod arguments;
mod demo;
mod explain;
mod generated;
mod init;
mod owners;
mod pipes;
mod serve;
mod store;
mod token;
mod top;
mod verify;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

fn folder_with(configuration: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), configuration).expect("written");
    folder
}

fn mode_of(file: &Path) -> u32 {
    fs::metadata(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).permissions().mode() & 0o777
}

/// Returns standard output. Asserts that the command succeeded and printed nothing to standard error.
#[track_caller]
fn printed(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{out}");
    out
}

/// Returns standard error. Asserts that the command ended with this status and printed nothing else.
#[track_caller]
fn complaint(output: &Output, status: i32) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str()), (Some(status), ""), "{err}");
    err
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
