//! Packages: what `deploy/package` makes of the program of this build, checked by the tools of Debian and RPM,
//! installed and started.

mod image;
mod installed;
mod linted;
mod release;
mod same_bytes;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

use tempfile::TempDir;

use crate::support::Upstream;
use crate::support::ports::{free_address, free_port};
use crate::support::source;

/// A package in a folder of its own.
struct Package {
    file: PathBuf,
    /// Without it, the folder stays.
    _folder: Option<TempDir>,
}

impl Package {
    /// The first revision of a kind, which is built once for all tests: that takes seconds.
    fn shared(kind: &'static str) -> Arc<Package> {
        static BUILT: Mutex<BTreeMap<&str, Arc<OnceLock<Arc<Package>>>>> = Mutex::new(BTreeMap::new());
        let built = BUILT.lock().expect("no panic while it is locked").entry(kind).or_default().clone();
        // Rust drops no static. The next run replaces the folder.
        let build = || {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages").join(kind);
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("created");
            Arc::new(Package { file: build(kind, 1, &folder), _folder: None })
        };
        built.get_or_init(build).clone()
    }

    /// A package that no other test gets.
    fn build(kind: &str, revision: u32) -> Package {
        let folder = TempDir::new().expect("a folder");
        Package { file: build(kind, revision, folder.path()), _folder: Some(folder) }
    }

    fn path(&self) -> &str {
        self.file.to_str().expect("a UTF-8 path")
    }

    fn name(&self) -> &str {
        self.file.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name")
    }
}

/// Runs `deploy/package/KIND`. Returns the file that it writes.
fn build(kind: &str, revision: u32, folder: &Path) -> PathBuf {
    let mut command = Command::new(source::root().join("deploy/package").join(kind));
    // `.ci/run` names a release build here, which is small.
    let program = std::env::var_os("BEARWARD_PROGRAM").map_or(env!("CARGO_BIN_EXE_bearward").into(), PathBuf::from);
    command.arg(source::root().join(program)).arg(folder);
    command.env("SOURCE_DATE_EPOCH", "1780000000").env("PACKAGE_REVISION", revision.to_string());
    // A debug build is large, and its size does not matter. gzip has no level 0.
    if std::env::var_os("BEARWARD_PROGRAM").is_none() {
        let level = if ["deb", "rpm"].contains(&kind) { "0" } else { "1" };
        command.env("PACKAGE_LEVEL", level);
    }
    run(&mut command);
    let mut names = files_in(folder);
    assert_eq!(names.len(), 1, "{kind} writes one file: {names:?}");
    names.remove(0)
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    files.sort();
    files
}

/// Runs a program that must succeed. Returns what it printed to standard output.
fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, crate::support::files::output_text(&output));
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
