//! FastMCP's proxy of OAuth in the place of the gateway: the same clients, the same provider, the same moments of
//! `kill -9`. It prints how far each client comes, because the proxy is not ours.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::parties::{ALL, Party, Registration, python_program};
use super::place::{ACCESS_LIFETIME, Restarts, SECRET, Site, provider, write_certificate};
use super::runs::{CLOCK_SKEW, Run};
use crate::support::OidcProvider;
use crate::support::front_proxy::FrontProxy;
use crate::support::ports::free_address;
use crate::support::source;

const PROGRAM: &str = "fastmcp_proxy.py";

struct Proxy {
    folder: TempDir,
    address: SocketAddr,
    issuer: String,
    running: Mutex<FrontProxy>,
}

impl Proxy {
    fn start(folder: TempDir, address: SocketAddr, issuer: &str) -> Proxy {
        std::fs::write(folder.path().join(PROGRAM), include_str!("programs/fastmcp_proxy.py")).expect("written");
        let running = Mutex::new(start(folder.path(), address, issuer));
        Proxy { folder, address, issuer: issuer.to_owned(), running }
    }
}

fn start(folder: &Path, address: SocketAddr, issuer: &str) -> FrontProxy {
    let libraries = source::root().join("target/clients-python");
    let variables = [
        format!("PYTHONPATH={}", libraries.display()),
        format!("PORT={}", address.port()),
        format!("ISSUER={issuer}"),
        format!("SECRET={SECRET}"),
        format!("ACCESS_LIFETIME={}", ACCESS_LIFETIME.as_secs()),
    ];
    let arguments: Vec<&str> = variables.iter().map(String::as_str).chain([python_program(), PROGRAM]).collect();
    FrontProxy::start(Path::new("env"), &arguments, folder, address)
}

impl Restarts for Proxy {
    fn kill(&self) {
        let mut running = self.running.lock();
        running.kill();
        *running = start(self.folder.path(), self.address, &self.issuer);
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
        let trusted = write_certificate(folder.path());
        let address = free_address();
        let provider = provider(address);
        let proxy = Arc::new(Proxy::start(folder, address, &provider.issuer));
        let server = format!("https://localhost:{}/mcp", address.port());
        let site = Site { server, trusted, document: None, programs: proxy.clone() };
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
