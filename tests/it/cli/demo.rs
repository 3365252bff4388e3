//! `bearward demo`: each printed command works, and the demo removes its files.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::Secrets;
use crate::support::program::Program;
use crate::support::source;

/// Runs a printed command. Returns the status and the body that it prints.
fn paste(line: &str) -> (u16, String) {
    let ran = Command::new("bash").args(["-c", line]).output().expect("bash is there");
    let shown = String::from_utf8(ran.stdout).expect("text");
    assert!(ran.status.success(), "{line}\n{shown}{}", String::from_utf8_lossy(&ran.stderr));
    let status = shown.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (_, body) = shown.split_once("\r\n\r\n").expect("head and body");
    (status.unwrap_or_else(|| panic!("no status in {shown}")), body.to_owned())
}

/// The response that the README shows below the demo.
fn shown_in_readme() -> Value {
    let readme = source::read("README.md");
    let block = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a response");
    serde_json::from_str(&block[block.find('{').expect("a body")..]).expect("JSON")
}

/// The names in a response of the demo's backend.
fn names(echo: &Value) -> [Vec<&String>; 2] {
    [echo, &echo["headers"]].map(|object| object.as_object().expect("an object").keys().collect())
}

fn try_the_demo(signal: &str) {
    // A shell must quote this name.
    let temporary = TempDir::with_prefix("it's a demo ").expect("a folder");
    let demo = Program::start_with(("TMPDIR", temporary.path().as_os_str()), Path::new("/"), &["demo"]);
    let page = demo.wait_for_stdout("Ctrl-C ends it");
    assert_eq!(page.lines().filter(|line| line.starts_with("# ")).count(), 5, "each command has a comment: {page}");
    let lines: Vec<String> = page.lines().filter(|line| line.starts_with("curl ")).map(str::to_owned).collect();
    let outcomes: Vec<(u16, String)> = lines.iter().map(|line| paste(line)).collect();
    let statuses: Vec<u16> = outcomes.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 401, 200, 200, 401], "{outcomes:#?}");

    let json = |place: usize| -> Value { serde_json::from_str(&outcomes[place].1).expect("JSON") };
    assert_eq!(json(0)["headers"]["x-auth-subject"], "alice", "the backend gets the subject");
    assert_eq!(names(&json(0)), names(&shown_in_readme()), "the README shows another response");
    assert_eq!(json(1)["error"], "unauthorized");
    assert_eq!(json(3), json!({ "success": true }));
    assert_eq!(json(4)["error"], "invalid_token");
    let secrets = Secrets::default();
    secrets.note_json(&json(2));

    let operators = page.lines().find_map(|line| line.strip_prefix("The operators' page is at ")).expect("a line");
    let (url, token) = operators.split_once(" and wants the token in ").expect("an address and a file");
    assert_eq!(paste(&format!("curl -sS -i {url}")).0, 200);
    assert!(Path::new(token).is_file(), "{token}");
    let folder = page.lines().find_map(|line| line.strip_prefix("Its files are in ")).expect("a line names it");
    let folder = Path::new(folder.split_once(": ").expect("a colon follows").0).to_owned();
    assert!(folder.starts_with(temporary.path()), "{}", folder.display());
    secrets.assert_absent_from("the log", &fs::read_to_string(folder.join("access.log")).expect("a log"));
    demo.signal(signal);
    let (status, _, stderr) = demo.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
    secrets.assert_absent_from("standard error", &stderr);
    assert_eq!(fs::read_dir(temporary.path()).expect("a folder").count(), 0, "files remain");
}

#[test]
fn each_printed_command_works_also_on_other_ports() {
    try_the_demo("INT");
    // If another process already uses these ports, that is as good.
    let _taken = [8443, 9443].map(|port| TcpListener::bind(("127.0.0.1", port)));
    try_the_demo("TERM");
}
