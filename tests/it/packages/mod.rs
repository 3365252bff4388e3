//! Packages: what `deploy/package` makes of the program of this build, checked by the tools of Debian and RPM,
//! installed and started.

mod image;
mod installed;
mod linted;
mod release;
mod same_bytes;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::house::source;
use crate::support::Upstream;
use crate::support::ports::{free_address, free_port};

/// A folder with one package.
struct Package {
    file: PathBuf,
    _folder: TempDir,
}

impl Package {
    /// Runs `deploy/package/KIND`.
    fn build(kind: &str) -> Package {
        Self::build_revision(kind, 1)
    }

    fn build_revision(kind: &str, revision: u32) -> Package {
        let folder = TempDir::new().expect("a folder");
        let mut command = Command::new(source::root().join("deploy/package").join(kind));
        // `.ci/run` names a release build here, which is small.
        let program = std::env::var_os("BEARWARD_PROGRAM").map_or(env!("CARGO_BIN_EXE_bearward").into(), PathBuf::from);
        command.arg(source::root().join(program)).arg(folder.path());
        command.env("SOURCE_DATE_EPOCH", "1780000000").env("PACKAGE_REVISION", revision.to_string());
        // A debug build is large, and its size does not matter.
        if std::env::var_os("BEARWARD_PROGRAM").is_none() {
            command.env("PACKAGE_LEVEL", "1");
        }
        run(&mut command);
        let mut names = files_in(folder.path());
        assert_eq!(names.len(), 1, "{kind} writes one file: {names:?}");
        Package { file: names.remove(0), _folder: folder }
    }

    fn path(&self) -> &str {
        self.file.to_str().expect("a UTF-8 path")
    }

    fn name(&self) -> &str {
        self.file.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name")
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    files.sort();
    files
}

/// Runs a program that must succeed. Returns what it printed to standard output.
fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, crate::deploy::text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn output(command: &mut Command) -> Output {
    // The messages that are compared are the untranslated ones.
    let output = command.env("LC_ALL", "C.UTF-8").output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}; tests/run installs what is missing"))
}

/// The packaged configuration with an address and a backend of this test. Returns the address too.
fn on_this_machine(text: &str, backend: &Upstream) -> (String, SocketAddr) {
    let address = free_address();
    let admin = format!("[admin]\naddress = \"127.0.0.1:{}\"\n", free_port());
    let text = text.replace("127.0.0.1:8080", &address.to_string()).replace("[admin]\n", &admin);
    (text.replace("127.0.0.1:3000", &backend.address.to_string()), address)
}
