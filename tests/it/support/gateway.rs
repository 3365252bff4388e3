//! A whole gateway, in this process, on real sockets, with a real store in a folder of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::app::{self, Running};
use bearward::config::{self, Probe};
use bearward::types::clock::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Answer, Client};
use super::clock::ManualClock;
use super::secrets::{self, Secrets};
use super::tokens::{self, Mint};
use super::upstream::Upstream;

pub const ISSUER: &str = "https://gateway.example";
pub const AUDIENCE: &str = "https://api.example";

/// What an issue or a refresh answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub access: String,
    pub refresh: String,
    pub token_id: String,
}

impl Pair {
    pub fn of(answer: &Value) -> Pair {
        let text = |member: &str| answer[member].as_str().unwrap_or_else(|| panic!("{member} in {answer}")).to_owned();
        let refresh = text("refreshToken");
        secrets::remember(&text("accessToken"));
        secrets::remember(&refresh);
        let token_id = refresh.split('_').nth(1).expect("the second segment").to_owned();
        Pair { access: text("accessToken"), refresh, token_id }
    }
}

pub struct Gateway {
    running: Option<Running>,
    text: String,
    pub folder: Arc<TempDir>,
    pub clock: Arc<ManualClock>,
    secrets: Arc<Secrets>,
    /// Where its part of what was traced begins.
    traces: usize,
}

/// The first listener is cleartext, the second TLS. Stories take as many tokens as they need: see [`Gateway::throttled`]. `{folder}` paths are relative: the configuration lives there.
const BASE: &str = r#"
workers = 2
[[listener]]
address = "127.0.0.1:0"
tls = "off"
[[listener]]
address = "127.0.0.1:0"
tls = "self-signed"
[admin]
address = "127.0.0.1:0"
[tokens]
issuer = "https://gateway.example"
audience = ["https://api.example"]
[throttle]
refreshes = 0
calls = 0
failures = 0
[access_log]
file = "access.log"
"#;

impl Gateway {
    /// In front of one backend; every request needs a token.
    pub fn start(upstream: &Upstream) -> Gateway {
        Self::with(upstream, "")
    }

    /// With more configuration: `[[route]]`s, `[timeouts]`, `[[issuer]]`s, …
    pub fn with(upstream: &Upstream, more: &str) -> Gateway {
        let servers = format!("[[upstream]]\nname = \"backend\"\nservers = [\"http://{}\"]\n", upstream.address);
        Self::from_text(format!("{BASE}\n{servers}\n{more}"))
    }

    /// Asks nobody for a token: for stories that are about something else. `more` begins inside the `[[upstream]]`.
    pub fn open(upstream: SocketAddr, more: &str) -> Gateway {
        Self::from_text(Self::open_text(upstream, more))
    }

    /// As [`Gateway::open`], with one worker, which whoever attacks and whoever is honest share.
    pub fn narrow(upstream: SocketAddr, more: &str) -> Gateway {
        Self::from_text(Self::open_text(upstream, more).replace("workers = 2", "workers = 1"))
    }

    /// The configuration that [`Gateway::open`] uses.
    pub fn open_text(upstream: SocketAddr, more: &str) -> String {
        let public = "[[route]]\npath = \"/\"\npublic = true\n";
        Self::text(&upstream.to_string(), &format!("{more}\n{public}"))
    }

    /// As [`Gateway::open`], with an access log of this format.
    pub fn open_logging(upstream: SocketAddr, format: &str) -> Gateway {
        let file = "file = \"access.log\"";
        Self::from_text(Self::open_text(upstream, "").replace(file, &format!("{file}\nformat = \"{format}\"")))
    }

    pub fn from_text(text: String) -> Gateway {
        Self::in_folder(text, Arc::new(TempDir::new().expect("a temporary folder")), Arc::new(ManualClock::new()))
    }

    /// Files that the configuration names have to be there before it starts.
    pub fn in_folder(text: String, folder: Arc<TempDir>, clock: Arc<ManualClock>) -> Gateway {
        let traces = secrets::capture_traces();
        let config = config::parse(&text, folder.path(), Probe::None).unwrap_or_else(|faults| {
            panic!("the test's configuration is wrong:\n{}", faults.render(false));
        });
        // On a thread of its own: starting waits, which a test's runtime does not allow.
        let started = std::thread::scope(|scope| scope.spawn(|| app::start(config, clock.clone())).join());
        let running = started.expect("no panic").expect("the gateway starts");
        Gateway { running: Some(running), text, folder, clock, secrets: Arc::default(), traces }
    }

