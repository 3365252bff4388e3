//! Rules of the house that a machine can check, so that no reviewer has to.

use std::fs;
use std::process::Command;

mod circles;
mod floors;
mod forms;
mod imports;
mod peers;
mod reader;
mod words;

use crate::support::source;

/// A file that grows past this holds two subjects.
const LONGEST_FILE: usize = 400;

/// What may lie at the top level, beside names that begin with a dot.
const TOP_LEVEL: [&str; 10] = [
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "deploy",
    "gateway.toml",
    "src",
    "tests",
];

#[test]
fn every_dependency_says_why_it_is_there() {
    let manifest = source::read("Cargo.toml");
    let mut section = "";
    let mut without = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
            let is_table = section.contains("dependencies.");
            assert!(!is_table, "{section}: write a dependency in one line, so that its reason stands beside it");
        } else if section.contains("dependencies]") && line.contains('=') && !line.starts_with('#') {
            let reason = line.split_once(" # ").map_or("", |(_, reason)| reason.trim());
            if reason.len() < 10 {
                without.push(line);
            }
        }
    }
    assert!(without.is_empty(), "dependencies without a reason (`# why`):\n{}", without.join("\n"));
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long: Vec<String> = source::files()
        .iter()
        .filter(|file| file.lines > LONGEST_FILE)
        .map(|file| format!("src/{}: {} lines", file.path, file.lines))
        .collect();
    assert!(long.is_empty(), "longer than {LONGEST_FILE} lines:\n{}", long.join("\n"));
}

/// A clock can be set, back and forward. These measure time that has passed.
#[test]
fn limits_and_timeouts_keep_no_time_of_the_clock() {
    let folders = ["limits", "server", "upstream"];
    let files = ["admin/access/guess", "admin/readiness", "telemetry/messages", "telemetry/access_log/rejections"];
    let mut checked = 0;
    for file in source::files() {
        let is_listed = files.iter().any(|listed| file.path.starts_with(listed));
        if !is_listed && !folders.contains(&&*file.folder()) {
            continue;
        }
        // Certificates and orders have dates of the authority, and gateways share them.
        if file.path.starts_with("server/acme/") {
            continue;
        }
        checked += 1;
        let date = file.words.iter().find(|word| ["UnixTime", "SystemTime"].contains(&&***word));
        assert_eq!(date, None, "src/{}: measure with Uptime or Instant", file.path);
    }
    assert!(checked > 40, "{checked} files");
}

#[test]
fn the_top_level_holds_what_it_shall_and_nothing_else() {
    let stray: Vec<String> =
        top_level().into_iter().filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(&name.as_str())).collect();
    assert!(stray.is_empty(), "not allowed at the top level: {}", stray.join(", "));
}

/// What git tracks. Sources that were unpacked from an archive have no index: there, what lies in the folder counts.
fn top_level() -> Vec<String> {
    if !source::root().join(".git").exists() {
        let entries = fs::read_dir(source::root()).expect("the top level can be listed");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        return names.filter(|name| name != "target").collect();
    }
    // A checkout that another user owns (in a container, say) is read all the same.
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(source::root())
        .output()
        .expect("git is missing: tests/run installs it");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).expect("names are UTF-8");
    let mut names: Vec<String> =
        paths.split_terminator('\0').map(|path| path.split('/').next().unwrap_or(path).to_owned()).collect();
    names.dedup();
    names
}
