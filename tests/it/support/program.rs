//! The real program, as a child process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::client::Client;
use super::secrets;

/// Much more than anything here needs, also on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `bearward` until it exits.
pub fn bearward(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().expect("the program was built")
}

/// As [`bearward`], with environment variables.
pub fn bearward_with_variables(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    command(folder).args(arguments).envs(variables.iter().copied()).output().expect("the program was built")
}

/// As [`bearward`], with `input` on standard input.
pub fn bearward_with_stdin(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = command(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built");
    // A program that does not read its input has closed the pipe.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it is our child")
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bearward"));
    command.current_dir(folder).env_remove("BEARWARD_LOG").stdin(Stdio::null());
    command
}

/// A `bearward` process that keeps running. Dropping this kills it.
pub struct Program {
    child: Child,
    stdout: Captured,
    stderr: Captured,
    folder: PathBuf,
}

impl Program {
    pub fn start(folder: &Path, arguments: &[&str]) -> Program {
        Self::spawn(command(folder).args(arguments), folder)
    }

    /// As [`Program::start`], with an environment variable.
    pub fn start_with(variable: (&str, &OsStr), folder: &Path, arguments: &[&str]) -> Program {
        Self::spawn(command(folder).env(variable.0, variable.1).args(arguments), folder)
    }

    /// Starts it by a shell command, in which `"$0"` is the program. The command must end with an `exec` of it.
    pub fn start_with_shell(folder: &Path, line: &str) -> Program {
        let program = env!("CARGO_BIN_EXE_bearward");
        let mut command = Command::new("bash");
        Self::spawn(command.args(["-c", line, program]).current_dir(folder).env_remove("BEARWARD_LOG"), folder)
    }

    /// Starts it with a listening socket, as systemd does.
    pub fn start_with_socket(socket: &TcpListener, folder: &Path, arguments: &[&str]) -> Program {
        // `exec` keeps the process id of the shell, so that LISTEN_PID is that of the program.
        let line = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let passed = OwnedFd::from(socket.try_clone().expect("a second handle"));
        let mut command = Command::new("bash");
        command.args(["-c", line, env!("CARGO_BIN_EXE_bearward")]).args(arguments).stdin(Stdio::from(passed));
        Self::spawn(command.current_dir(folder).env_remove("BEARWARD_LOG"), folder)
    }

    fn spawn(command: &mut Command, folder: &Path) -> Program {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built");
        let stdout = Captured::collect(child.stdout.take().expect("piped"));
        let stderr = Captured::collect(child.stderr.take().expect("piped"));
        Program { child, stdout, stderr, folder: folder.to_owned() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its peak memory, in bytes.
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line with the peak memory");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    /// Waits until standard output contains `text`. Returns all of it.
    pub fn wait_for_stdout(&self, text: &str) -> String {
        self.stdout.wait_for(text)
    }

    /// Waits until standard error contains `text`. Returns all of it.
    pub fn wait_for_stderr(&self, text: &str) -> String {
        self.stderr.wait_for(text)
    }

    /// What it has written to standard error.
    pub fn stderr_so_far(&self) -> String {
        self.stderr.so_far()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("bash").args(["-c", &format!("kill -{name} {}", self.id())]).status();
        assert!(sent.expect("bash is there").success(), "SIG{name} was not sent");
    }

    /// Waits until it exits. Returns its status, standard output and standard error.
    pub fn wait(mut self) -> (ExitStatus, String, String) {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match self.child.try_wait().expect("it is our child") {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    panic!("it did not exit within {TIMEOUT:?}:\n{}", self.stderr.so_far())
                }
                // Waits for the child: the standard library cannot wait with a timeout.
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        (status, self.stdout.all(), self.stderr.all())
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is our child");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let leak = secrets::leak(&self.folder, &[("standard error", self.stderr.so_far())]);
            assert!(leak.is_none(), "{}", leak.unwrap_or_default());
        }
    }
}

/// A `bearward serve` process and its addresses.
pub struct GatewayProcess {
    pub program: Program,
    /// Addresses of its listeners, in the order of the configuration.
    pub addresses: Vec<SocketAddr>,
    pub admin: SocketAddr,
    admin_token: String,
}

impl GatewayProcess {
    /// Runs `bearward serve` with the `gateway.toml` in `folder`.
    pub fn start(folder: &Path) -> GatewayProcess {
        Self::wait_for(Program::start(folder, &["serve"]), folder)
    }

    /// Waits until `program` accepts connections.
    pub fn wait_for(program: Program, folder: &Path) -> GatewayProcess {
        let started = program.wait_for_stderr("admin listening");
        let addresses_after = |message: &str| -> Vec<SocketAddr> {
            let lines = started.lines().filter_map(|line| line.split_once(message));
            lines.map(|(_, address)| address.trim().parse().expect("an address")).collect()
        };
        let admin = addresses_after(": admin listening address=")[0];
        let addresses = addresses_after(": listening address=");
        let admin_token = std::fs::read_to_string(folder.join("admin.token")).expect("written at the start");
        GatewayProcess { program, addresses, admin, admin_token: admin_token.trim().to_owned() }
    }

    /// HTTP/1.1 in cleartext, to the first listener.
    pub fn client(&self) -> Client {
        Client::http1(self.addresses[0])
    }

    pub fn admin_client(&self) -> Client {
        Client::http1(self.admin).host("localhost").bearer(&self.admin_token)
    }
}

/// What the program has written to a pipe so far.
#[derive(Clone, Default)]
struct Captured(Arc<(Mutex<Written>, Condvar)>);

#[derive(Default)]
struct Written {
    text: String,
    complete: bool,
}

impl Captured {
    fn collect(pipe: impl Read + Send + 'static) -> Captured {
        let captured = Captured::default();
        let Captured(shared) = captured.clone();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(pipe);
            let mut line = Vec::new();
            while let Ok(1..) = lines.read_until(b'\n', &mut line) {
                shared.0.lock().unwrap_or_else(PoisonError::into_inner).text.push_str(&String::from_utf8_lossy(&line));
                shared.1.notify_all();
                line.clear();
            }
            shared.0.lock().unwrap_or_else(PoisonError::into_inner).complete = true;
            shared.1.notify_all();
        });
        captured
    }

    fn so_far(&self) -> String {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    fn wait_until(&self, condition: impl Fn(&Written) -> bool) -> String {
        let written = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(written, TIMEOUT, |written| !written.complete && !condition(written));
        waited.unwrap_or_else(PoisonError::into_inner).0.text.clone()
    }

    fn wait_for(&self, expected: &str) -> String {
        let text = self.wait_until(|written| written.text.contains(expected));
        assert!(text.contains(expected), "{expected:?} was not written:\n{text}");
        text
    }

    fn all(&self) -> String {
        self.wait_until(|_| false)
    }
}
