//! `bearward demo`: a gateway with everything it needs, in a folder that goes away with it, and the commands to try.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::serve::Signals;
use super::{Failed, echo};
use crate::app::{self, Running};
use crate::broker::TokenPair;
use crate::config::{self, Probe};
use crate::protocols::tls::CertificateFiles;
use crate::tokens::login::Login;
use crate::types::clock::{Clock, SystemClock};

pub(super) fn demo() -> Result<(), Failed> {
    // First of all: whenever it is ended, the folder goes with it.
    let mut signals = Signals::catch()?;
    let folder = Folder::make().map_err(|error| format!("no temporary folder can be made: {error}"))?;
    let backend = echo::start().map_err(|error| format!("the echo backend cannot start: {error}"))?;
    let text = configuration(backend);
    fs::write(folder.0.join("gateway.toml"), &text).map_err(|error| error.to_string())?;
    let config =
        config::parse(&text, &folder.0, Probe::None).map_err(|faults| Failed::Configuration(faults.render(false)))?;
    let clock = Arc::new(SystemClock);
    let running = app::start(config, clock.clone()).map_err(|error| error.to_string())?;
    let pair = issue(&running, &*clock)?;
    print_page(&running, &pair, &folder.0);
    signals.next();
    running.drain();
    Ok(())
}

/// The well-known ports if they are free, others if not.
fn configuration(backend: SocketAddr) -> String {
    let free = |port: u16| if TcpListener::bind(("127.0.0.1", port)).is_ok() { port } else { 0 };
    let (gateway, admin) = (free(8443), free(9443));
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

fn issue(running: &Running, clock: &dyn Clock) -> Result<TokenPair, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let login = Login { subject: "alice".into(), scope: "orders:read".into(), ..Login::default() };
    let issued = runtime.block_on(running.broker.issue(login, clock.now().into()));
    let mut pair = issued.map_err(|reject| format!("no token was issued: {reject:?}"))?;
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
    println!(
        "bearward is running at {url}, in front of a small echo backend.
Its files are in {folder}: gateway.toml, the store, the keys, access.log.

A token pair for alice:
  access token   {access}
  refresh token  {refresh_token}
  token id       {token_id}

Paste these into another terminal, one after the other.

# A request with the token is let through; the backend is told who asks:
{curl} {bearer} {url}/orders/1

# The same request without it is refused:
{curl} {url}/orders/1

# The pair is exchanged for a new one:
{curl} -X POST -H 'Content-Type: application/json' -H 'Accept: application/json' {bearer} -d '{refresh}' {url}/user/refresh

# The login is revoked, with every token that came from it:
{curl} -X DELETE -H 'Accept: application/json' {bearer} {url}/token/{token_id}

# So the first request is refused from now on:
{curl} {bearer} {url}/orders/1

Ctrl-C ends it and removes its files.",
        folder = folder.display(),
        access = pair.access_token,
        refresh_token = pair.refresh_token,
    );
}

/// One word of a shell, whatever is in it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// A private folder that is removed when the demo ends.
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let name = format!("bearward-demo-{}", crate::types::ids::TokenId::random());
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a temporary folder is the system's to clean up.
        let _ = fs::remove_dir_all(&self.0);
    }
}