    /// As [`Gateway::with`], and accepts the tokens of another issuer.
    pub fn trusting(upstream: &Upstream, mint: &Mint, more: &str) -> Gateway {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        std::fs::write(folder.path().join("login.json"), mint.jwks()).expect("written");
        let algorithm = tokens::name(mint.algorithm);
        let issuer = format!(
            "[[issuer]]\nissuer = \"{}\"\naudience = [\"{AUDIENCE}\"]\njwks_file = \"login.json\"\nalgorithms = [\"{algorithm}\"]\n",
            tokens::FOREIGN
        );
        let text = Self::text(&upstream.address.to_string(), &format!("{issuer}{more}"));
        Self::in_folder(text, folder, Arc::new(ManualClock::new()))
    }

    /// As [`Gateway::with`], with these keys of `[throttle]` and the defaults of the others.
    pub fn throttled(upstream: SocketAddr, keys: &str, more: &str) -> Gateway {
        let off = "[throttle]\nrefreshes = 0\ncalls = 0\nfailures = 0\n";
        let text = Self::text(&upstream.to_string(), more);
        assert!(text.contains(off), "{text}");
        Self::from_text(text.replace(off, &format!("[throttle]\n{keys}\n")))
    }

    /// The configuration that [`Gateway::with`] would use.
    pub fn text(upstream: &str, more: &str) -> String {
        format!("{BASE}\n[[upstream]]\nname = \"backend\"\nservers = [\"http://{upstream}\"]\n{more}")
    }

    /// The text that it was started with.
    pub fn configuration(&self) -> &str {
        &self.text
    }

    /// What it was started with, read again.
    pub fn config(&self) -> config::Config {
        config::parse(&self.text, self.folder.path(), Probe::None).expect("it was started with it")
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("the gateway runs")
    }

    /// Ends in order, and starts again on the same files.
    pub fn restart(self) -> Gateway {
        self.restart_with(|text| text)
    }

    /// As [`Gateway::restart`], after an edit of the configuration.
    pub fn restart_with(mut self, edit: impl FnOnce(String) -> String) -> Gateway {
        self.drain();
        let mut restarted = Self::in_folder(edit(self.text.clone()), self.folder.clone(), self.clock.clone());
        restarted.secrets = self.secrets.clone();
        restarted
    }

    /// Ends in order.
    pub fn drain(&mut self) {
        self.running.take();
    }

    pub fn address(&self) -> SocketAddr {
        self.running().addresses[0]
    }

    pub fn tls_address(&self) -> SocketAddr {
        self.running().addresses[1]
    }

    pub fn admin_address(&self) -> SocketAddr {
        self.running().admin_address
    }

    pub fn certificate(&self) -> std::path::PathBuf {
        self.folder.path().join("tls/self-signed.pem")
    }

    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// All that a client can speak: HTTP/1.1 and HTTP/2, each in cleartext and over TLS.
    pub fn clients(&self) -> [Client; 4] {
        let cleartext = [Client::http1(self.address()), Client::http2(self.address())];
        let tls = [Client::http1(self.tls_address()), Client::http2(self.tls_address())];
        let [http1, http2] = tls.map(|client| client.over_tls(&self.certificate()));
        let [http1_cleartext, http2_cleartext] = cleartext;
        [http1_cleartext, http2_cleartext, http1, http2]
    }

