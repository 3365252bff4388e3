//! A run of each client: all steps, and what must be true after each.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::browser::{Browser, Moment};
use super::parties::{Party, Registration};
use super::place::{ACCESS_LIFETIME, Place, Restarts, Site};

/// Much longer than any client needs for a call.
const PATIENCE: Duration = Duration::from_secs(120);

/// More than `tokens.clock_skew`.
pub const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// A client in a place, with a browser of its own.
pub struct Run<'p> {
    site: &'p Site,
    party: &'p Party,
    registration: Registration,
    pub browser: Browser,
    folder: TempDir,
    process: Option<Process>,
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

/// Each client of each kind, in the place that has this kind. `kills`: the gateways are killed at four moments.
pub async fn go_all_steps(places: &[Place], parties: &[Party], kills: bool) {
    let mut runs = Vec::new();
    for party in parties {
        for registration in party.kinds {
            let place = places.iter().find(|place| place.has(*registration)).expect("a place for this kind");
            let mut run = Run::start(&place.site, party, *registration, kills);
            let began = Instant::now();
            run.call("signs in and calls");
            eprintln!("{} has signed in and called after {:.1?}", run.name(), began.elapsed());
            assert_eq!(run.browser.opened(), 1, "{} asks the user once", run.name());
            let session = place.gateways.newest_session().await;
            runs.push((run, place, session));
        }
    }
    // Nothing but time makes tokens old.
    tokio::time::sleep(ACCESS_LIFETIME + CLOCK_SKEW).await;
    for (run, place, session) in &mut runs {
        if kills {
            place.gateways.kill();
        }
        run.call("refreshes and calls");
        let later = place.gateways.session(|listed| listed["tokenId"] == session["tokenId"]).await;
        assert_ne!(later["lastUsedAt"], session["lastUsedAt"], "{} has refreshed: {later}", run.name());
        assert_eq!(run.browser.opened(), 1, "{} does not ask the user again", run.name());
    }
    for place in places {
        place.gateways.revoke().await;
    }
    for index in 0..runs.len() {
        // Some clients fail before they begin again, with another call. mcp-remote begins several sign-ins at once, of
        // which each spoils the others. Two that end in one millisecond write one temporary file, and one fails.
        let mut answer = String::new();
        for attempt in 0..5 {
            if attempt > 1 {
                // Each one of one server listens on one port, and keeps it while it is stopped.
                runs.iter_mut().for_each(|(run, _, _)| run.process = None);
            }
            answer = runs[index].0.answer();
            if answer.starts_with("called") {
                break;
            }
        }
        let run = &runs[index].0;
        assert!(answer.starts_with("called"), "{} does not begin again: {answer}\n{}", run.name(), run.log());
        assert!(run.browser.opened() > 1, "{} asks the user again", run.name());
    }
}

impl<'p> Run<'p> {
    pub fn start(site: &'p Site, party: &'p Party, registration: Registration, kills: bool) -> Run<'p> {
        // Not kept alive by it: the browser listens until the tests end.
        let programs = Arc::downgrade(&site.programs);
        let browser = Browser::start(move |moment| {
            if kills && moment != Moment::Open {
                programs.upgrade().expect("the site is still there").kill();
            }
        });
        let folder = TempDir::new().expect("a folder");
        browser.install(folder.path());
        for (name, text) in PROGRAMS {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        std::fs::create_dir(folder.path().join("home")).expect("created");
        Run { site, party, registration, browser, folder, process: None }
    }

    pub fn name(&self) -> String {
        format!("{} ({:?})", self.party.name, self.registration)
    }

    fn call(&mut self, what: &str) {
        let answer = self.answer();
        assert!(answer.starts_with("called"), "{} {what}: {answer}\n{}", self.name(), self.log());
    }

    /// Lets the client call once. Returns what it says.
    pub fn answer(&mut self) -> String {
        let mut process = match self.process.take() {
            Some(mut process) => {
                process.signal("CONT");
                writeln!(process.input, "again").expect("it reads its input");
                process
            }
            None => self.start_process(),
        };
        let answer = process.answer();
        if self.party.stays {
            // As a laptop that sleeps: it must not refresh while gateways are killed for another client.
            process.signal("STOP");
            self.process = Some(process);
        }
        answer
    }

    fn start_process(&self) -> Process {
        let folder = self.folder.path();
        let mut command = self.party.command(folder);
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", folder.display())).env("BROWSER", folder.join("xdg-open"));
        command.env("HOME", folder.join("home")).env("SERVER", &self.site.server);
        command.env("NODE_EXTRA_CA_CERTS", &self.site.trusted).env("SSL_CERT_FILE", &self.site.trusted);
        match (self.registration, &self.site.document) {
            (Registration::Operator, _) => command.env("CLIENT_ID", "tests"),
            (Registration::Document, Some(document)) => command.env("DOCUMENT", document),
            _ => &mut command,
        };
        let log = std::fs::File::options().create(true).append(true).open(folder.join("client.log")).expect("opened");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        command.process_group(0);
        let mut child = command.spawn().expect("tests/run installs it");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nothing reads the rest.
                let _ = sender.send(line);
            }
        });
        Process { child, input, output: receiver }
    }

    /// What the client and the browser have printed.
    fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        ["client.log", "browser.log"].map(read).concat()
    }
}

impl Process {
    /// For it and its children.
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), "--", &format!("-{}", self.child.id())]).status();
        assert!(sent.expect("kill is there").success(), "SIG{name} was not sent");
    }

    /// The next line with what came of a call.
    fn answer(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut others = String::new();
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with("called") || line.starts_with("failed") => return line,
                Ok(line) => others = format!("{others}{line}\n"),
                Err(error) => return format!("{error}: {others}"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal("KILL");
        let _ = self.child.wait();
    }
}

const PROGRAMS: [(&str, &str); 12] = [
    ("authlib_client.py", include_str!("programs/authlib_client.py")),
    ("callback.mjs", include_str!("programs/callback.mjs")),
    ("callback.py", include_str!("programs/callback.py")),
    ("codex.mjs", include_str!("programs/codex.mjs")),
    ("fastmcp_client.py", include_str!("programs/fastmcp_client.py")),
    ("inspector.mjs", include_str!("programs/inspector.mjs")),
    ("mcp-remote.mjs", include_str!("programs/mcp-remote.mjs")),
    ("mcp_client.py", include_str!("programs/mcp_client.py")),
    ("oauth4webapi.mjs", include_str!("programs/oauth4webapi.mjs")),
    ("openid-client.mjs", include_str!("programs/openid-client.mjs")),
    ("opencode.mjs", include_str!("programs/opencode.mjs")),
    ("typescript.mjs", include_str!("programs/typescript.mjs")),
];
