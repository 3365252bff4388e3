//! The admin socket: a Unix socket for the command line, without a token, for the gateway's own user and root only.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, Program, bearward};
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream};

/// A user without rights in the folders of a test.
const STRANGER: u32 = 65534;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn curl(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--unix-socket"]).arg(socket).args(arguments);
    command
}

/// A folder with a `gateway.toml`, and the address of its admin listener.
fn folder(upstream: &Upstream) -> (TempDir, TcpListener) {
    let folder = TempDir::new().expect("a folder");
    let admin = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = admin.local_addr().expect("an address");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let text = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &format!("[admin]\naddress = \"{address}\""));
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    (folder, admin)
}

/// Only root can start a process of another user.
fn is_root() -> bool {
    bearward::types::process::user() == 0
}

#[tokio::test]
async fn the_socket_serves_the_admin_api_without_a_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let socket = gateway.path().join("bearward.db.admin");
    assert_eq!(gateway.running().admin_socket, socket);
    let metadata = fs::metadata(&socket).expect("it exists");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(
            curl(&socket, &["--fail", &format!("http://a{path}")]).output().expect("curl").status.success(),
            "{path}"
        );
    }
    let body = json!({ "sub": "alice" }).to_string();
    let issued = curl(&socket, &["--fail", "-d", &body, "http://bearward/admin/v1/tokens"]).output().expect("curl");
    let issued: Value = serde_json::from_slice(&issued.stdout).expect("JSON");
    assert_eq!(gateway.status_of(issued["accessToken"].as_str().expect("text")).await, 200);

    let mut gateway = gateway;
    gateway.drain();
    assert!(!socket.exists(), "the socket is removed");
}

/// While the gateway is down, any local user can listen at `admin.address`.
#[test]
fn a_command_sends_nothing_to_the_admin_address() {
    let upstream = Upstream::start();
    let (folder, stranger) = folder(&upstream);
    fs::write(folder.path().join("admin.token"), "0".repeat(43)).expect("written");
    stranger.set_nonblocking(true).expect("set");
    // All at once, because a command waits for a gateway that may still be starting.
    std::thread::scope(|scope| {
        for command in [&["token", "list", "--subject", "alice"][..], &["keys", "list"], &["reload"]] {
            let folder = folder.path();
            scope.spawn(move || {
                let output = bearward(folder, command);
                let message = text(&output.stderr);
                let says_so = message.contains("no gateway listens at admin.socket");
                assert!(output.status.code() == Some(1) && says_so, "{message}");
            });
        }
    });
    assert!(stranger.accept().is_err(), "no command has connected");
}

/// Runs a script of another user, which prints "ready" and then what it has received.
struct Stranger(Child);

impl Stranger {
    fn listen(socket: &Path) -> Stranger {
        let script = "import socket, sys\n\
            s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
            import os; os.chmod(sys.argv[1], 0o777)\n\
            print('ready', flush=True)\n\
            c = s.accept()[0]; print(c.recv(65536), flush=True)";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(socket).uid(STRANGER).stdout(Stdio::piped());
        let child = command.spawn().expect("python3 is there");
        let started = Instant::now();
        while !socket.exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "it does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Stranger(child)
    }

    fn received(self) -> String {
        let output = self.0.wait_with_output().expect("our child");
        text(&output.stdout)
    }
}

#[test]
fn a_command_sends_nothing_to_a_socket_of_another_user() {
    if !is_root() {
        return eprintln!("only root can start a process of another user");
    }
    let upstream = Upstream::start();
    let (folder, _admin) = folder(&upstream);
    // Every user may create files in it, as in /tmp.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).expect("set");
    let stranger = Stranger::listen(&folder.path().join("bearward.db.admin"));
    let output = bearward(folder.path(), &["token", "revoke", "--subject", "alice"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("runs as user 65534"), "{message}");
    assert_eq!(stranger.received().trim(), "ready\nb''", "it connected and sent nothing");
}

#[test]
fn a_process_of_another_user_is_not_served() {
    if !is_root() {
        return eprintln!("only root can start a process of another user");
    }
    let upstream = Upstream::start();
    let (folder, admin) = folder(&upstream);
    drop(admin);
    let served = GatewayProcess::start(folder.path());
    let socket = folder.path().join("bearward.db.admin");
    let list = |user: u32| -> Output {
        let path = "http://a/admin/v1/keys";
        curl(&socket, &["--fail-with-body", path]).uid(user).output().expect("curl is there")
    };
    // By its mode alone it cannot connect.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("set");
    assert_eq!(list(STRANGER).status.code(), Some(7), "CURLE_COULDNT_CONNECT");
    // Also a process that can connect is not served.
    fs::set_permissions(&socket, Permissions::from_mode(0o777)).expect("set");
    let output = list(STRANGER);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    served.program.wait_for_stderr("the client runs as user 65534");
    assert!(list(0).status.success());
}

#[tokio::test]
async fn a_command_works_before_during_and_after_a_take_over() {
    let upstream = Upstream::start();
    let (folder, admin) = folder(&upstream);
    drop(admin);
    let path = folder.path().to_owned();
    let run = |arguments: &'static [&'static str]| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || bearward(&path, arguments))
    };
    let start = |arguments: &'static [&'static str]| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || GatewayProcess::wait_for(Program::start(&path, arguments), &path))
    };
    let mut served = start(&["serve"]).await.expect("it starts");
    for round in 0..2 {
        let next = start(&["serve", "--take-over"]);
        while !next.is_finished() {
            let output = run(&["keys", "list", "--json"]).await.expect("no panic");
            assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
        }
        let old = std::mem::replace(&mut served, next.await.expect("it starts"));
        let (status, _, said) = tokio::task::spawn_blocking(|| old.program.wait()).await.expect("no panic");
        assert!(status.success(), "{said}");
        let output = run(&["token", "issue", "--subject", "alice"]).await.expect("no panic");
        assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
    }
    // A killed gateway leaves its socket behind, and the next one replaces it.
    served.program.kill();
    assert!(path.join("bearward.db.admin").exists());
    let served = start(&["serve"]).await.expect("it starts");
    assert!(run(&["keys", "list"]).await.expect("no panic").status.success());
    served.program.signal("TERM");
    eventually("the socket is removed", || !path.join("bearward.db.admin").exists()).await;
}

#[test]
fn a_gateway_does_not_take_the_socket_of_another_one() {
    let upstream = Upstream::start();
    let (first, admin) = folder(&upstream);
    drop(admin);
    let _served = GatewayProcess::start(first.path());
    let (second, admin) = folder(&upstream);
    drop(admin);
    let file = second.path().join("gateway.toml");
    let config = fs::read_to_string(&file).expect("written");
    let socket = first.path().join("bearward.db.admin");
    let named = config.replace("[admin]\n", &format!("[admin]\nsocket = \"{}\"\n", socket.display()));
    fs::write(&file, named).expect("written");
    let output = bearward(second.path(), &["serve"]);
    let message = text(&output.stderr);
    assert!(message.contains("cannot listen on admin.socket") && message.contains("another process"), "{message}");
    assert!(bearward(first.path(), &["keys", "list"]).status.success(), "the first gateway is still reached");
}
