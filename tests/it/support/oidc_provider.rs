//! A real OpenID provider, npm's `oidc-provider`, and Node for clients of others.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{Client, secrets};
use crate::support::source;

const FILES: [(&str, &str); 5] = [
    ("server.mjs", include_str!("../oidc/server.mjs")),
    ("site.mjs", include_str!("../oidc/site.mjs")),
    ("store.mjs", include_str!("../oidc/store.mjs")),
    ("interaction.mjs", include_str!("../oidc/interaction.mjs")),
    ("control.mjs", include_str!("../oidc/control.mjs")),
];

/// A folder in which Node finds the libraries.
fn folder() -> TempDir {
    let libraries = source::root().join("target/oidc/node_modules");
    assert!(libraries.is_dir(), "{} is missing; tests/run installs it", libraries.display());
    let folder = TempDir::new().expect("a folder");
    symlink(libraries, folder.path().join("node_modules")).expect("a link");
    folder
}

fn errors(folder: &TempDir) -> String {
    std::fs::read_to_string(folder.path().join("errors")).unwrap_or_default()
}

/// A process that ends when this is dropped. `tests/it/oidc/control.mjs` lists the calls of [`OidcProvider::control`].
pub struct OidcProvider {
    process: Child,
    pub issuer: String,
    #[allow(dead_code)]
    pub address: SocketAddr,
    control: SocketAddr,
    folder: TempDir,
}

impl OidcProvider {
    /// The settings are JSON, and all of them are optional:
    ///
    /// | member | content |
    /// |---|---|
    /// | `clients` | metadata of clients: `client_id`, `client_secret`, `redirect_uris`, `grant_types`, `scope`, … |
    /// | `accounts` | `{"alice": {"email": "…", "groups": […]}}` |
    /// | `account` | who signs in without a page; `login_hint` overrides it |
    /// | `resources` | `{"https://api": {"scope": "read", "accessTokenFormat": "opaque"}}`, by indicator |
    /// | `default_resource` | the indicator for requests without one |
    /// | `scopes`, `claims`, `ttl` | as `oidc-provider` names them |
    /// | `features`, `configuration` | more of its configuration |
    /// | `tls` | paths `cert` and `key`; with `client_ca`, clients can authenticate with a certificate |
    /// | `trusted_ca` | path of the certificate that its own calls trust, such as back-channel logout |
    /// | `issuer` | instead of its address, as which it is `http://127.0.0.1:PORT` or `https://localhost:PORT` |
    pub fn start(settings: &Value) -> OidcProvider {
        let folder = folder();
        for (name, text) in FILES {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let mut command = Command::new("node");
        command.arg("server.mjs").current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // It warns about its version of Node.
        command.stderr(std::fs::File::create(folder.path().join("errors")).expect("created"));
        if let Some(ca) = settings["trusted_ca"].as_str() {
            command.env("NODE_EXTRA_CA_CERTS", ca);
        }
        let mut process = command.spawn().expect("node: tests/run installs it");
        writeln!(process.stdin.as_mut().expect("piped"), "{settings}").expect("it reads its settings");
        let mut line = String::new();
        let read = BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line);
        assert!(read.is_ok_and(|bytes| bytes > 0), "the provider ended: {}", errors(&folder));
        let started: Value = serde_json::from_str(&line).expect("JSON");
        let address = |member: &str| {
            let port = started[member].as_u64().and_then(|port| u16::try_from(port).ok());
            SocketAddr::from((Ipv4Addr::LOCALHOST, port.expect("a port")))
        };
        let issuer = started["issuer"].as_str().expect("an issuer").to_owned();
        OidcProvider { issuer, address: address("port"), control: address("control"), process, folder }
    }

    /// Sends it a call of `tests/it/oidc/control.mjs`.
    pub async fn control(&self, call: &str, body: &Value) -> Value {
        let response = Client::http1(self.control).post(call, body).await;
        assert_eq!(response.status, 200, "{call}: {}", errors(&self.folder));
        response.json()
    }

    /// What was called or happened under this name, oldest first: `token`, `introspection`, `revocation`, ….
    pub async fn log(&self, what: &str) -> Vec<Value> {
        let log = self.control("/log", &Value::Null).await;
        log.as_array().expect("a list").iter().filter(|entry| entry["what"] == what).cloned().collect()
    }

    /// An access token and a refresh token, without a sign-in. See `/tokens` in `tests/it/oidc/control.mjs`.
    pub async fn tokens(&self, request: &Value) -> (String, String) {
        let tokens = self.control("/tokens", request).await;
        let token = |member: &str| {
            let token = tokens[member].as_str().expect("a token");
            secrets::remember(token);
            token.to_owned()
        };
        (token("access_token"), token("refresh_token"))
    }
}

impl Drop for OidcProvider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a module in Node. It can import `openid-client`, `oauth4webapi` and `jose`, and finds `settings` as a global.
/// Returns what it gives to `finish(…)`.
pub async fn run_in_node(code: &str, settings: &Value) -> Value {
    let folder = folder();
    let before = format!("globalThis.settings = {settings}; globalThis.finish = (v) => console.log(JSON.stringify(v))");
    std::fs::write(folder.path().join("before.mjs"), before).expect("written");
    std::fs::write(folder.path().join("main.mjs"), code).expect("written");
    let mut command = Command::new("node");
    command.args(["--import", "./before.mjs", "main.mjs"]).current_dir(folder.path());
    let ran = tokio::task::spawn_blocking(move || command.output().expect("node: tests/run installs it"));
    let output = ran.await.expect("no panic");
    let [printed, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{printed}{errors}");
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}{errors}"))
}
