//! The gateways, as programs that are killed.

use std::net::SocketAddr;
use std::path::Path;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::place::{Restarts, SECRET};
use crate::support::postgres::PostgresServer;
use crate::support::program::GatewayProcess;
use crate::support::replicas::copy_roots;

pub struct Gateways {
    /// One for each.
    folders: Vec<TempDir>,
    running: Mutex<Vec<GatewayProcess>>,
}

impl Gateways {
    /// `certificate`: the folder with the certificate of a gateway that clients reach themselves. Else nginx reaches
    /// them, and they have one PostgreSQL.
    pub fn start(text: &str, addresses: &[SocketAddr], certificate: Option<&Path>) -> Gateways {
        let shared = match certificate {
            Some(_) => String::new(),
            None => {
                let store = PostgresServer::shared().store_keys();
                format!("[forwarding]\ntrusted = [\"127.0.0.1\"]\n[store]\n{store}\n")
            }
        };
        let tls = match certificate {
            Some(folder) => {
                let file = folder.join("site").display().to_string();
                format!("{{ certificate = \"{file}.pem\", key = \"{file}.key\" }}")
            }
            None => "\"off\"".to_owned(),
        };
        let mut folders: Vec<TempDir> = Vec::new();
        let mut running = Vec::new();
        for address in addresses {
            let folder = TempDir::new().expect("a folder");
            let listener = format!("[[listener]]\naddress = \"{address}\"\ntls = {tls}\n");
            std::fs::write(folder.path().join("gateway.toml"), format!("{listener}{shared}{text}")).expect("written");
            let secret = folder.path().join("client.secret");
            bearward::types::secret::write_private(&secret, SECRET.as_bytes()).expect("written");
            if let Some(first) = folders.first() {
                copy_roots(first.path(), folder.path());
            }
            let gateway = GatewayProcess::start(folder.path());
            // Those of the provider: from then on, it can sign users in.
            gateway.program.wait_for_stderr("the keys of an issuer changed");
            running.push(gateway);
            folders.push(folder);
        }
        Gateways { folders, running: Mutex::new(running) }
    }

    /// All sessions of the user end.
    pub async fn revoke(&self) {
        let client = self.running.lock()[0].admin_client();
        let response = client.post("/admin/v1/revocations", &json!({ "subject": "main|alice" })).await;
        assert_eq!(response.status, 200, "{}", response.text());
    }

    /// The session of a client that began last.
    pub async fn newest_session(&self) -> Value {
        self.session(|session| session["clientId"].is_string()).await
    }

    /// The newest session of the user for which this holds, as the operator sees it.
    pub async fn session(&self, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let client = self.running.lock()[0].admin_client();
        let listed = client.get("/admin/v1/subjects/main%7Calice/tokens").await.json();
        let sessions = listed["tokens"].as_array().expect("a list");
        sessions.iter().find(|session| is_wanted(session)).unwrap_or_else(|| panic!("not in {listed}")).clone()
    }
}

impl Restarts for Gateways {
    fn kill(&self) {
        let mut running = self.running.lock();
        for gateway in running.drain(..) {
            gateway.program.kill();
        }
        running.extend(self.folders.iter().map(|folder| GatewayProcess::start(folder.path())));
    }
}
