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

/// Nothing that is waited for here takes a fraction of this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `bearward` to its end.
pub fn bearward(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().expect("the program was built")
}

/// As [`bearward`], with something to read on standard input.
pub fn bearward_reading(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = command(folder);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built");
    // Whoever does not read it has closed the pipe, which is as good.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it is our child")
}

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bearward"));
    command.current_dir(folder).env_remove("BEARWARD_LOG").stdin(Stdio::null());
    command
}

/// A `bearward` that goes on until it is ended. Dropping it kills it.
pub struct Program {
    child: Child,
    stdout: Printed,
    stderr: Printed,
    folder: PathBuf,
}

impl Program {
    pub fn start(folder: &Path, arguments: &[&str]) -> Program {
        Self::spawn(command(folder).args(arguments), folder)
    }

    /// With a variable in its environment.
    pub fn start_with(variable: (&str, &OsStr), folder: &Path, arguments: &[&str]) -> Program {
        Self::spawn(command(folder).env(variable.0, variable.1).args(arguments), folder)
    }

    /// From a line of shell, in which `"$0"` is the program. The line has to end in an `exec` of it.
    pub fn start_by(folder: &Path, line: &str) -> Program {
        let program = env!("CARGO_BIN_EXE_bearward");
        let mut command = Command::new("bash");
        Self::spawn(command.args(["-c", line, program]).current_dir(folder).env_remove("BEARWARD_LOG"), folder)
    }

    /// With a listening socket, in the way of systemd.
    pub fn start_on(socket: &TcpListener, folder: &Path, arguments: &[&str]) -> Program {
        // The shell is told its own number, which stays that of the program.
        let line = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
        let passed = OwnedFd::from(socket.try_clone().expect("a second handle"));
        let mut command = Command::new("bash");
        command.args(["-c", line, env!("CARGO_BIN_EXE_bearward")]).args(arguments).stdin(Stdio::from(passed));
        Self::spawn(command.current_dir(folder).env_remove("BEARWARD_LOG"), folder)
    }

    fn spawn(command: &mut Command, folder: &Path) -> Program {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built");
        let stdout = Printed::collect(child.stdout.take().expect("piped"));
        let stderr = Printed::collect(child.stderr.take().expect("piped"));
        Program { child, stdout, stderr, folder: folder.to_owned() }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The most memory that it ever had, in bytes.
    pub fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line about memory");
        let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }

    /// Everything it has written to standard output, once that has a line with `mark` in it.
    pub fn stdout_with(&self, mark: &str) -> String {
        self.stdout.once_it_has(mark)
    }

    pub fn stderr_with(&self, mark: &str) -> String {
        self.stderr.once_it_has(mark)
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("bash").args(["-c", &format!("kill -{name} {}", self.id())]).status();
        assert!(sent.expect("bash is there").success(), "SIG{name} was not sent");
    }

    /// How it ended, and all that it wrote: standard output, standard error.
    pub fn wait(mut self) -> (ExitStatus, String, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("it is our child") {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("it does not end:\n{}", self.stderr.so_far()),
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
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let leak = secrets::leak(&self.folder, &[("standard error", self.stderr.so_far())]);
            assert!(leak.is_none(), "{}", leak.unwrap_or_default());
        }
    }
}

/// `bearward serve`, and where it listens.
pub struct Served {
    pub program: Program,
    /// In the order of the configuration.
    pub addresses: Vec<SocketAddr>,
    pub admin: SocketAddr,
    admin_token: String,
}

impl Served {
    /// Serves the `gateway.toml` in `folder`.
    pub fn start(folder: &Path) -> Served {
        Self::of(Program::start(folder, &["serve"]), folder)
    }

    /// Waits until `program` serves.
    pub fn of(program: Program, folder: &Path) -> Served {
        let announced = program.stderr_with("admin listening");
        let addresses_after = |mark: &str| -> Vec<SocketAddr> {
            let lines = announced.lines().filter_map(|line| line.split_once(mark));
            lines.map(|(_, address)| address.trim().parse().expect("an address")).collect()
        };
        let admin = addresses_after(": admin listening address=")[0];
        let addresses = addresses_after(": listening address=");
        let admin_token = std::fs::read_to_string(folder.join("admin.token")).expect("made at the start");
        Served { program, addresses, admin, admin_token: admin_token.trim().to_owned() }
    }

    /// HTTP/1.1 in cleartext, at the first listener.
    pub fn client(&self) -> Client {
        Client::http1(self.addresses[0])
    }

    pub fn admin_client(&self) -> Client {
        Client::http1(self.admin).bearer(&self.admin_token)
    }
}

/// What a pipe has brought so far.
#[derive(Clone, Default)]
struct Printed(Arc<(Mutex<Page>, Condvar)>);

#[derive(Default)]
struct Page {
    text: String,
    complete: bool,
}

impl Printed {
    fn collect(pipe: impl Read + Send + 'static) -> Printed {
        let printed = Printed::default();
        let Printed(shared) = printed.clone();
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
        printed
    }

    fn so_far(&self) -> String {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    fn wait_until(&self, reached: impl Fn(&Page) -> bool) -> String {
        let page = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(page, PATIENCE, |page| !page.complete && !reached(page));
        waited.unwrap_or_else(PoisonError::into_inner).0.text.clone()
    }

    fn once_it_has(&self, mark: &str) -> String {
        let text = self.wait_until(|page| page.text.contains(mark));
        assert!(text.contains(mark), "{mark:?} was not written:\n{text}");
        text
    }

    fn all(&self) -> String {
        self.wait_until(|_| false)
    }
}
