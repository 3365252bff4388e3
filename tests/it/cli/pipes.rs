//! No file of the operator makes a command, a reload or the end of the process wait: pipes are rejected.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::program::{GatewayProcess, Program};
use crate::support::wait::eventually_ok;

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg("-m").arg("600").arg(path).status().expect("mkfifo is there");
    assert!(made.success());
}

fn folder(more: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"off\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nservers = [\"http://127.0.0.1:9\"]\n{more}"
    );
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let authority = Authority::new();
    authority.sign("gateway.example").write(folder.path(), "own");
    folder
}

/// Runs the program until it ends. Returns whether it succeeded, and what it printed.
fn run(folder: &Path, command: &str) -> (bool, String) {
    let (status, out, errors) = Program::start(folder, &[command]).wait();
    (status.success(), out + &errors)
}

#[test]
fn a_pipe_in_place_of_a_file_is_an_error_at_once() {
    let tls = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = { certificate = \"C\", key = \"K\" }\n";
    let certificate = tls.replace('C', "pipe").replace('K', "own.key");
    let key = tls.replace("\"C\"", "\"own.pem\"").replace("\"K\"", "\"pipe\"");
    let issuer = "[[issuer]]\nissuer = \"https://a.example\"\naudience = \"a\"\n";
    for (name, config) in [
        ("tls.certificate", certificate),
        ("tls.key", key),
        ("store.secret_file", "[store]\nsecret_file = \"pipe\"\n".to_owned()),
        ("store.sqlite", "[store]\nsqlite = \"pipe\"\n".to_owned()),
        ("tokens.signing_key_file", "[tokens]\nsigning_key_file = \"pipe\"\n".to_owned()),
        ("jwks_file", format!("{issuer}jwks_file = \"pipe\"\n")),
        ("pem_file", format!("{issuer}algorithms = [\"ES256\"]\npem_file = \"pipe\"\n")),
        ("secret_file", format!("{issuer}algorithms = [\"HS256\"]\nsecret_file = \"pipe\"\n")),
        (
            "upstream.tls.ca_file",
            "[[upstream]]\nname = \"b\"\nservers = [\"https://b.example\"]\nca_file = \"pipe\"\n".to_owned(),
        ),
    ] {
        let folder = folder(&config);
        make_pipe(&folder.path().join("pipe"));
        let (succeeded, printed) = run(folder.path(), "serve");
        assert!(!succeeded && printed.contains("pipe"), "{name}: {printed}");
        let (_, printed) = run(folder.path(), "check");
        assert!(name == "store.sqlite" || printed.contains("pipe"), "{name}: {printed}");
    }
    // These two are not written as a key of `more`.
    let folder = folder("");
    make_pipe(&folder.path().join("admin.token"));
    let (succeeded, printed) = run(folder.path(), "serve");
    assert!(!succeeded && printed.contains("a named pipe"), "admin.token: {printed}");
    let empty = tempfile::tempdir().expect("a folder");
    make_pipe(&empty.path().join("gateway.toml"));
    for command in ["serve", "check"] {
        let (succeeded, printed) = run(empty.path(), command);
        assert!(!succeeded && printed.contains("a named pipe; use a regular file"), "{command}: {printed}");
    }
}

/// The watcher and a reload read the pipe while the gateway serves. Then it ends.
#[tokio::test]
async fn a_certificate_that_becomes_a_pipe_hangs_nothing() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = { certificate = \"own.pem\", key = \"own.key\" }\n";
    let folder = folder(listener);
    let gateway = GatewayProcess::start(folder.path());
    let certificate = folder.path().join("own.pem");
    fs::remove_file(&certificate).expect("removed");
    make_pipe(&certificate);
    gateway.program.wait_for_stderr("the old certificates stay active");
    gateway.program.signal("HUP");
    gateway.program.wait_for_stderr("not reloaded; the current settings stay active");
    eventually_ok("the gateway still serves", async || match gateway.client().get("/").await.status.as_u16() {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    gateway.program.signal("TERM");
    let (status, _, errors) = gateway.program.wait();
    assert!(status.success(), "{errors}");
}

/// As `bearward schema | head -1` does.
#[test]
fn a_reader_that_stops_early_is_no_error() {
    for arguments in [&["schema"][..], &["check", "--effective"], &["check"]] {
        let folder = folder("");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bearward"));
        command.args(arguments).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program was built");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it is our child");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bearward"));
    let output = command.arg("schema").stdout(full).stderr(Stdio::piped()).output().expect("the program was built");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("cannot write to standard output"), "{errors}");
}
