//! What the clients find: one gateway with a database of its own, or two on one PostgreSQL behind nginx, which gives
//! each request to the other one. Behind them is a server of MCP, beside them an OpenID provider.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tempfile::TempDir;

use super::gateways::Gateways;
use super::parties::{Registration, everything};
use crate::support::certificates::Authority;
use crate::support::front_proxy::{FrontProxy, nginx};
use crate::support::ports::free_address;
use crate::support::{KeyServer, OidcProvider};

/// The shortest that is allowed: the clients must wait until it is over.
pub const ACCESS_LIFETIME: Duration = Duration::from_secs(60);

pub const SECRET: &str = "of the gateway";
const ITSELF: &str = "registration = [\"loopback\"]\n";

/// Where the clients here come back to, on any port.
const REDIRECTS: [&str; 5] = [
    "http://127.0.0.1/callback",
    "http://127.0.0.1/mcp/oauth/callback",
    "http://127.0.0.1/oauth/callback",
    "http://localhost/callback",
    "http://localhost/oauth/callback",
];

/// What a client must know.
pub struct Site {
    /// `https://localhost:PORT/mcp`
    pub server: String,
    /// The certificate that clients must trust.
    pub trusted: PathBuf,
    /// The URL of the document of a client, if this site accepts these.
    pub document: Option<String>,
    /// What is killed while a client works.
    pub programs: Arc<dyn Restarts>,
}

pub trait Restarts: Send + Sync {
    /// `kill -9` of all programs, and a start.
    fn kill(&self);
}

pub struct Place {
    pub site: Site,
    pub gateways: Arc<Gateways>,
    _nginx: Option<FrontProxy>,
    _everything: Everything,
    _provider: OidcProvider,
    _documents: Documents,
    _folder: TempDir,
}

/// Writes a certificate for `localhost` (`site.pem`, `site.key`). Returns the certificate that clients must trust.
pub fn write_certificate(folder: &Path) -> PathBuf {
    let authority = Authority::new();
    authority.sign("localhost").write(folder, "site");
    let trusted = folder.join("ca.pem");
    std::fs::write(&trusted, authority.pem()).expect("written");
    trusted
}

impl Place {
    /// With documents, clients cannot register themselves: some would then need no document.
    pub fn start(number: usize, has_documents: bool) -> Place {
        let folder = TempDir::new().expect("a folder");
        let trusted = write_certificate(folder.path());
        let address = free_address();
        let server = format!("https://localhost:{}/mcp", address.port());
        let provider = provider(address);
        let everything = Everything::start();
        let documents = Documents::start(folder.path());
        let text = configuration(address, &provider.issuer, everything.address);
        let text = text.replace("CLIENTS", &if has_documents { documents.keys() } else { ITSELF.to_owned() });
        let began = Instant::now();
        let addresses: Vec<SocketAddr> = (0..number).map(|_| free_address()).collect();
        let (gateways, nginx) = if number == 1 {
            (Gateways::start(&text, &[address], Some(folder.path())), None)
        } else {
            let gateways = Gateways::start(&text, &addresses, None);
            (gateways, Some(front(folder.path(), address, &addresses)))
        };
        eprintln!("{number} gateways are ready {:.1?} after their folders were empty", began.elapsed());
        let gateways = Arc::new(gateways);
        let document = has_documents.then(|| documents.url.clone());
        Place {
            site: Site { server, trusted, document, programs: gateways.clone() },
            gateways,
            _nginx: nginx,
            _everything: everything,
            _provider: provider,
            _documents: documents,
            _folder: folder,
        }
    }

    /// Whether the gateways accept clients of this kind.
    pub fn has(&self, registration: Registration) -> bool {
        match registration {
            Registration::Document => self.site.document.is_some(),
            Registration::Operator | Registration::Itself => self.site.document.is_none(),
        }
    }

    /// Where Codex comes back to as a client that the operator has registered: its path ends with a hash of the URL.
    pub fn redirect_of_codex(server: &str) -> String {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, server.as_bytes());
        format!("http://127.0.0.1/callback/{}", URL_SAFE_NO_PAD.encode(&hash.as_ref()[..9]))
    }
}

