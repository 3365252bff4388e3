//! A real browser: headless Chromium, driven by WebDriver. tests/run installs it and the libraries of the pages.
//!
//! The environment variables CHROME and CHROMEDRIVER name other programs than those of Debian.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::client::Client;

/// Browsers at a time: each needs hundreds of megabytes.
static PLACES: Semaphore = Semaphore::const_new(4);

/// How long a script of a test may run.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(120);

/// Keys without a character (WebDriver, section 17.4.2).
pub mod key {
    pub const TAB: &str = "\u{E004}";
    pub const ENTER: &str = "\u{E007}";
    pub const ESCAPE: &str = "\u{E00C}";
}

pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    /// What the browser leaves behind.
    _folder: TempDir,
    _place: SemaphorePermit<'static>,
}

impl Browser {
    /// Opens a browser that finds `hosts` at these addresses on port 443, this machine, and no other host. It
    /// accepts the keys of `certificates` without a CA, and checks everything else as always. `more`: further
    /// arguments.
    pub async fn open(hosts: &[(&str, SocketAddr)], certificates: &[&Path], more: &[&str]) -> Browser {
        let rules = hosts.iter().map(|(host, address)| format!("MAP {host}:443 {address}"));
        let rules = rules.chain(["EXCLUDE 127.0.0.1".to_owned()]);
        let keys: Vec<_> = certificates.iter().map(|path| key_hash(path)).collect();
        let keys = format!("--ignore-certificate-errors-spki-list={}", keys.join(","));
        Self::start(rules.collect(), &[&[keys.as_str()], more].concat()).await
    }

    /// Opens a browser that finds `hosts` at these addresses on port 80, this machine, and no other host.
    pub async fn open_cleartext(hosts: &[(&str, SocketAddr)]) -> Browser {
        let rules = hosts.iter().map(|(host, address)| format!("MAP {host}:80 {address}"));
        Self::start(rules.chain(["EXCLUDE 127.0.0.1".to_owned()]).collect(), &[]).await
    }

    async fn start(mut rules: Vec<String>, more: &[&str]) -> Browser {
        let place = PLACES.acquire().await.expect("it is never closed");
        let folder = TempDir::new().expect("a temporary folder");
        let (driver, address) = start_driver(folder.path());
        let mut browser = Browser { driver, address, session: String::new(), _folder: folder, _place: place };
        rules.push("MAP * ~NOTFOUND".to_owned());
        let mut arguments = vec![
            "--headless=new".to_owned(),
            // Containers run tests as root, and have a small /dev/shm.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-background-networking".to_owned(),
            format!("--host-resolver-rules={}", rules.join(", ")),
        ];
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let mut options = json!({ "args": arguments });
        options["binary"] = json!(program("CHROME", "/usr/bin/chromium").to_str().expect("UTF-8"));
        let capabilities = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
            "timeouts": { "script": SCRIPT_TIMEOUT.as_millis() as u64 },
        });
        let session = browser.call("/session", &json!({ "capabilities": { "alwaysMatch": capabilities } })).await;
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Opens a page of the tests and waits until it is loaded.
    pub async fn visit(&self, url: &str) {
        self.go(url).await;
        let title = self.run("return document.title", &Value::Null).await;
        assert_eq!(title, "ready", "{url} is not the page of the test");
    }

    /// Runs the body of an async function in the page, with `input` as its argument. Returns its result.
    pub async fn run(&self, body: &str, input: &Value) -> Value {
        // The driver cannot report an error with members of its own, such as that of axios.
        let report = "error => { throw new Error(`${error} ${error.config?.url ?? \"\"}`) }";
        let script = format!("return (async (input) => {{ {body} }})(arguments[0]).catch({report})");
        self.call(&self.path("execute/sync"), &json!({ "script": script, "args": [input] })).await
    }

    /// Opens any page and waits until it is loaded.
    pub async fn go(&self, url: &str) {
        self.call(&self.path("url"), &json!({ "url": url })).await;
    }

    /// Presses keys one after the other. See [`key`] for those without a character.
    pub async fn press(&self, keys: &str) {
        let press = |key: char| [("keyDown", key), ("keyUp", key)];
        let actions: Vec<_> =
            keys.chars().flat_map(press).map(|(kind, key)| json!({ "type": kind, "value": key })).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.call(&self.path("actions"), &json!({ "actions": [keyboard] })).await;
    }

    /// What the console shows since the last call.
    pub async fn console(&self) -> Vec<String> {
        let entries = self.call(&self.path("se/log"), &json!({ "type": "browser" })).await;
        let text = |entry: &Value| format!("{} {}", entry["level"], entry["message"]);
        entries.as_array().expect("a list").iter().map(text).collect()
    }

    /// A command of the DevTools protocol.
    pub async fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.call(&self.path("goog/cdp/execute"), &body).await
    }

    fn path(&self, command: &str) -> String {
        format!("/session/{}/{command}", self.session)
    }

    async fn call(&self, path: &str, body: &Value) -> Value {
        let response = Client::http1(self.address).host(&self.address.to_string()).post(path, body).await;
        let value = response.json()["value"].clone();
        assert_eq!(response.status, 200, "{path}: {value:#}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser and removes its profile. A driver that does not answer is killed anyway.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let (session, address) = (&self.session, self.address);
            let request = format!("DELETE /session/{session} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read(&mut [0; 512]));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The driver asks for a port in IPv4, and gives up if another process has it in IPv6.
fn start_driver(temporary: &Path) -> (Child, SocketAddr) {
    let started = (0..5).find_map(|_| try_driver(temporary));
    started.expect("chromedriver prints its port")
}

fn try_driver(temporary: &Path) -> Option<(Child, SocketAddr)> {
    let program = program("CHROMEDRIVER", "chromedriver");
    let mut command = Command::new(&program);
    command.env("TMPDIR", temporary).arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut driver = command.spawn().unwrap_or_else(|error| panic!("{program:?}: {error}; tests/run installs it"));
    let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let port = lines.find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
    let Some(port) = port else {
        let _ = driver.wait();
        return None;
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    // It must be able to write more.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, address))
}

fn program(variable: &str, default: &str) -> OsString {
    env::var_os(variable).unwrap_or_else(|| default.into())
}

/// SHA-256 of the public key in a certificate, as Chromium expects it.
fn key_hash(certificate: &Path) -> String {
    let line = "set -o pipefail; openssl x509 -in \"$0\" -noout -pubkey | openssl pkey -pubin -outform DER \
                | openssl dgst -sha256 -binary | openssl base64";
    let output = Command::new("bash").args(["-c", line]).arg(certificate).output().expect("bash is there");
    assert!(output.status.success(), "openssl: {}; tests/run installs it", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("base64").trim().to_owned()
}
