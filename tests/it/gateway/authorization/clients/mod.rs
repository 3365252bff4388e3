//! Clients that are not ours, with a gateway at `https://localhost`, a provider that is not ours, and the browser of
//! `tests/it/mcp/visit.mjs`.

mod conformance;
mod mcp;
mod plain;

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::oidc_provider::OidcProvider;
use crate::support::ports::free_port;
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, Upstream, source};

const FILES: [(&str, &str); 2] =
    [("visit.mjs", include_str!("../../../mcp/visit.mjs")), ("client.mjs", include_str!("../../../mcp/client.mjs"))];

/// A gateway that real clients reach, and what they need.
struct Site {
    #[allow(dead_code)]
    gateway: Gateway,
    #[allow(dead_code)]
    provider: OidcProvider,
    #[allow(dead_code)]
    upstream: Upstream,
    /// `https://localhost:PORT`
    url: String,
    /// Where Node finds the clients, and programs a browser.
    folder: TempDir,
    certificate: PathBuf,
}

impl Site {
    /// `more`: further keys of `[oauth]`, and tables.
    async fn start(more: &str) -> Site {
        let port = free_port();
        let url = format!("https://localhost:{port}");
        let provider = OidcProvider::start(&json!({
            "accounts": { "alice": { "email": "alice@ours.example" } }, "account": "alice",
            "clients": [{
                "client_id": "gateway", "client_secret": "of the gateway",
                "redirect_uris": [format!("{url}/oauth2/callback/main")],
            }],
        }));
        let upstream = Upstream::start();
        let text = format!(
            "[[provider]]\nname = \"main\"\nissuer = \"{}\"\nclient_id = \"gateway\"\n\
             client_secret_file = \"client.secret\"\n[oauth]\nsign_in = \"main\"\n{more}",
            provider.issuer
        );
        let text = Gateway::config_text(&upstream.address.to_string(), &text)
            .replace("https://gateway.example", &url)
            .replace(
                "address = \"127.0.0.1:0\"\ntls = \"self-signed\"",
                &format!("address = \"127.0.0.1:{port}\"\ntls = \"self-signed\""),
            );
        let settings = Arc::new(TempDir::new().expect("a folder"));
        let secret = settings.path().join("client.secret");
        bearward::types::secret::write_private(&secret, b"of the gateway").expect("written");
        let gateway = Gateway::in_folder(text, settings, Arc::new(ManualClock::new()));
        let certificate = gateway.certificate();
        let site = Site { gateway, provider, upstream, url, folder: folder(), certificate };
        eventually_within(TIMEOUT, "the metadata of the provider are known", async || {
            let client = site.gateway.client().host(&format!("localhost:{port}"));
            let client = client.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document");
            match client.get("/oauth2/sign_in/main").await.status.as_u16() {
                302 => Ok(()),
                status => Err(status.to_string()),
            }
        })
        .await;
        site
    }

    /// A program that trusts the gateway, and opens pages in our browser.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", self.folder.path().display()));
        command.env("NODE_EXTRA_CA_CERTS", &self.certificate).env("SSL_CERT_FILE", &self.certificate);
        command.current_dir(self.folder.path());
        command
    }

    /// Runs a script in Node. Returns the JSON that it prints.
    async fn run(&self, script: &str, settings: &Value) -> Value {
        let mut command = self.command("node");
        command.arg(script);
        let output = ended(command, settings.to_string()).await;
        let [printed, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(output.status.success(), "{printed}{errors}");
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}{errors}"))
    }
}

/// Runs a program with this standard input until it ends.
async fn ended(mut command: Command, input: String) -> Output {
    let run = move || {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("tests/run installs it");
        process.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads its input");
        process.wait_with_output().expect("it ends")
    };
    tokio::task::spawn_blocking(run).await.expect("no panic")
}

/// A folder with the clients, and a browser under the name that programs start.
fn folder() -> TempDir {
    let libraries = source::root().join("target/mcp/node_modules");
    assert!(libraries.is_dir(), "{} is missing; tests/run installs it", libraries.display());
    let folder = TempDir::new().expect("a folder");
    symlink(&libraries, folder.path().join("node_modules")).expect("a link");
    for (name, text) in FILES {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let opener = folder.path().join("xdg-open");
    std::fs::write(&opener, format!("#!/bin/sh\nexec node {}/visit.mjs \"$1\"\n", folder.path().display()))
        .expect("written");
    std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755)).expect("its mode");
    folder
}