/// Everything but the listeners and the database.
fn configuration(address: SocketAddr, provider: &str, backend: SocketAddr) -> String {
    let origin = format!("https://localhost:{}", address.port());
    let mut redirects: Vec<String> = REDIRECTS.map(str::to_owned).into();
    redirects.push(Place::redirect_of_codex(&format!("{origin}/mcp")));
    format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n[access_log]\nfile = \"access.log\"\n\
         [tokens]\nissuer = \"{origin}\"\naccess_lifetime = \"{}s\"\n\
         [throttle]\ncalls = 0\nfailures = 0\nrefreshes = 0\n\
         [[upstream]]\nservers = [\"http://{backend}\"]\n\
         [[provider]]\nname = \"main\"\nissuer = \"{provider}\"\nclient_id = \"gateway\"\n\
         client_secret_file = \"client.secret\"\n\
         [oauth]\nsign_in = \"main\"\nCLIENTS[[oauth.scope]]\nname = \"mcp\"\n\
         [[oauth.scope]]\nname = \"mcp:admin\"\nclaim = {{ pointer = \"/groups\", contains = \"admins\" }}\n\
         [[oauth.client]]\nclient_id = \"tests\"\nclient_auth = \"none\"\nredirect_uris = {redirects:?}\n\
         [[route]]\npath = \"/mcp\"\nresource = true\nscopes = [\"mcp\"]\n\
         # Clients ask for all of these scopes, and the user can grant one: they learn which from the response.\n\
         any_scope = [\"mcp:admin\", \"mcp\"]\n",
        ACCESS_LIFETIME.as_secs(),
    )
}

/// An OpenID provider that knows what listens at this address as a client.
pub fn provider(gateway: SocketAddr) -> OidcProvider {
    OidcProvider::start(&json!({
        "accounts": { "alice": { "email": "alice@ours.example" } }, "account": "alice",
        "clients": [{
            "client_id": "gateway", "client_secret": SECRET, "grant_types": ["authorization_code", "refresh_token"],
            "redirect_uris": [format!("https://localhost:{}/oauth2/callback/main", gateway.port())],
        }],
    }))
}

/// nginx at this address. It gives each request to the next gateway.
fn front(folder: &Path, address: SocketAddr, gateways: &[SocketAddr]) -> FrontProxy {
    let paths = "access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; \
        uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
    // A gateway that is killed is there again at once.
    let servers: String = gateways.iter().map(|gateway| format!("server {gateway} max_fails=0; ")).collect();
    let forward = "proxy_pass http://gateways; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
        proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr; \
        proxy_set_header X-Forwarded-Proto $scheme; proxy_buffering off;";
    let text = format!(
        "events {{}}\nhttp {{ {paths} upstream gateways {{ {servers} }}\nserver {{ listen {address} ssl; \
         ssl_certificate site.pem; ssl_certificate_key site.key; location / {{ {forward} }} }} }}\n"
    );
    std::fs::write(folder.join("nginx.conf"), text).expect("written");
    let path = folder.to_str().expect("UTF-8");
    let global = "daemon off; pid nginx.pid; error_log stderr;";
    FrontProxy::start(&nginx(), &["-p", path, "-c", "nginx.conf", "-g", global], folder, address)
}

/// A server with the document of a client.
struct Documents {
    url: String,
    certificate: PathBuf,
    _server: KeyServer,
}

impl Documents {
    fn start(folder: &Path) -> Documents {
        let certificate = folder.join("documents.pem");
        let server = KeyServer::start_tls(&[], &certificate);
        let url = format!("https://localhost:{}/client.json", server.address.port());
        let document = json!({ "client_id": url, "client_name": "A client", "redirect_uris": REDIRECTS });
        server.pages().documents = vec![("/client.json".to_owned(), document.to_string())];
        Documents { url, certificate, _server: server }
    }

    /// In `[oauth]`.
    fn keys(&self) -> String {
        let file = self.certificate.display();
        format!("client_documents = [\"localhost\"]\nclient_documents_ca_file = \"{file}\"\n")
    }
}

/// The server of MCP. It ends when this is dropped.
struct Everything {
    process: Child,
    address: SocketAddr,
}

impl Everything {
    fn start() -> Everything {
        let address = free_address();
        let mut command = Command::new("node");
        command.arg(everything()).arg("streamableHttp").env("PORT", address.port().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("node: tests/run installs it");
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{} does not listen; tests/run installs it", everything().display());
            // Polls: it does not say when it listens.
            std::thread::sleep(Duration::from_millis(20));
        }
        Everything { process, address }
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