    /// The audit events, once there are at least `count`.
    pub async fn audit(&self, count: usize) -> Vec<Value> {
        let path = self.folder.path().join("audit.jsonl");
        let mut text = String::new();
        for _ in 0..500 {
            text = std::fs::read_to_string(&path).unwrap_or_default();
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            if text.lines().count() >= count {
                let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
                return text.lines().map(line).collect();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there are fewer than {count} audit events:\n{text}");
    }

    /// HTTP/1.1 in cleartext.
    pub fn client(&self) -> Client {
        Client::http1(self.address())
    }

    pub fn admin_client(&self) -> Client {
        Client::http1(self.admin_address()).bearer(self.file("admin.token").trim())
    }

    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub fn now_secs(&self) -> u64 {
        self.clock.now().as_secs()
    }

    /// A first pair, by the admin API.
    pub async fn issue(&self, subject: &str, scope: &str) -> Pair {
        let answer = self.ask_for_tokens(&json!({ "sub": subject, "scope": scope })).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        Pair::of(&answer.json())
    }

    /// `POST /admin/v1/tokens`
    pub async fn ask_for_tokens(&self, wanted: &Value) -> Answer {
        let answer = self.admin_client().post("/admin/v1/tokens", wanted).await;
        self.secrets.note(&answer);
        answer
    }

    /// `POST /user/refresh`
    pub async fn refresh(&self, bearer: &str, refresh: &str) -> Answer {
        let answer = self.client().bearer(bearer).post("/user/refresh", &json!({ "refreshToken": refresh })).await;
        self.secrets.note(&answer);
        answer
    }

    /// `DELETE /token/{tokenId}`
    pub async fn revoke(&self, bearer: &str, token_id: &str) -> Answer {
        self.client().bearer(bearer).delete(&format!("/token/{token_id}")).await
    }

    /// Begins to end in order, on a thread of its own, as clients in this test have their part in it.
    pub fn begin_drain(&mut self) -> std::thread::JoinHandle<()> {
        let running = self.running.take().expect("the gateway runs");
        std::thread::spawn(|| running.drain())
    }

    /// What a request with this access token is answered.
    pub async fn status_of(&self, access: &str) -> u16 {
        self.client().bearer(access).get("/").await.status.as_u16()
    }

    /// Ends in order; then no token that was given out is in the access log.
    pub fn end_without_a_token_in_the_log(mut self) {
        self.drain();
        self.secrets.assert_absent_from("the access log", &self.file("access.log"));
    }

    /// Waits until a counter of `/metrics` stands at `count`: it may be moved a moment after a client has seen why.
    pub async fn counts(&self, name: &str, count: u64) {
        let expected = format!("bearward_{name} {count}");
        let mut page = String::new();
        for _ in 0..500 {
            page = self.admin_client().get("/metrics").await.text();
            if page.lines().any(|line| line == expected) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{expected} is not in {page}");
    }

    /// One value of `/metrics`, by the beginning of its line.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = Client::http1(self.admin_address()).get("/metrics").await.text();
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// The lines of the access log, once it has at least `count`. The writer is asked by draining or by waiting for it.
    pub async fn log_lines(&self, count: usize) -> Vec<Value> {
        let text = self.log_text(count).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The first line of the access log of which this holds, once there is one.
    pub async fn log_line(&self, holds: impl Fn(&Value) -> bool) -> Value {
        let mut lines = 1;
        loop {
            let logged = self.log_lines(lines).await;
            lines = logged.len() + 1;
            if let Some(line) = logged.into_iter().find(&holds) {
                return line;
            }
        }
    }

    /// As [`Gateway::log_lines`], as it was written.
    pub async fn log_text(&self, count: usize) -> String {
        for _ in 0..500 {
            let mut text = std::fs::read_to_string(self.folder.path().join("access.log")).unwrap_or_default();
            // The writer may be in the middle of a line.
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            if text.lines().count() >= count {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the access log has fewer than {count} lines:\n{}", self.file("access.log"));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let metrics = self.running.as_ref().map(|running| running.metrics.render()).unwrap_or_default();
            let outputs = [("the metrics", metrics), ("a trace", secrets::traced_since(self.traces))];
            let leak = secrets::leak(self.folder.path(), &outputs);
            assert!(leak.is_none(), "{}", leak.unwrap_or_default());
        }
        // Not waited for: while this thread stands still, so do the test's clients, and a drain waits for those.
        if self.running.is_some() {
            let (drain, folder) = (self.begin_drain(), self.folder.clone());
            std::thread::spawn(move || {
                drop(drain.join());
                // Nobody is left to be told but the whole run.
                if let Some(leak) = secrets::leak(folder.path(), &[]) {
                    eprintln!("{leak}");
                    std::process::abort();
                }
            });
        }
    }
}
