//! `tests/peers` names every test that calls a program or a server of others, so that `tests/run --without-peers` can
//! leave them out and say which.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::source;

/// Programs that `tests/run` needs in any case.
const TOOLS: [&str; 21] = [
    "bash", "cc", "curl", "find", "git", "grep", "head", "ip", "kill", "mkfifo", "mount", "prlimit", "ps", "python3",
    "script", "setpriv", "sh", "stty", "tar", "true", "umount",
];

/// What else leads to a peer: the parts of `tests/it/support` that start one, and paths of its own.
const PARTS: [&str; 16] = [
    "PostgresServer::",
    "postgres_server(",
    "Browser::open",
    "Page::open",
    "Haproxy::",
    "OidcProvider",
    "provider::start(",
    "Glewlwyd::",
    "run_in_node(",
    "FrontProxy::",
    "Pebble::",
    "Pooler::",
    "Site::start",
    "Package::build",
    "target/helm",
    "\"/usr/bin/python3\"",
];

/// The names in `tests/peers`, without their peers.
fn listed() -> Vec<String> {
    let list = source::read("tests/peers");
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("a peer and a test").1.trim().to_owned()).collect()
}

/// Returns true if a name of the list is this test or contains it.
fn covers(listed: &str, name: &str) -> bool {
    listed == name || (listed.ends_with("::") && name.starts_with(listed))
}

/// The names of all tests in the files of the three binaries, as `--list` prints them. Tests that a macro makes are not
/// among them.
fn tests() -> Vec<String> {
    let root = source::root().join("tests/it");
    let mut names = Vec::new();
    for path in rust_files(&root) {
        let module = module(&root, &path);
        let text = fs::read_to_string(&path).expect("a file");
        let mut is_test = false;
        for line in text.lines() {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            let function = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
            let Some(name) = function.and_then(|rest| rest.split('(').next()) else { continue };
            if is_test {
                names.push(format!("{module}{name}"));
            }
            is_test = false;
        }
    }
    names
}

/// The module of a file, with `::` at its end.
fn module(root: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(root).expect("below").with_extension("");
    let module = relative.to_str().expect("UTF-8").replace('/', "::");
    format!("{}::", module.trim_end_matches("::mod"))
}

#[test]
fn every_listed_test_and_module_exists() {
    let tests = tests();
    assert!(tests.len() > 1000, "only {} tests", tests.len());
    for listed in listed() {
        let is_module = listed.ends_with("::") && source::root().join("tests/it").join(file_of(&listed)).exists();
        assert!(
            is_module || tests.iter().any(|name| covers(&listed, name)),
            "tests/peers: {listed} is no test and no module"
        );
        // `--skip` looks for a part of the name.
        let more = tests.iter().find(|name| name.contains(&listed) && !covers(&listed, name));
        assert!(more.is_none(), "tests/peers: {listed} would leave out {more:?} too");
    }
}

/// The folder of a module that ends with `::`.
fn file_of(module: &str) -> String {
    module.trim_end_matches("::").replace("::", "/")
}

#[test]
fn every_test_that_calls_a_peer_is_listed() {
    let listed = listed();
    let root = source::root().join("tests/it");
    let mut missing = BTreeSet::new();
    let mut called = BTreeSet::new();
    for path in rust_files(&root) {
        let module = module(&root, &path);
        if module.starts_with("support::") || module == "house::peers::" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a file");
        let programs = text.split("Command::new(\"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut peers: Vec<_> = programs.filter(|program| !TOOLS.contains(program)).collect();
        peers.extend(PARTS.iter().filter(|part| text.contains(*part)));
        if peers.is_empty() {
            continue;
        }
        called.insert(module.clone());
        // A helper without tests is called by tests of its folder.
        let belongs = |listed: &String| covers(listed, &module) || listed.starts_with(&module);
        if !listed.iter().any(belongs) {
            missing.insert(format!("{module} calls {peers:?}"));
        }
    }
    assert!(called.len() > 20, "only {called:?} call a peer");
    assert!(missing.is_empty(), "add the tests to tests/peers, or the program to the tools:\n{missing:#?}");
}

fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let rust = files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    rust.chain(folders.iter().flat_map(|folder| rust_files(folder))).collect()
}
