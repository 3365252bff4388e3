//! Every command of the pages runs: in a folder that stands for the root of a machine, with the real program, and with
//! small replacements for what only root, systemd and Docker can do.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::Upstream;
use crate::support::certificates::Authority;
use crate::support::files::{blocks, output_text, pages, write_certificates};
use crate::support::ports::free_port;
use crate::support::postgres::PostgresServer;
use crate::support::source;

/// Folders of the machine that lie below the root folder of the test.
const FOLDERS: [&str; 6] =
    ["/usr/local/bin/", "/etc/bearward", "/etc/systemd/system/", "/var/lib/bearward", "/var/log/bearward", "/backup/"];

/// The program as `cargo build` leaves it, but `serve` goes to the background and returns when the gateway listens.
const PROGRAM: &str = r#"
if [[ $1 != serve ]]; then exec "$PROGRAM" "$@"; fi
touch "$ROOT/journal"
listening() { grep -c "admin listening" "$ROOT/journal" || true; }
before=$(listening)
"$PROGRAM" "$@" </dev/null >>"$ROOT/journal" 2>&1 &
echo $! | tee "$ROOT/pid" >>"$ROOT/pids"
until (( $(listening) > before )); do kill -0 $! || exit 1; sleep 0.02; done
"#;

/// The name of each replacement, and its script.
const REPLACEMENTS: [(&str, &str); 9] = [
    ("sudo", r#"[[ $1 == -u && $2 == bearward ]] || exit 1; shift 2; exec "$@""#),
    ("useradd", r#"[[ ${!#} == bearward ]]"#),
    ("curl", r#"exec /usr/bin/curl --fail-with-body "$@""#),
    ("journalctl", r#"cat "$ROOT/journal""#),
    (
        "install",
        r#"
kept=()
while (($#)); do case $1 in -o | -g) shift 2 ;; *) kept+=("$1"); shift ;; esac; done
exec /usr/bin/install "${kept[@]}""#,
    ),
    (
        "docker",
        r#"
case $1 in
    build) [[ $2 == -f && -f $3 ]] ;;
    run) [[ ${!#} == bearward ]] ;;
    exec) shift 2; exec "$@" ;;
    *) exit 1 ;;
esac"#,
    ),
    (
        "systemctl",
        r#"
unit=$ROOT/etc/systemd/system/bearward.service
command_of() { sed -n "s#^$1=##p" "$unit" | sed "s#/usr/local\|/etc/bearward#$ROOT&#g"; }
start() { [[ -e $ROOT/pid ]] || $(command_of ExecStart); }
stop() {
    [[ -e $ROOT/pid ]] || return 0
    pid=$(<"$ROOT/pid"); kill "$pid"; rm "$ROOT/pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}
verb=$1; shift
[[ $verb == daemon-reload ]] && exit
for name in "$@"; do
    [[ $name == --now ]] || ls "$ROOT/etc/systemd/system/" | grep --quiet --line-regexp "$name\(.service\)\?"
done
case $verb in
    enable | start) start ;;
    stop) stop ;;
    restart) stop; start ;;
    reload) $(command_of ExecReload) ;;
    status | edit) ;;
    *) exit 1 ;;
esac"#,
    ),
    // Nothing is listed: the pages name what they look at.
    ("ss", "exit 0"),
    // It forwards a port until the operator ends it.
    ("ssh", r#"[[ $# == 4 && $1 == -N && $2 == -L && $3 == *:127.0.0.1:* ]]"#),
];

/// What stands for a machine, with a backend.
struct Machine {
    root: TempDir,
    backend: Upstream,
    port: u16,
    admin_port: u16,
}

impl Machine {
    /// As it is before the installation: the sources, and a folder with a configuration and certificates.
    fn new() -> Machine {
        let machine = Machine {
            root: TempDir::new().expect("a folder"),
            backend: Upstream::start(),
            port: free_port(),
            admin_port: free_port(),
        };
        let root = machine.root.path();
        for folder in [
            "bin",
            "source/target/release",
            "files",
            "usr/local/bin",
            "etc/systemd/system",
            "var/lib/bearward",
            "backup",
        ] {
            fs::create_dir_all(root.join(folder)).expect("created");
        }
        for (name, script) in REPLACEMENTS {
            write_script(&root.join("bin").join(name), script);
        }
        write_script(&root.join("source/target/release/bearward"), PROGRAM);
        symlink(source::root().join("deploy"), root.join("source/deploy")).expect("linked");
        write_certificates(&Authority::new(), &root.join("files"));
        let page = source::read("deploy/install.md");
        let config = machine.on_this_machine(&blocks(&page, "toml")[0]);
        let config = config.replace("[admin]", &format!("[admin]\naddress = \"127.0.0.1:{}\"", machine.admin_port));
        fs::write(root.join("files/gateway.toml"), config).expect("written");
        machine
    }

    /// With the folders, the ports and the backend of this machine.
    fn on_this_machine(&self, text: &str) -> String {
        let root = self.root.path().to_str().expect("UTF-8");
        let ports = [("8443", self.port), ("9443", self.admin_port), ("3000", self.backend.address.port())];
        let text = ports.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, &new.to_string()));
        FOLDERS.iter().fold(text, |text, folder| text.replace(folder, &format!("{root}{folder}")))
    }

    /// Runs a script in the folder of the sources. It ends at the first command that fails.
    fn run(&self, script: &str) -> Output {
        let root = self.root.path();
        let path = format!("{0}/bin:{0}/usr/local/bin:{1}", root.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command.args(["-c", &format!("set -euxo pipefail\n{script}")]).current_dir(root.join("source"));
        command
            .env("PATH", path)
            .env("ROOT", root)
            .env("SOURCES", root.join("source"))
            .env("PROGRAM", env!("CARGO_BIN_EXE_bearward"));
        command.env_remove("BEARWARD_LOG").stdin(Stdio::null()).output().expect("bash is there")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let pids = fs::read_to_string(self.root.path().join("pids")).unwrap_or_default();
        for pid in pids.lines() {
            // One that has ended is as good.
            let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status();
        }
    }
}

