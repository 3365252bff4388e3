//! Commands of the wrong user: what they advise, and which user has the files afterwards.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::text;
use crate::support::program::{GatewayProcess, Program};
use crate::support::{Gateway, Upstream};

/// The user of the gateway: `daemon` on every Debian.
const GATEWAY: u32 = 1;
const OPERATOR: u32 = 65533;

fn command(user: u32, arguments: &str) -> String {
    format!("exec setpriv --reuid {user} --regid {user} --clear-groups ./bearward {arguments}")
}

fn run(folder: &Path, user: u32, arguments: &str) -> Output {
    let mut command_line = Command::new("bash");
    command_line.args(["-c", &command(user, arguments)]).current_dir(folder).output().expect("bash is there")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// A folder with a configuration for all to read, and the files of a gateway that has run in `state`. `None` unless
/// this is root, who alone can start processes of other users.
fn folder_of_the_gateway(upstream: &Upstream) -> Option<TempDir> {
    if bearward::types::process::user() != 0 {
        eprintln!("only root can start a process of another user");
        return None;
    }
    let folder = TempDir::new().expect("a folder");
    let store = "[store]\nsqlite = \"state/bearward.db\"\nsecret_file = \"state/bearward.secret\"\n";
    let text = Gateway::config_text(&upstream.address.to_string(), store);
    let named = text.replace("[admin]\n", "[admin]\ntoken_file = \"state/admin.token\"\n");
    fs::write(folder.path().join("gateway.toml"), named).expect("written");
    fs::copy(env!("CARGO_BIN_EXE_bearward"), folder.path().join("bearward")).expect("copied");
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("created");
    fs::create_dir(folder.path().join("tls")).expect("created");
    for path in [&state, &folder.path().join("tls"), folder.path()] {
        chown(path, Some(GATEWAY), Some(GATEWAY)).expect("this test runs as root");
    }
    set_mode(folder.path(), 0o755);
    let served = Program::start_with_shell(folder.path(), &command(GATEWAY, "serve"));
    served.wait_for_stderr("admin listening");
    served.signal("TERM");
    served.wait();
    Some(folder)
}

#[test]
fn a_command_of_the_wrong_user_names_the_right_one() {
    let upstream = Upstream::start();
    let Some(folder) = folder_of_the_gateway(&upstream) else { return };
    let [state, config] = ["state", "gateway.toml"].map(|name| folder.path().join(name));
    chown(folder.path(), Some(0), Some(0)).expect("root may do this");
    for (mode, path) in [(0o755, &state), (0o700, &state), (0o600, &config)] {
        set_mode(path, mode);
        chown(&config, Some(GATEWAY), Some(GATEWAY)).expect("root may do this");
        for arguments in ["check", "serve", "store sweep", "keys rotate --root", "explain"] {
            let output = run(folder.path(), OPERATOR, arguments);
            let message = text(&output.stderr);
            assert!(!output.status.success(), "{arguments}: {message}");
            assert!(message.contains("belongs to user daemon"), "{arguments}: {message}");
            assert!(message.contains("run this as its user: sudo -u daemon bearward …"), "{arguments}: {message}");
            assert!(!message.contains("help: run: chown"), "{arguments}: {message}");
        }
    }
    set_mode(&config, 0o644);
    let served = Program::start_with_shell(folder.path(), &command(GATEWAY, "serve"));
    served.wait_for_stderr("admin listening");
    let message = text(&run(folder.path(), OPERATOR, "keys list").stderr);
    assert!(message.contains("run the command as its user (sudo -u daemon bearward …), or as root"), "{message}");
    assert!(run(folder.path(), GATEWAY, "check").status.success());
}

/// The gateway could not start with a file of root.
#[test]
fn a_command_of_root_leaves_the_files_to_the_gateway() {
    let upstream = Upstream::start();
    let Some(folder) = folder_of_the_gateway(&upstream) else { return };
    let state = folder.path().join("state");
    fs::remove_file(state.join("bearward.db.lock")).expect("removed");
    for arguments in ["check", "store sweep", "keys rotate --root"] {
        let output = run(folder.path(), 0, arguments);
        assert!(output.status.success(), "{arguments}: {}", text(&output.stderr));
    }
    for entry in fs::read_dir(&state).expect("it exists") {
        let entry = entry.expect("an entry");
        assert_eq!(entry.metadata().expect("it exists").uid(), GATEWAY, "{}", entry.path().display());
    }
    let program = Program::start_with_shell(folder.path(), &command(GATEWAY, "serve"));
    GatewayProcess::wait_for(program, &state);
}

/// The user of the gateway can put a link where a command of root writes.
#[test]
fn a_link_to_a_file_of_root_is_neither_written_nor_given_away() {
    let upstream = Upstream::start();
    let Some(folder) = folder_of_the_gateway(&upstream) else { return };
    let target = folder.path().join("of-root");
    fs::write(&target, "kept").expect("written");
    for (name, arguments, succeeds) in
        [("bearward.db.lock", "store sweep", false), ("bearward.secret.new", "keys rotate --root", true)]
    {
        let link = folder.path().join("state").join(name);
        let _ = fs::remove_file(&link);
        symlink(&target, &link).expect("a link");
        let output = run(folder.path(), 0, arguments);
        assert_eq!(output.status.success(), succeeds, "{arguments}: {}", text(&output.stderr));
        assert_eq!(fs::read_to_string(&target).expect("read"), "kept", "{arguments}");
        assert_eq!(fs::metadata(&target).expect("it exists").uid(), 0, "{arguments}");
    }
}
