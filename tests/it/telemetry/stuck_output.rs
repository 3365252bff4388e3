//! Logs that cannot be written: a pipe that no program reads, and a full disk.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bearward::config::{self, Probe};
use tempfile::TempDir;

use crate::support::ports::free_address;
use crate::support::program::{GatewayProcess, Program};
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream, disk};

/// Four times what a pipe holds, in lines of 200 bytes.
const REQUESTS: usize = 1_300;

fn folder(upstream: &Upstream, edit: impl Fn(String) -> String) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let text = edit(Gateway::public_config(upstream.address, "[timeouts]\ndrain = \"2s\"\n"));
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    folder
}

/// In a folder of its own, because tests read all files in the folder of a gateway.
fn named_pipe() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils are installed").success());
    (folder, pipe)
}

async fn send_requests(gateway: &GatewayProcess) {
    for _ in 0..REQUESTS {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
}

/// The process ends, and another gateway starts on the database.
fn stops_and_starts(gateway: GatewayProcess, folder: &Path) {
    gateway.program.signal("TERM");
    let (status, _, messages) = gateway.program.wait();
    assert!(status.success() && messages.contains("drained"), "{status}\n{messages}");
    let text = std::fs::read_to_string(folder.join("gateway.toml")).expect("written");
    let off = "[access_log]\nfile = \"off\"\n";
    let (before, after) = text.split_once("[access_log]\n").expect("a table");
    let after = after.split_once('\n').map_or("", |(_, after)| after);
    std::fs::write(folder.join("gateway.toml"), format!("{before}{off}{after}")).expect("written");
    drop(GatewayProcess::start(folder));
}

#[tokio::test]
async fn a_full_standard_output_does_not_stop_the_shutdown() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, |text| text.replace("file = \"access.log\"", "file = \"stdout\""));
    let (_kept, pipe) = named_pipe();
    // Opened for both directions, as a reader that hangs.
    let line = format!("exec \"$0\" serve 1<>{}", pipe.display());
    let gateway = GatewayProcess::wait_for(Program::start_with_shell(folder.path(), &line), folder.path());
    send_requests(&gateway).await;
    stops_and_starts(gateway, folder.path());
}

#[tokio::test]
async fn a_pipe_without_a_reader_stops_nothing() {
    let upstream = Upstream::start();
    let (_kept, pipe) = named_pipe();
    let file = format!("file = \"{}\"", pipe.display());
    let folder = folder(&upstream, |text| text.replace("file = \"access.log\"", &file));
    let gateway = GatewayProcess::start(folder.path());
    send_requests(&gateway).await;
    stops_and_starts(gateway, folder.path());
    assert!(std::fs::metadata(&pipe).expect("it exists").file_type().is_fifo());
}

/// A reader that comes later gets the lines from then on, and those that the pipe held.
#[tokio::test]
async fn a_pipe_gets_lines_when_its_reader_comes() {
    let upstream = Upstream::start();
    let (_kept, pipe) = named_pipe();
    let file = format!("file = \"{}\"", pipe.display());
    let folder = folder(&upstream, |text| text.replace("file = \"access.log\"", &file));
    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(gateway.client().get("/before").await.status, 200);
    let mut reader = Command::new("head");
    let reader = reader.args(["-n", "2"]).arg(&pipe).stdout(std::process::Stdio::piped()).spawn().expect("coreutils");
    assert_eq!(gateway.client().get("/after").await.status, 200);
    let read = tokio::task::spawn_blocking(|| reader.wait_with_output()).await.expect("no panic").expect("it ends");
    let text = String::from_utf8(read.stdout).expect("text");
    assert!(text.contains("/before") && text.contains("/after"), "{text}");
}

/// Standard error may be the same pipe.
#[tokio::test]
async fn a_full_standard_error_stops_nothing() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, |text| text);
    let (_kept, pipe) = named_pipe();
    let address = free_address();
    let text = std::fs::read_to_string(folder.path().join("gateway.toml")).expect("written");
    let text = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &format!("[admin]\naddress = \"{address}\""));
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let line = format!("BEARWARD_LOG=debug exec \"$0\" serve 2<>{}", pipe.display());
    let program = Program::start_with_shell(folder.path(), &line);
    eventually("the admin listener is open", || std::net::TcpStream::connect(address).is_ok()).await;
    for _ in 0..REQUESTS {
        // Each has a message of about 150 bytes at the level debug.
        let answer = crate::support::Client::http1(address).get("/admin/v1/upstreams").await;
        assert!(answer.status.is_client_error(), "{answer:?}");
    }
    program.signal("TERM");
    assert!(program.wait().0.success());
}

#[tokio::test]
async fn lines_that_a_full_disk_rejects_are_counted() {
    let upstream = Upstream::start();
    let text = Gateway::public_config(upstream.address, "");
    let gateway = Gateway::from_text(text.replace("file = \"access.log\"", "file = \"/dev/full\""));
    for count in 1..=3 {
        assert_eq!(gateway.client().get("/").await.status, 200);
        gateway.wait_for_metric("access_log_dropped_total", count).await;
    }
}

/// The disk is full in the middle of a line.
#[tokio::test]
async fn the_next_line_after_a_torn_one_is_complete() {
    let upstream = Upstream::start();
    let folder = folder(&upstream, |text| text);
    let (gateway, disk) = disk::serve(folder.path());
    let log = || std::fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    assert_eq!(gateway.client().get("/first").await.status, 200);
    eventually("the first line is written", || log().ends_with('\n')).await;
    let complete = log().len();
    disk.set_state("torn");
    assert_eq!(gateway.client().get("/torn").await.status, 200);
    eventually("half a line is written", || log().len() > complete).await;
    gateway.program.wait_for_stderr("cannot write the access log");
    disk.set_state("well");
    assert_eq!(gateway.client().get("/last").await.status, 200);
    eventually("the last line is written", || log().contains("/last") && log().ends_with('\n')).await;
    let text = log();
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].is_some() && lines[1].is_none(), "{text}");
    assert_eq!(lines[2].as_ref().map(|line| &line["path"]), Some(&"/last".into()), "{text}");
    let page = gateway.admin_client().get("/metrics").await.text();
    assert!(page.contains("\nbearward_access_log_dropped_total 1\n"), "{page}");
}

#[test]
fn an_audit_log_on_a_pipe_is_an_error() {
    let (folder, _pipe) = named_pipe();
    let text = Gateway::config_text("127.0.0.1:9", "[audit]\nfile = \"pipe\"\n");
    let report = config::parse(&text, folder.path(), Probe::None).expect_err("it is rejected").render(false);
    assert!(report.contains("is a named pipe") && report.contains("webhook"), "{report}");
}