fn write_script(path: &Path, script: &str) {
    fs::write(path, format!("#!/usr/bin/env bash\nset -euo pipefail\n{script}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// The commands of a page, each with its continued lines: what follows a prompt.
fn commands(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for block in blocks(page, "console") {
        let mut continues = false;
        for line in block.lines() {
            match line.strip_prefix("# ").or(line.strip_prefix("$ ")) {
                Some(command) => commands.push(command.to_owned()),
                None if continues => {
                    let command = commands.last_mut().expect("a first line");
                    write!(command, "\n{line}").expect("a string");
                }
                None => {}
            }
            continues = line.ends_with('\\');
        }
    }
    commands
}

/// Each page runs on a machine of its own: installed as install.md says, and after a request that was rejected.
#[test]
fn every_command_of_the_pages_works() {
    let install = commands(&source::read("deploy/install.md"));
    let installed = install.iter().position(|command| command.contains("enable --now")).expect("the last step") + 1;
    let (install, after_install) = install.split_at(installed);
    let pages = pages().into_iter().filter(|(path, _)| path != "README.md").map(|(path, text)| {
        let own = if path == "deploy/install.md" { after_install.to_vec() } else { commands(&text) };
        (path, own)
    });
    let pages: Vec<_> = pages.filter(|(_, own)| !own.is_empty()).collect();
    let count: usize = pages.iter().map(|(_, own)| own.len()).sum();
    assert!(pages.len() >= 10 && count >= 30, "only {count} commands were found, in {} pages", pages.len());
    std::thread::scope(|scope| {
        for (path, own) in &pages {
            scope.spawn(move || run_page(path, install, own));
        }
    });
}

fn run_page(path: &str, install: &[String], own: &[String]) {
    let machine = Machine::new();
    let rejected = "curl --insecure --silent https://127.0.0.1:8443/ || true\n\
                    until grep --quiet '\"reason\"' \"$ROOT/journal\"; do sleep 0.02; done";
    let install = format!("cd \"$ROOT/files\"\n{}\ncd \"$SOURCES\"", install.join("\n"));
    let edit = if path == "deploy/replicas.md" { edit_for_postgres() } else { String::new() };
    let before = machine.on_this_machine(&[&install, rejected].join("\n"));
    // The edit names a port of this machine already.
    let script = [before, edit, machine.on_this_machine(&own.join("\n"))].join("\n");
    let output = machine.run(&script);
    let journal = fs::read_to_string(machine.root.path().join("journal")).unwrap_or_default();
    assert!(output.status.success(), "{path}:\n{}\n{journal}", output_text(&output));
}

/// What an operator writes into the configuration to move from SQLite.
fn edit_for_postgres() -> String {
    let keys = PostgresServer::shared().store_keys().replace('\n', "\\n");
    format!("sed --in-place 's#^sqlite = .*#{keys}#' \"$ROOT/etc/bearward/gateway.toml\"")
}

/// The three steps of "Put it in front of your service": a service, a configuration of ten lines, two requests.
#[test]
fn the_commands_of_the_readme_work() {
    let [trial, service, config, requests] = &blocks(&source::read("README.md"), "sh")[..] else {
        panic!("README.md has other commands than before");
    };
    // The tests in `demo.rs` paste what the demo prints.
    let trial: Vec<&str> = trial.lines().filter_map(|line| line.split('#').next()).map(str::trim).collect();
    assert_eq!(trial, ["cargo run -- demo"]);
    assert!(config.lines().count() <= 2 + 10, "more than ten lines:\n{config}");
    assert_eq!(requests.lines().filter(|line| line.starts_with("curl ")).count(), 2);

    let machine = Machine::new();
    let root = machine.root.path();
    fs::remove_file(root.join("bin/curl")).expect("there");
    symlink(root.join("source/target/release/bearward"), root.join("usr/local/bin/bearward")).expect("linked");
    let service_port = free_port();
    let admin = format!("[admin]\naddress = \"127.0.0.1:{}\"\n\n[tokens]", machine.admin_port);
    let show_status = "curl --silent --output /dev/null --write-out '%{http_code}\\n'";
    // $server is the program itself if the shell needs no process of its own for the list of commands.
    let script = format!(
        "trap 'kill $server $(pgrep --parent $server); wait $server || true' EXIT\n( {service} ) >/dev/null 2>&1 & server=$!\n\
         until curl --silent http://127.0.0.1:3000 >/dev/null; do sleep 0.02; done\n\
         mkdir mine; cd mine\n{config}\n{}",
        requests.replace("curl ", &format!("{show_status} ")).replace("bearward serve &", "bearward serve")
    );
    let script = script.replace("3000", &service_port.to_string()).replace("[tokens]", &admin);
    let output = machine.run(&machine.on_this_machine(&script));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["200", "401"], "{}", output_text(&output));
    let left = TcpStream::connect((Ipv4Addr::LOCALHOST, service_port));
    assert!(left.is_err(), "the service of the README is still running");
}
