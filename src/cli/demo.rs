//! `bearward demo`: a gateway with all its files in a temporary folder, and requests to try.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::config_argument::report;
use super::echo;
use super::error::CommandError;
use super::output::say;
use super::signals::Signals;
use crate::app::{self, Running};
use crate::broker::TokenPair;
use crate::config::{self, Probe};
use crate::protocols::tls::CertificateFiles;
use crate::tokens::login::Login;
use crate::types::clock::{Clock, SystemClock};

pub(super) fn run() -> Result<(), CommandError> {
    // First: a signal at any later time still removes the folder.
    let mut signals = Signals::catch()?;
    let folder = TemporaryFolder::create()
        .map_err(|error| CommandError::failed(format!("cannot create a temporary folder: {error}")))?;
    let backend =
        echo::start().map_err(|error| CommandError::failed(format!("cannot start the echo backend: {error}")))?;
    let text = configuration(backend);
    fs::write(folder.0.join("gateway.toml"), &text)?;
    let config = config::parse(&text, &folder.0, Probe::None).map_err(report)?;
    let clock = Arc::new(SystemClock);
    let running = app::start(config, clock.clone())?;
    let pair = issue(&running, &*clock)?;
    print_page(&running, &pair, &folder.0);
    signals.next();
    running.drain();
    Ok(())
}

/// Listens on the default ports if they are free, and on others if not.
fn configuration(backend: SocketAddr) -> String {
    let free = |port: u16| if TcpListener::bind(("127.0.0.1", port)).is_ok() { port } else { 0 };
    let gateway = free(8443);
    let admin = free(9443);
    format!(
        r#"[[listener]]
address = "127.0.0.1:{gateway}"
tls = "self-signed"

[admin]
address = "127.0.0.1:{admin}"

[access_log]
file = "access.log"

[tokens]
issuer = "https://localhost:8443"
audience = ["https://localhost:8443"]

[[upstream]]
name = "echo"
servers = ["http://{backend}"]
"#
    )
}

fn issue(running: &Running, clock: &dyn Clock) -> Result<TokenPair, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let login = Login { subject: "alice".into(), scope: "orders:read".into(), ..Login::default() };
    let issued = runtime.block_on(running.broker.issue(login, clock.now().into()));
    let mut pair = issued.map_err(|reject| CommandError::failed(format!("cannot issue a token: {reject:?}")))?;
    pair.include_token_id();
    Ok(pair)
}

fn print_page(running: &Running, pair: &TokenPair, folder: &Path) {
    let port = running.addresses.first().map_or(8443, SocketAddr::port);
    let url = format!("https://localhost:{port}");
    let certificate = CertificateFiles::self_signed(&folder.join("tls")).certificate;
    let curl = format!("curl -sS -i --cacert {}", quoted(&certificate.display().to_string()));
    let bearer = format!("-H 'Authorization: Bearer {}'", pair.access_token);
    let refresh = json!({ "refreshToken": pair.refresh_token });
    let token_id = pair.token_id.map(|id| id.to_string()).unwrap_or_default();
    say!(
        "bearward is running at {url}, in front of a small echo backend.
Its files are in {folder}: gateway.toml, the store, the keys, access.log.

A token pair for alice:
  access token   {access}
  refresh token  {refresh_token}
  token id       {token_id}

Paste these into another terminal, one after the other.

# The gateway allows a request with the token, and sends the subject to the backend:
{curl} {bearer} {url}/orders/1

# The gateway rejects the same request without the token:
{curl} {url}/orders/1

# The client exchanges its token pair for a new one:
{curl} -X POST -H 'Content-Type: application/json' -H {json} {bearer} -d '{refresh}' {url}/user/refresh

# The client logs out, which revokes every token of its session:
{curl} -X DELETE -H {json} {bearer} {url}/token/{token_id}

# The gateway now rejects the first request:
{curl} {bearer} {url}/orders/1

The operators' page is at http://{admin}/ and wants the token in {token}

Ctrl-C ends it and removes its files.",
        admin = running.admin_address,
        token = folder.join("admin.token").display(),
        json = "'Accept: application/json'",
        folder = folder.display(),
        access = pair.access_token,
        refresh_token = pair.refresh_token,
    );
}

/// Quotes one word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// A private folder that is removed when the demo ends.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create() -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("bearward-demo-{}", crate::types::ids::TokenId::random());
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(TemporaryFolder(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If this fails, the system cleans up its temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
