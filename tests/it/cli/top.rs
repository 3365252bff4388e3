//! `bearward top`: a screen in a terminal, lines in a pipe.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, printed, text};
use crate::support::program::{GatewayProcess, Program, bearward};
use crate::support::{Gateway, Upstream};

async fn served(upstream: &Upstream) -> (GatewayProcess, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let config = Gateway::config_text(&upstream.address.to_string(), "");
    fs::write(folder.path().join("gateway.toml"), config).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    (served, folder)
}

/// Runs `bearward top` in a terminal of its own, until it ends. Returns what it wrote there.
fn in_terminal(folder: &Path, arguments: &str, (variable, value): (&str, &str)) -> String {
    let program = env!("CARGO_BIN_EXE_bearward");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &format!("{program} top {arguments}"), "/dev/null"]);
    command.current_dir(folder).env_remove("NO_COLOR").env("TERM", "xterm").env(variable, value);
    let output = command.stdin(Stdio::null()).output().expect("script is there");
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

#[tokio::test]
async fn a_pipe_gets_a_line_for_each_second() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream).await;
    let top = Program::start(folder.path(), &["top"]);
    top.wait_for_stdout(" rate=0 ");
    assert_eq!(served.client().get("/").await.status, 401);
    top.wait_for_stdout(" 4xx=1 5xx=0 rejected=1 p50=");
    let lines = top.wait_for_stdout(" rejected=0 p50=- p99=- in_flight=0 streams=0 connections=");
    let times: Vec<&str> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(times.is_sorted_by(|one, next| one < next), "each second once, the oldest first:\n{lines}");
    assert!(!lines.contains('\x1b'), "{lines}");
    top.kill();
}

#[tokio::test]
async fn once_and_json_are_for_scripts() {
    let upstream = Upstream::start();
    let (_served, folder) = served(&upstream).await;
    let once = printed(&bearward(folder.path(), &["top", "--once"]));
    assert!(once.lines().count() == 1 && once.contains(" servers_out=0 log_dropped=0\n"), "{once}");
    let json = printed(&bearward(folder.path(), &["top", "--once", "--json"]));
    let second: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!(second["servers"]["in"], 1);
    // A reader that has enough ends it, without an error.
    let line = "exec 2>&1; set -o pipefail; \"$0\" top | head -n 1; echo \"status $?\"";
    let mut shell = Command::new("bash");
    shell.args(["-c", line, env!("CARGO_BIN_EXE_bearward")]).current_dir(folder.path());
    let output = text(&shell.output().expect("bash is there").stdout);
    assert!(output.ends_with("status 0\n") && output.lines().count() == 2, "{output}");
}

#[tokio::test]
async fn a_terminal_gets_a_screen_with_colors() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream).await;
    assert_eq!(served.client().get("/").await.status, 401);
    let once = in_terminal(folder.path(), "--once", ("LC_ALL", "C.UTF-8"));
    assert!(once.contains("\x1b[1mbearward top  2") && once.contains("servers     1 in   0 returning"), "{once}");
    assert!(!once.contains("\x1b[H"), "it stays on the screen: {once}");
    let plain = in_terminal(folder.path(), "--once", ("NO_COLOR", "1"));
    assert!(plain.contains("bearward top  2") && !plain.contains('\x1b'), "{plain}");
    let dumb = in_terminal(folder.path(), "--once", ("TERM", "dumb"));
    assert!(dumb.contains(" rate=") && !dumb.contains('\x1b'), "{dumb}");
}

#[tokio::test]
async fn the_screen_of_a_terminal_changes_each_second() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream).await;
    let line = "export TERM=xterm; exec script --quiet --flush --command \"$0 top\" /dev/null </dev/null";
    let top = Program::start_with_shell(folder.path(), line);
    let first = top.wait_for_stdout("  none");
    assert!(first.contains("\x1b[H\x1b[1mbearward top") && first.contains("last hour"), "{first}");
    assert_eq!(served.client().get("/").await.status, 401);
    top.wait_for_stdout("         1  no_token  ");
    top.kill();
}

#[test]
fn without_a_gateway_it_says_so() {
    let folder = TempDir::new().expect("a folder");
    let config = Gateway::config_text("127.0.0.1:9", "");
    fs::write(folder.path().join("gateway.toml"), config).expect("written");
    let error = complaint(&bearward(folder.path(), &["top", "--once"]), 1);
    assert!(error.contains("no gateway listens at admin.socket"), "{error}");
}
