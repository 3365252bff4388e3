//! Proxies that ask an endpoint about each request and forward it to the origin: nginx and Traefik, with the
//! configurations of `deploy/beside`; and Debian's mod_auth_openidc in Apache, an endpoint of others.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::Outcome;
use crate::ports::free_address;
use crate::program::{Program, is_installed};
use crate::provider::{CLIENT, Provider};

/// The middlewares in `deploy/beside/traefik-routes.yaml` with which Traefik asks about a request.
const ASKING: &str = "middlewares: [no-certificate, bearward, proof]";
/// tests/run installs it with pip.
const TRAEFIK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/proxies/bin/traefik");
const OPENIDC: &str = "/usr/lib/apache2/modules/mod_auth_openidc.so";

/// Where the programs run, and where they forward to.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    pub cpus: Option<&'p str>,
    pub origin: SocketAddr,
    /// Maximum number of connections that each accepts.
    pub connections: usize,
}

/// Why a program cannot be measured here.
pub type Missing = &'static str;

pub fn find_nginx() -> Result<(), Missing> {
    if is_installed("nginx") { Ok(()) } else { Err("nginx is not installed (`apt-get install nginx`)") }
}

pub fn find_traefik() -> Result<(), Missing> {
    if Path::new(TRAEFIK).exists() { Ok(()) } else { Err("Traefik is not installed (`tests/run --no-run`)") }
}

pub fn find_apache() -> Result<(), Missing> {
    let is_there = is_installed("apache2") && Path::new(OPENIDC).exists();
    let missing = "mod_auth_openidc is not installed (`apt-get install apache2-bin libapache2-mod-auth-openidc`)";
    if is_there { Ok(()) } else { Err(missing) }
}

/// nginx, which asks `/auth` of this server. `fields`: further settings of the call.
pub fn nginx(place: Place<'_>, asked: SocketAddr, fields: &str) -> Outcome<Program> {
    let (folder, address) = (tempfile::tempdir()?, free_address());
    let connections = 4 * place.connections + 1_000;
    let temporary: String =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};\n")).concat();
    // As shipped, with one process, connections that stay open, and without an access log.
    let kept = "keepalive 256; keepalive_requests 1000000000;";
    let text = edited(
        include_str!("../../deploy/beside/nginx.conf"),
        &[
            ("events {}", &format!("events {{ worker_connections {connections}; }}")),
            ("http {\n", &format!("http {{\naccess_log off;\nkeepalive_requests 1000000000;\n{temporary}")),
            ("server 127.0.0.1:8080;", &format!("server {asked};")),
            ("keepalive 32;", kept),
            ("server 127.0.0.1:3000;", &format!("server {}; {kept}", place.origin)),
            ("http://bearward/auth;", &format!("http://bearward/auth; {fields}")),
            ("listen 8000;", &format!("listen {address};")),
        ],
    )?;
    fs::write(folder.path().join("nginx.conf"), text)?;
    let prefix = format!("{}/", folder.path().display());
    let global = "daemon off; master_process off; pid nginx.pid; error_log stderr;";
    let arguments = ["-p", &prefix, "-c", "nginx.conf", "-g", global];
    Program::start(Path::new("nginx"), &arguments, folder, place.cpus, address, "/public/1k")
}

/// Traefik. `asked`: it asks `/auth` of this server; `None`: it does not ask.
pub fn traefik(place: Place<'_>, asked: Option<SocketAddr>) -> Outcome<Program> {
    let (folder, address) = (tempfile::tempdir()?, free_address());
    let settings = edited(
        include_str!("../../deploy/beside/traefik.yaml"),
        &[
            ("\":8000\"", &format!("\"{address}\"")),
            ("providers:", "global: { checkNewVersion: false, sendAnonymousUsage: false }\nproviders:"),
        ],
    )?;
    // Both runs remove the same headers: they differ by the question alone.
    let middlewares = if asked.is_some() { ASKING } else { "middlewares: [no-certificate, proof]" };
    let routes = include_str!("../../deploy/beside/traefik-routes.yaml");
    let routes = edited(
        routes,
        &[
            ("http://127.0.0.1:8080/auth", &format!("http://{}/auth", asked.unwrap_or(place.origin))),
            ("http://127.0.0.1:3000", &format!("http://{}", place.origin)),
            (ASKING, middlewares),
        ],
    )?;
    fs::write(folder.path().join("traefik.yaml"), settings)?;
    fs::write(folder.path().join("traefik-routes.yaml"), routes)?;
    let arguments = ["--configfile=traefik.yaml"];
    Program::start(Path::new(TRAEFIK), &arguments, folder, place.cpus, address, "/public/1k")
}

/// Apache, at which `/auth` responds with 204 to the cookie of a sign-in at the provider.
pub fn apache(place: Place<'_>, provider: &Provider<'_>) -> Outcome<Program> {
    let (folder, address) = (tempfile::tempdir()?, free_address());
    fs::write(folder.path().join("apache.conf"), apache_text(&folder, address, &provider.issuer))?;
    let configuration = folder.path().join("apache.conf").display().to_string();
    // In one process: the bench measures the CPU time of one.
    let arguments = ["-X", "-f", &configuration];
    Program::start(Path::new("apache2"), &arguments, folder, place.cpus, address, "/auth")
}

fn apache_text(folder: &TempDir, address: SocketAddr, issuer: &str) -> String {
    let (folder, port) = (folder.path().display(), address.port());
    let modules = ["mpm_event", "authn_core", "authz_core", "authz_user", "headers", "rewrite", "auth_openidc"];
    let modules = modules.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let modules = modules.concat();
    format!(
        r#"
{modules}
ServerRoot {folder}
DefaultRuntimeDir {folder}
PidFile apache.pid
ErrorLog /dev/stderr
LogLevel error
User daemon
Group daemon
ServerName localhost
Listen {address}
StartServers 1
ServerLimit 1
ThreadLimit 256
ThreadsPerChild 256
MaxRequestWorkers 256
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 120

OIDCProviderMetadataURL {issuer}/.well-known/openid-configuration
OIDCProviderTokenEndpointAuth client_secret_post
OIDCClientID {CLIENT}
OIDCClientSecret not-a-secret
OIDCRedirectURI http://localhost:{port}/callback
OIDCCryptoPassphrase not-a-secret-either
OIDCScope "openid email"
OIDCSessionInactivityTimeout 3600

<Location />
    AuthType openid-connect
    Require valid-user
    RewriteEngine on
    RewriteRule ^ - [R=204]
    Header always set X-Auth-Subject "expr=%{{REMOTE_USER}}"
</Location>
<Location /auth>
    OIDCUnAuthAction 401
</Location>
"#
    )
}

/// Replaces each text, which must occur.
fn edited(text: &str, edits: &[(&str, &str)]) -> Outcome<String> {
    let mut text = text.to_owned();
    for (from, to) in edits {
        if !text.contains(from) {
            return Err(format!("`{from}` does not occur in a file of deploy/beside").into());
        }
        text = text.replacen(from, to, 1);
    }
    Ok(text)
}
