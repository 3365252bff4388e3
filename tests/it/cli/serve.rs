//! `bearward serve`: the start, the files that it creates, and its exit status.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use bearward::types::secret;
use serde_json::json;
use tempfile::TempDir;

use super::{complaint, folder_with, mode_of, printed};
use crate::support::files::names;
use crate::support::program::{GatewayProcess, Program, bearward};
use crate::support::{Client, Gateway, Secrets, TokenPair, Upstream};

/// The shipped `gateway.toml`, with free ports.
fn shipped() -> String {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml")).expect("the repository has it");
    let mut edited = text.clone();
    for (default, free) in [
        ("# [[listener]]", "[[listener]]"),
        ("# address = \"0.0.0.0:8443\"", "address = \"0.0.0.0:0\""),
        ("# address = \"127.0.0.1:9443\"", "address = \"127.0.0.1:0\""),
    ] {
        let [default, free] = [default, free].map(|line| format!("\n{line}\n"));
        assert!(edited.contains(&default), "gateway.toml has no line {default:?}");
        edited = edited.replace(&default, &free);
    }
    edited
}

#[tokio::test]
async fn the_shipped_configuration_starts_and_ends_with_status_0() {
    let folder = folder_with(&shipped());
    let served = GatewayProcess::start(folder.path());
    let log = served.program.wait_for_stderr("admin listening");
    let line = log
        .lines()
        .find(|line| line.contains("made a self-signed certificate"))
        .expect("the log mentions the certificate");
    assert!(line.contains("tls/self-signed.pem") && line.contains("configure clients to trust it"), "{line}");
    for (file, mode) in [
        ("admin.token", 0o600),
        ("bearward.secret", 0o600),
        ("bearward.db", 0o600),
        ("tls/self-signed.key", 0o600),
        ("tls/self-signed.pem", 0o644),
    ] {
        assert_eq!(mode_of(&folder.path().join(file)), mode, "{file}");
    }
    let certificate = folder.path().join("tls/self-signed.pem");
    let public = ([127, 0, 0, 1], served.addresses[0].port()).into();
    let answer = Client::http2(public).over_tls(&certificate).get("/").await;
    answer.assert_rejected(401, "unauthorized");
    assert_eq!(served.admin_client().get("/readyz").await.status, 200);
    served.program.signal("TERM");
    let (status, stdout, stderr) = served.program.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("draining signal=\"SIGTERM\"") && stderr.contains("drained"), "{stderr}");
    let line: serde_json::Value = serde_json::from_str(stdout.trim()).expect("the access log, in JSON");
    assert_eq!((&line["status"], &line["reason"]), (&json!(401), &json!("no_token")));

    let read_created = |name: &str| fs::read(folder.path().join(name)).expect("created");
    let before = [read_created("admin.token"), read_created("bearward.secret"), read_created("tls/self-signed.pem")];
    let again = GatewayProcess::start(folder.path());
    let log = again.program.wait_for_stderr("admin listening");
    assert!(!log.contains("made a") && !log.contains("created a"), "the second start creates no file");
    assert_eq!(
        [read_created("admin.token"), read_created("bearward.secret"), read_created("tls/self-signed.pem")],
        before
    );
    again.program.signal("INT");
    assert_eq!(again.program.wait().0.code(), Some(0));
}

#[test]
fn a_signal_during_startup_stops_the_program_in_order() {
    let folder = folder_with(&shipped());
    let program = Program::start(folder.path(), &["serve"]);
    // The program creates the secret long before it listens.
    program.wait_for_stderr("created a secret");
    program.signal("TERM");
    let (status, _, stderr) = program.wait();
    assert_eq!(status.code(), Some(0), "{status:?}\n{stderr}");
    assert!(stderr.contains("drained"), "{stderr}");
}

