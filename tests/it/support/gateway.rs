//! A complete gateway in this process, on real sockets, with a real store in a temporary folder.

mod outputs;
mod setup;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bearward::app::{self, Inherited, Running, StartError};
use bearward::config::{self, Config, Probe};
use bearward::server::acme::{AcmePace, AcmeSettings};
use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Client, TestResponse};
use super::clock::ManualClock;
use super::secrets::{self, Secrets};
use super::tokens::Mint;

/// How long a reopened store may wait for its lock. A test that starts a process holds a copy of every open file, also
/// of the lock, until the process has replaced itself.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a gateway of a test looks whether a file has changed.
pub const FILE_POLL: Duration = Duration::from_millis(100);
/// How often it looks for what is next at an ACME server.
pub const ACME_PACE: AcmePace = AcmePace { turns: Duration::from_millis(50), poll: Duration::from_millis(50) };

pub const ISSUER: &str = "https://gateway.example";
pub const AUDIENCE: &str = "https://api.example";

/// The tokens of a login or a refresh.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenPair {
    pub access: String,
    pub refresh: String,
    pub token_id: String,
}

impl TokenPair {
    pub fn from_json(body: &Value) -> TokenPair {
        let text = |member: &str| body[member].as_str().unwrap_or_else(|| panic!("{member} in {body}")).to_owned();
        let refresh = text("refreshToken");
        secrets::remember(&text("accessToken"));
        secrets::remember(&refresh);
        let token_id = refresh.split('_').nth(1).expect("the second segment").to_owned();
        TokenPair { access: text("accessToken"), refresh, token_id }
    }
}

pub struct Gateway {
    running: Option<Running>,
    text: String,
    /// The file that it reloads.
    file: Option<PathBuf>,
    pub folder: Arc<TempDir>,
    pub clock: Arc<ManualClock>,
    secrets: Arc<Secrets>,
    /// Where the log messages of this gateway start in those of the process.
    log_start: usize,
}

/// The gateway then looks more often whether something has changed than one that is not tested.
fn parse(text: &str, folder: &Path) -> Config {
    let mut config = config::parse(text, folder, Probe::None)
        .unwrap_or_else(|faults| panic!("the test's configuration is invalid:\n{}", faults.render(false)));
    config.file_poll = FILE_POLL;
    config.acme = Arc::new(AcmeSettings { pace: ACME_PACE, ..AcmeSettings::clone(&config.acme) });
    config
}

fn is_locked(error: &StartError) -> bool {
    error.source().is_some_and(|source| source.to_string().contains("is in use by a running gateway"))
}

impl Gateway {
    /// Starts a gateway with its files in `folder`. Files that the configuration names must exist there.
    pub fn in_folder(text: String, folder: Arc<TempDir>, clock: Arc<ManualClock>) -> Gateway {
        Self::start_in(text, folder, clock, None)
    }

    /// Starts a gateway that reloads `gateway.toml` in `folder`, as the program does.
    pub fn in_file(text: String, folder: TempDir) -> Gateway {
        let file = folder.path().join("gateway.toml");
        Self::start_in(text, Arc::new(folder), Arc::new(ManualClock::new()), Some(file))
    }

    fn start_in(text: String, folder: Arc<TempDir>, clock: Arc<ManualClock>, file: Option<PathBuf>) -> Gateway {
        let log_start = secrets::capture_log();
        file.iter().for_each(|file| std::fs::write(file, &text).expect("written"));
        // On its own thread, because the start blocks, which the runtime of a test does not allow.
        let start = || {
            let config = parse(&text, folder.path());
            let start = || app::start_with(config, clock.clone(), Inherited::None, file.clone());
            std::thread::scope(|scope| scope.spawn(start).join()).expect("no panic")
        };
        let began = Instant::now();
        let mut started = start();
        // A program that another test starts keeps the lock of the store from its fork until its exec.
        while started.as_ref().is_err_and(is_locked) {
            assert!(began.elapsed() < LOCK_TIMEOUT, "the store stays locked");
            std::thread::sleep(Duration::from_millis(10));
            started = start();
        }
        let running = started.expect("the gateway starts");
        Gateway { running: Some(running), text, file, folder, clock, secrets: Arc::default(), log_start }
    }

    /// The text of the configuration that it was started with.
    pub fn configuration(&self) -> &str {
        &self.text
    }

    /// The parsed configuration that it was started with.
    pub fn config(&self) -> Config {
        self.parse(&self.text)
    }

    /// Another configuration for this gateway.
    pub fn parse(&self, text: &str) -> Config {
        parse(text, self.folder.path())
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().expect("the gateway runs")
    }

    /// Shuts down gracefully, and starts again with the same files.
    pub fn restart(self) -> Gateway {
        self.restart_with(|text| text)
    }

