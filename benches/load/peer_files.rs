//! The peers' configuration files.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use bearward::tokens::jwt::{Algorithm, algorithm_name};

use crate::Outcome;
use crate::keys::{AUDIENCE, SHARED_SECRET, issuer};
use crate::peer_setup::{PeerSetup, Ports};

/// What the peers log of a request: about what the gateway logs.
const HAPROXY_LINE: [(&str, &str); 12] = [
    ("time", "%[date,ltime(%FT%T)]"),
    ("id", "%ID"),
    ("address", "%ci"),
    ("method", "%HM"),
    ("path", "%[capture.req.uri,json(utf8s)]"),
    ("host", "%[capture.req.hdr(0),json(utf8s)]"),
    ("agent", "%[capture.req.hdr(1),json(utf8s)]"),
    ("version", "%HV"),
    ("status", "%ST"),
    ("milliseconds", "%Ta"),
    ("bytes", "%B"),
    ("server", "%b/%s"),
];
const NGINX_LINE: [(&str, &str); 12] = [
    ("time", "$time_iso8601"),
    ("id", "$request_id"),
    ("address", "$remote_addr"),
    ("method", "$request_method"),
    ("path", "$uri"),
    ("host", "$host"),
    ("agent", "$http_user_agent"),
    ("version", "$server_protocol"),
    ("status", "$status"),
    ("seconds", "$request_time"),
    ("bytes", "$body_bytes_sent"),
    ("server", "$upstream_addr"),
];

const HAPROXY_HEADERS: &str = "capture request header Host len 64
    capture request header User-Agent len 64
    http-request set-header X-Forwarded-For %[src]
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Forwarded-Host %[req.hdr(host)]";
const NGINX_HEADERS: &str = "proxy_set_header X-Request-ID $request_id;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $host;";

fn haproxy_log() -> String {
    let line = json_line(&HAPROXY_LINE);
    format!("log global\n    log-format '{line}'\n    unique-id-format %[uuid()]\n    unique-id-header X-Request-ID")
}

fn nginx_log() -> String {
    let line = json_line(&NGINX_LINE);
    format!("log_format line escape=json '{line}';\n    access_log access.log line buffer=64k flush=1s;")
}

fn json_line(members: &[(&str, &str)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!(r#""{name}":"{value}""#)).collect();
    format!("{{{}}}", members.join(","))
}

pub fn haproxy(folder: &Path, ports: &Ports, setup: &PeerSetup<'_>) -> Outcome<String> {
    let keys = setup.keys.folder();
    for name in ["es256", "rs256"] {
        // HAProxy reads the public key as PEM.
        let mut openssl = Command::new("openssl");
        openssl.args(["pkey", "-pubout", "-in"]).arg(keys.join(name).with_extension("pem"));
        let output = openssl.output().map_err(|error| format!("cannot run openssl to extract public keys: {error}"))?;
        fs::write(folder.join(name).with_extension("pub"), output.stdout)?;
    }
    let public = |name: &str| folder.join(name).with_extension("pub").display().to_string();
    let frontends = [
        (Algorithm::ES256, ports.plain, public("es256")),
        (Algorithm::RS256, ports.rs256, public("rs256")),
        (Algorithm::HS256, ports.hs256, SHARED_SECRET.to_owned()),
    ];
    let frontends = frontends.map(|(algorithm, address, key)| frontend(algorithm, address, &key, setup.logged));
    let (encrypted, keys) = (ports.encrypted, keys.display());
    let [es256, others @ ..] = frontends;
    Ok(format!(
        r#"
global
    nbthread 1
    maxconn {connections}
    {target}
defaults
    mode http
    {log}
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
{es256}    bind {encrypted} ssl crt {keys}/both.pem alpn h2,http/1.1
{others}backend origin
    server origin {origin}
"#,
        connections = setup.connections + 1_000,
        target = if setup.logged { "log stdout format raw local0" } else { "" },
        log = if setup.logged { haproxy_log() } else { String::new() },
        others = others.concat(),
        origin = setup.origin,
    ))
}

/// The frontend that receives tokens of this algorithm.
fn frontend(algorithm: Algorithm, address: SocketAddr, key: &str, logged: bool) -> String {
    let headers = if logged { HAPROXY_HEADERS } else { "" };
    let (name, issuer) = (algorithm_name(algorithm), issuer(algorithm));
    format!(
        r#"frontend {name}
    bind {address}
    {headers}
    acl public path_beg /public/
    http-request set-var(txn.bearer) http_auth_bearer unless public
    http-request set-var(txn.alg) var(txn.bearer),jwt_header_query('$.alg') unless public
    http-request set-var(txn.iss) var(txn.bearer),jwt_payload_query('$.iss') unless public
    http-request set-var(txn.aud) var(txn.bearer),jwt_payload_query('$.aud') unless public
    http-request set-var(txn.exp) var(txn.bearer),jwt_payload_query('$.exp','int') unless public
    http-request set-var(txn.now) date() unless public
    http-request deny deny_status 401 unless public || {{ var(txn.alg) -m str {name} }}
    http-request deny deny_status 401 unless public || {{ var(txn.iss) -m str {issuer} }}
    http-request deny deny_status 401 unless public || {{ var(txn.aud) -m str {AUDIENCE} }}
    http-request deny deny_status 401 unless public || {{ var(txn.exp),sub(txn.now) -m int gt 0 }}
    http-request deny deny_status 401 unless public || {{ var(txn.bearer),jwt_verify(txn.alg,"{key}") 1 }}
    default_backend origin
"#
    )
}

pub fn nginx(folder: &Path, ports: &Ports, setup: &PeerSetup<'_>) -> String {
    let Ports { plain, encrypted, .. } = ports;
    let (folder, keys) = (folder.display(), setup.keys.folder().display());
    let (connections, origin) = (setup.connections + 1_000, setup.origin);
    let (log, headers) = if setup.logged { (nginx_log(), NGINX_HEADERS) } else { ("access_log off;".to_owned(), "") };
    format!(
        r#"
daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections {connections}; }}
http {{
    {log}
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream origin {{ server {origin}; keepalive 256; keepalive_requests 1000000000; }}
    server {{
        listen {plain};
        listen {encrypted} ssl http2;
        ssl_certificate {keys}/certificate.pem;
        ssl_certificate_key {keys}/key.pem;
        ssl_protocols TLSv1.2 TLSv1.3;
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            {headers}
        }}
    }}
}}
"#
    )
}