#[test]
fn an_invalid_configuration_does_not_start() {
    let folder = folder_with("[[upstream]]\nserver = [\"http://127.0.0.1:3000\"]\n[tokens]\nissuer = 5\n");
    let message = complaint(&bearward(folder.path(), &["serve"]), 2);
    for expected in ["--> gateway.toml:2:1", "`servers`", "--> gateway.toml:4:10", "errors in gateway.toml"] {
        assert!(message.contains(expected), "{expected} is not in\n{message}");
    }
    assert_eq!(names(folder.path()), ["gateway.toml"]);
}

#[test]
fn an_address_in_use_is_reported_at_its_line_and_column() {
    let listeners =
        [TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0")].map(|bound| bound.expect("a port"));
    let [public, admin] = listeners.each_ref().map(|listener| listener.local_addr().expect("an address"));
    let folder = folder_with(&format!(
        "[[listener]]\naddress = \"{public}\"\n[admin]\naddress = \"{admin}\"\n\
         [[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n"
    ));
    let message = complaint(&bearward(folder.path(), &["serve"]), 2);
    for expected in ["--> gateway.toml:2:11", "--> gateway.toml:4:11", "is in use", "2 errors"] {
        assert!(message.contains(expected), "{expected} is not in\n{message}");
    }
    assert_eq!(names(folder.path()), ["gateway.toml"]);
}

#[test]
fn a_second_gateway_on_the_same_database_does_not_start() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    let first = GatewayProcess::start(folder.path());
    let output = bearward(folder.path(), &["serve"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&format!("in use by a running gateway (process {})", first.program.id())), "{message}");
}

#[test]
fn an_invalid_secret_does_not_start() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    for (file, content) in [("admin.token", "hunter2hunter2hunter2"), ("bearward.secret", "1 hunter2hunter2hunter2")] {
        secret::write_private(&folder.path().join(file), content.as_bytes()).expect("written");
        let output = bearward(folder.path(), &["serve"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(file) && !message.contains("hunter2"), "{message}");
        assert!(!folder.path().join("bearward.db").exists());
        fs::remove_file(folder.path().join(file)).expect("removed");
    }
}

/// `check` and `serve` report the same, and the command that they name mends it.
#[test]
fn a_secret_that_others_can_read_is_rejected() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    GatewayProcess::start(folder.path()).program.kill();
    for file in ["admin.token", "bearward.secret", "bearward.db", "bearward.db-wal"] {
        let path = folder.path().join(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        for command in ["check", "serve"] {
            let message = complaint(&bearward(folder.path(), &[command]), 2);
            assert!(message.contains(&format!("every user of this machine can use {file} (mode 0644)")), "{message}");
            let mend = message.lines().find_map(|line| line.split_once("run: ")).expect("a command").1;
            if command == "serve" {
                let mended = std::process::Command::new("bash").args(["-c", mend]).current_dir(folder.path()).status();
                assert!(mended.expect("bash is there").success(), "{mend}");
            }
        }
        assert_eq!(mode_of(&path), 0o600, "{file}");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
    let message = complaint(&bearward(folder.path(), &["check"]), 2);
    assert!(message.contains("every user of this machine can replace files in"), "{message}");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
    printed(&bearward(folder.path(), &["check"]));
}

/// A process of the same user could otherwise read the keys in its memory. The kernel gives the files in /proc of such
/// a process to root (proc(5)).
#[test]
fn the_memory_of_the_program_belongs_to_root() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    // Root already owns the files of its own processes.
    let line = if bearward::types::process::user() == 0 {
        fs::copy(env!("CARGO_BIN_EXE_bearward"), folder.path().join("bearward")).expect("copied");
        "chown -R 65534:65534 . && exec setpriv --reuid 65534 --regid 65534 --clear-groups ./bearward serve"
    } else {
        "exec \"$0\" serve"
    };
    let program = Program::start_with_shell(folder.path(), line);
    let served = GatewayProcess::wait_for(program, folder.path());
    let process = format!("/proc/{}", served.program.id());
    let owner = |file: &str| fs::metadata(format!("{process}/{file}")).expect("it runs").uid();
    assert_eq!([owner("mem"), owner("maps"), owner("environ"), owner("fd")], [0; 4]);
    let status = fs::read_to_string(format!("{process}/status")).expect("it runs");
    assert!(!status.lines().any(|line| line.starts_with("Uid:\t0")), "the process itself is not of root:\n{status}");
}