    /// As [`Gateway::restart`], with an edited configuration.
    pub fn restart_with(mut self, edit: impl FnOnce(String) -> String) -> Gateway {
        self.drain();
        let text = edit(self.text.clone());
        let mut restarted = Self::start_in(text, self.folder.clone(), self.clock.clone(), self.file.clone());
        restarted.secrets = self.secrets.clone();
        restarted
    }

    /// Shuts down gracefully.
    pub fn drain(&mut self) {
        self.running.take();
    }

    /// Starts a graceful shutdown on its own thread, so that clients in the test can take part in it.
    pub fn begin_drain(&mut self) -> std::thread::JoinHandle<()> {
        let running = self.running.take().expect("the gateway runs");
        std::thread::spawn(|| running.drain())
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

    /// HTTP/1.1 in cleartext.
    pub fn client(&self) -> Client {
        Client::http1(self.address())
    }

    pub fn admin_client(&self) -> Client {
        Client::http1(self.admin_address()).host("localhost").bearer(self.file("admin.token").trim())
    }

    /// One client for each protocol: HTTP/1.1 and HTTP/2, each in cleartext and over TLS.
    pub fn clients(&self) -> [Client; 4] {
        let cleartext = [Client::http1(self.address()), Client::http2(self.address())];
        let tls = [Client::http1(self.tls_address()), Client::http2(self.tls_address())];
        let [http1, http2] = tls.map(|client| client.over_tls(&self.certificate()));
        let [http1_cleartext, http2_cleartext] = cleartext;
        [http1_cleartext, http2_cleartext, http1, http2]
    }

    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub fn now_secs(&self) -> u64 {
        self.clock.now().as_secs()
    }

    /// Issues the tokens of a new login through the admin API.
    pub async fn issue(&self, subject: &str, scope: &str) -> TokenPair {
        let response = self.request_tokens(&json!({ "sub": subject, "scope": scope })).await;
        assert_eq!(response.status, 201, "{response:?}");
        TokenPair::from_json(&response.json())
    }

    /// `POST /admin/v1/tokens`
    pub async fn request_tokens(&self, login: &Value) -> TestResponse {
        let response = self.admin_client().post("/admin/v1/tokens", login).await;
        self.secrets.note(&response);
        response
    }

    /// Issues an API key through the admin API. Returns the key and its id.
    pub async fn issue_key(&self, request: &Value) -> (String, String) {
        let response = self.admin_client().post("/admin/v1/api-keys", request).await;
        assert_eq!(response.status, 201, "{response:?}");
        self.secrets.note(&response);
        let text = |member: &str| response.json()[member].as_str().expect("text").to_owned();
        (text("apiKey"), text("keyId"))
    }

    /// `POST /user/refresh`
    pub async fn refresh(&self, bearer: &str, refresh: &str) -> TestResponse {
        let response = self.client().bearer(bearer).post("/user/refresh", &json!({ "refreshToken": refresh })).await;
        self.secrets.note(&response);
        response
    }

    /// `DELETE /token/{tokenId}`
    pub async fn revoke(&self, bearer: &str, token_id: &str) -> TestResponse {
        self.client().bearer(bearer).delete(&format!("/token/{token_id}")).await
    }

    /// Makes tokens that are valid except for their signature.
    pub async fn forger(&self) -> impl Fn(u64) -> String + use<> {
        let mint = Mint::new(Algorithm::ES256);
        let now = self.now_secs();
        let sid = self.issue("mallory", "").await.token_id;
        let kid = self.client().get("/.well-known/jwks.json").await.json()["keys"][0]["kid"].clone();
        move |number| {
            let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": kid });
            let claims = json!({
                "iss": ISSUER, "aud": AUDIENCE, "sub": "mallory", "exp": now + 60, "iat": now, "rgn": number,
                "sid": sid,
            });
            mint.sign(&header, &claims)
        }
    }

    /// The status of the response to `GET /` with this access token.
    pub async fn status_of(&self, access: &str) -> u16 {
        self.client().bearer(access).get("/").await.status.as_u16()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let metrics = self.running.as_ref().map(|running| running.metrics.render()).unwrap_or_default();
            let outputs = [("the metrics", metrics), ("a log message", secrets::logged_since(self.log_start))];
            let leak = secrets::leak(self.folder.path(), &outputs);
            assert!(leak.is_none(), "{}", leak.unwrap_or_default());
        }
        // The drain runs on other threads: it waits for the test's clients, which run on this one.
        if self.running.is_some() {
            let (drain, folder) = (self.begin_drain(), self.folder.clone());
            std::thread::spawn(move || {
                drop(drain.join());
                // The test is over and cannot fail any more, so a leak aborts the whole run.
                if let Some(leak) = secrets::leak(folder.path(), &[]) {
                    eprintln!("{leak}");
                    std::process::abort();
                }
            });
        }
    }
}
