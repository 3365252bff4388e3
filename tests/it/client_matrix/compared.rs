//! FastMCP's proxy of OAuth in the place of the gateway: the same clients, the same provider, the same moments of
//! `kill -9`. It prints how far each client comes, because the proxy is not ours.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::parties::{ALL, Party, Registration, python_program};
use super::place::{ACCESS_LIFETIME, Restarts, SECRET, Site, provider};
use super::runs::{CLOCK_SKEW, Run};
use crate::support::OidcProvider;
use crate::support::certificates::Authority;
use crate::support::ports::free_address;
use crate::support::source;

const PROGRAM: &str = "fastmcp_proxy.py";

/// The proxy. It ends when this is dropped.
struct Proxy {
    folder: TempDir,
    address: SocketAddr,
    issuer: String,
    running: Mutex<Child>,
}

impl Proxy {
    fn start(folder: TempDir, address: SocketAddr, issuer: &str) -> Proxy {
        std::fs::write(folder.path().join(PROGRAM), include_str!("programs/fastmcp_proxy.py")).expect("written");
        let running = Mutex::new(spawn(folder.path(), address, issuer));
        let proxy = Proxy { folder, address, issuer: issuer.to_owned(), running };
        proxy.wait();
        proxy
    }

    fn wait(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(self.address).is_err() {
            let log = || std::fs::read_to_string(self.folder.path().join("proxy.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the proxy does not listen: {}", log());
            // Polls: it does not say when it listens.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn spawn(folder: &Path, address: SocketAddr, issuer: &str) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("proxy.log")).expect("opened");
    let mut command = Command::new(python_program());
    command.arg(PROGRAM).current_dir(folder).env("HOME", folder).env("SECRET", SECRET).env("ISSUER", issuer);
    command.env("PYTHONPATH", source::root().join("target/clients-python")).env("PORT", address.port().to_string());
    command.env("ACCESS_LIFETIME", ACCESS_LIFETIME.as_secs().to_string());
    let log_of_errors = log.try_clone().expect("a second handle");
    command.stdin(Stdio::null()).stdout(log).stderr(log_of_errors).spawn().expect("python3: tests/run installs it")
}

impl Restarts for Proxy {
    fn kill(&self) {
        let mut running = self.running.lock();
        let _ = running.kill();
        let _ = running.wait();
        *running = spawn(self.folder.path(), self.address, &self.issuer);
        self.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        let _ = running.kill();
        let _ = running.wait();
    }
}

/// The proxy, and what it needs.
struct Place {
    site: Site,
    proxy: Arc<Proxy>,
    _provider: OidcProvider,
}

impl Place {
    fn start() -> Place {
        let folder = TempDir::new().expect("a folder");
        let authority = Authority::new();
        authority.sign("localhost").write(folder.path(), "site");
        let trusted = folder.path().join("ca.pem");
        std::fs::write(&trusted, authority.pem()).expect("written");
        let address = free_address();
        let provider = provider(address);
        let proxy = Arc::new(Proxy::start(folder, address, &provider.issuer));
        let site = Site {
            server: format!("https://localhost:{}/mcp", address.port()),
            trusted,
            document: None,
            programs: proxy.clone(),
        };
        Place { site, proxy, _provider: provider }
    }
}

/// How far a client comes.
struct Row {
    name: String,
    signs_in: String,
    refreshes: String,
}

fn outcome(answer: &str, opened: usize) -> String {
    match (answer.starts_with("called"), opened) {
        (true, 1) => "yes".to_owned(),
        (true, more) => format!("yes, with {more} sign-ins"),
        (false, _) => format!("no: {}", &answer[..answer.floor_char_boundary(300)]),
    }
}

fn compare(parties: &[Party], kills: bool) -> Vec<Row> {
    let place = Place::start();
    let mut runs = Vec::new();
    // The proxy has no list of clients for operators.
    for party in parties.iter().filter(|party| party.kinds.contains(&Registration::Itself)) {
        let mut run = Run::start(&place.site, party, Registration::Itself, kills);
        let answer = run.answer();
        let signs_in = outcome(&answer, run.browser.opened());
        runs.push((run, signs_in));
    }
    std::thread::sleep(ACCESS_LIFETIME + CLOCK_SKEW);
    let mut rows = Vec::new();
    for (mut run, signs_in) in runs {
        let refreshes = if signs_in.starts_with("no") {
            "-".to_owned()
        } else {
            if kills {
                place.proxy.kill();
            }
            let answer = run.answer();
            outcome(&answer, run.browser.opened())
        };
        rows.push(Row { name: run.name(), signs_in, refreshes });
    }
    rows
}

#[test]
#[ignore = "tests/clients runs it"]
fn the_proxy_of_fastmcp_beside_it() {
    for kills in [false, true] {
        eprintln!("| client, kills: {kills} | signs in | refreshes |\n|---|---|---|");
        for row in compare(ALL, kills) {
            eprintln!("| {} | {} | {} |", row.name, row.signs_in, row.refreshes);
        }
    }
}