/// The log level is `trace`, so that the program logs everything that it can log.
#[tokio::test]
async fn no_token_is_written_to_logs_or_output() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    let program = Program::start_with(("BEARWARD_LOG", "trace".as_ref()), folder.path(), &["serve"]);
    let served = GatewayProcess::wait_for(program, folder.path());
    let secrets = Secrets::default();
    let wanted = json!({ "sub": "alice", "scope": "a" });
    let issued = served.admin_client().post("/admin/v1/tokens", &wanted).await;
    secrets.note(&issued);
    let pair = TokenPair::from_json(&issued.json());
    let certificate = folder.path().join("tls/self-signed.pem");
    for client in [served.client(), Client::http2(served.addresses[1]).over_tls(&certificate)] {
        assert_eq!(client.clone().bearer(&pair.access).get("/").await.status, 200);
        let body = json!({ "refreshToken": pair.refresh });
        let refreshed = client.clone().bearer(&pair.access).post("/user/refresh", &body).await;
        assert_eq!(refreshed.status, 200);
        secrets.note(&refreshed);
        client.clone().bearer(&pair.refresh).get("/").await.assert_rejected(401, "invalid_token");
        client.clone().bearer("x").post("/user/refresh", &body).await.assert_rejected(401, "invalid_token");
        client.get(&format!("/by/mistake?token={}", pair.access)).await.assert_rejected(401, "unauthorized");
    }
    let path = format!("/token/{}", pair.refresh);
    assert_eq!(served.client().bearer(&pair.access).delete(&path).await.status, 200);
    let file = |name: &str| fs::read_to_string(folder.path().join(name)).expect("created");
    let gateway_secrets = [file("admin.token"), file("bearward.secret").replace("1 ", "")];

    served.program.signal("TERM");
    let (_, stdout, stderr) = served.program.wait();
    let audit_log = file("audit.jsonl");
    let revoked =
        audit_log.lines().find(|line| line.contains("token.revoked")).expect("the audit log names the revoked login");
    for expected in [pair.token_id.as_str(), "\"reason\":\"logout\"", "\"subject\":\"alice\""] {
        assert!(revoked.contains(expected), "{expected} is not in {revoked}");
    }
    assert!(stderr.contains("TRACE"), "the log has trace lines");
    for (place, text) in [
        ("standard output", &stdout),
        ("standard error", &stderr),
        ("the log", &file("access.log")),
        ("the audit", &audit_log),
    ] {
        secrets.assert_absent_from(place, text);
        assert!(
            gateway_secrets.iter().all(|secret| !text.contains(secret.trim())),
            "a secret of the gateway is in {place}"
        );
    }
}

#[tokio::test]
async fn no_token_is_in_the_database() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let served = GatewayProcess::start(folder.path());
    let secrets = Secrets::default();
    let issued = served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice" })).await;
    secrets.note(&issued);
    let pair = TokenPair::from_json(&issued.json());
    let body = json!({ "refreshToken": pair.refresh });
    secrets.note(&served.client().bearer(&pair.access).post("/user/refresh", &body).await);
    served.program.kill();
    for file in ["bearward.db", "bearward.db-wal"] {
        let content = fs::read(folder.path().join(file)).expect("the kill left the file in place");
        secrets.assert_absent_from(file, &String::from_utf8_lossy(&content));
    }
}

#[tokio::test]
async fn log_levels_that_are_not_understood_are_reported() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    let program = Program::start_with(("BEARWARD_LOG", "bearward=loud".as_ref()), folder.path(), &["serve"]);
    program.wait_for_stderr("BEARWARD_LOG is not understood");
    program.wait_for_stderr("admin listening");
}
