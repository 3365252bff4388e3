//! `[[listener]]` and `[admin]`: addresses and TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::admin;
use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::document::value::{Value, choose};
use crate::config::sections::placed::Placed;
use crate::config::sections::{files, host, pem, throttle};
use crate::protocols::http::forwarded::Forwarding;
use crate::protocols::local_socket::MAX_PATH_SIZE;
use crate::protocols::tls::{self, CertificateFiles};
use crate::server::ListenerSettings;

/// The folder of the self-signed certificate.
const SELF_SIGNED_FOLDER: &str = "tls";

/// IPv4 only: with `[::]`, the gateway would not start on a machine without IPv6.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);
const DEFAULT_ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9443);

pub(super) fn listeners(root: &mut Table<'_>, forwarding: &Forwarding) -> Vec<Placed<ListenerSettings>> {
    let listeners = root.tables("listener", |table| listener(table, forwarding));
    if !listeners.is_empty() {
        return listeners.into_iter().flatten().collect();
    }
    let value = ListenerSettings { address: DEFAULT_ADDRESS, tls: self_signed(root), proxy_protocol: false };
    vec![Placed { value, place: root.place("listener") }]
}

/// `None` without a valid address. All other keys are checked anyway.
fn listener(table: &mut Table<'_>, forwarding: &Forwarding) -> Option<Placed<ListenerSettings>> {
    let address = table.required("address", "\"0.0.0.0:8443\"").and_then(|value| value.parse(socket_address));
    let tls = tls(table).unwrap_or_else(|| self_signed(table));
    let proxy_protocol = proxy_protocol(table, forwarding);
    Some(Placed { value: ListenerSettings { address: address?, tls, proxy_protocol }, place: table.place("address") })
}

/// Only trusted proxies may send the header.
fn proxy_protocol(table: &mut Table<'_>, forwarding: &Forwarding) -> bool {
    let proxy_protocol = table.boolean("proxy_protocol", false);
    if proxy_protocol && forwarding.trusted.is_empty() {
        let error = ConfigError::new(
            "no proxy is trusted, so all connections would be closed",
            "expected the networks of your proxies in forwarding.trusted",
        );
        let help = "add `trusted = [\"10.0.0.0/24\"]` under [forwarding], or remove `proxy_protocol`";
        table.reject("proxy_protocol", error.help(help));
    }
    proxy_protocol
}

/// `beside`: the database, or a path for what is beside it.
pub(super) fn admin(table: &mut Table<'_>, beside: &Path) -> Placed<admin::Settings> {
    let socket = admin_socket(table, beside);
    let address = table.take("address").and_then(|value| value.parse(socket_address)).unwrap_or(DEFAULT_ADMIN_ADDRESS);
    let tls = tls(table);
    if !table.has("tls") && !address.ip().is_loopback() {
        let error = ConfigError::new(
            "the admin token would be sent in cleartext over the network",
            "expected an address of this machine only, for example \"127.0.0.1:9443\"",
        );
        table.reject("address", error.help("add `tls`, or set `tls = \"off\"` if you trust the network"));
    }
    let token = files::secret(table, "token_file", "token_env", "admin.token");
    let hosts = table.take("hosts").and_then(|hosts| hosts.list_of("[\"gateway.internal\"]", host::parse));
    let value = admin::Settings {
        socket,
        address,
        tls: tls.unwrap_or(tls::Settings::Off),
        token,
        hosts: hosts.unwrap_or_default(),
        connections: table.integer("connections", 256, 1..=100_000),
        connections_per_address: table.integer("connections_per_address", 64, 0..=100_000),
        wrong_tokens: throttle::rate(table, "wrong_tokens", 10, Duration::from_mins(1)),
        recent_rejections: table.integer("recent_rejections", 1_024, 0..=65_536),
    };
    Placed { value, place: table.place("address") }
}

/// The Unix socket of the admin API. By default it is beside an SQLite database, because one gateway has the database,
/// and beside the configuration with PostgreSQL.
pub(super) fn admin_socket(table: &mut Table<'_>, beside: &Path) -> PathBuf {
    let socket = table.path("socket").unwrap_or_else(|| {
        let mut path = beside.as_os_str().to_owned();
        path.push(".admin");
        path.into()
    });
    let mut checked = has_valid_size(&socket);
    // The folder of the default is checked with `store.sqlite`.
    if table.has("socket") {
        checked = checked.and_then(|()| files::can_create(&socket)).and_then(|()| files::in_private_folder(&socket));
    }
    table.accept("socket", checked);
    socket
}

fn has_valid_size(socket: &Path) -> Result<(), ConfigError> {
    let size = socket.as_os_str().len();
    if size > MAX_PATH_SIZE {
        let error = ConfigError::new(
            format!("the path {} has {size} bytes", socket.display()),
            format!("expected at most {MAX_PATH_SIZE} bytes, which is the maximum for a Unix socket"),
        );
        return Err(error.help("set `socket` under [admin] to a shorter path"));
    }
    Ok(())
}

fn socket_address(text: &str) -> Result<SocketAddr, ConfigError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let error = ConfigError::new(
        format!("\"{text}\" is not an address"),
        "expected an IP address and a port, for example \"0.0.0.0:8443\" or \"[::1]:8443\"",
    );
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let has_port = port.parse::<u16>().is_ok();
    Err(if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
        error.help(format!("write the IPv6 address in brackets and add the port: \"[{text}]:8443\""))
    } else if text.parse::<IpAddr>().is_ok() {
        error.help(format!("add the port: \"{text}:8443\""))
    } else if has_port && matches!(host, "" | "*") {
        error
            .help(format!("write \"0.0.0.0:{port}\" for all IPv4 addresses, or \"[::]:{port}\" for all IPv6 addresses"))
    } else if has_port && host == "localhost" {
        error.help(format!("write \"127.0.0.1:{port}\""))
    } else if text.contains("://") {
        error.help("remove the scheme; the key `tls` selects TLS")
    } else {
        error
    })
}

fn self_signed(table: &Table<'_>) -> tls::Settings {
    tls::Settings::SelfSigned { folder: table.report().base().join(SELF_SIGNED_FOLDER) }
}

/// `None` if the key is missing or wrong.
fn tls(table: &mut Table<'_>) -> Option<tls::Settings> {
    let value = table.take("tls")?;
    if value.is_string() {
        let words = [("self-signed", true), ("off", false)];
        return value.parse(|text| choose(text, &words).map_err(explain_tls)).map(|on| match on {
            true => self_signed(table),
            false => tls::Settings::Off,
        });
    }
    let pairs: Vec<_> = match value.is_list() {
        true => several(&value).into_iter().filter_map(|table| table.read(certificate)).collect(),
        false => value.table()?.read(certificate).into_iter().collect(),
    };
    (!pairs.is_empty()).then_some(tls::Settings::Certificates(pairs))
}

fn explain_tls(mut error: ConfigError) -> ConfigError {
    error.expected.push_str(" or { certificate = \"…\", key = \"…\" }");
    error
}

fn several<'a>(list: &Value<'a>) -> Vec<Table<'a>> {
    let tables = list.list("[{ certificate = \"…\", key = \"…\" }]").unwrap_or_default();
    if tables.is_empty() {
        list.reject(
            ConfigError::new("the list is empty", "expected at least one { certificate = \"…\", key = \"…\" }")
                .help("add a certificate, or set `tls = \"off\"` for cleartext"),
        );
    }
    tables.into_iter().filter_map(Value::table).collect()
}

fn certificate(table: &mut Table<'_>) -> Option<CertificateFiles> {
    let certificate = table.required("certificate", "\"tls/fullchain.pem\"").and_then(|value| value.path());
    let key = table.required("key", "\"tls/key.pem\"").and_then(|value| value.path());
    let chain = certificate.as_deref().and_then(|path| table.accept("certificate", pem::certificates(path)));
    let private_key = key.as_deref().and_then(|path| table.accept("key", pem::private_key(path)));
    let files = CertificateFiles { certificate: certificate?, key: key? };
    if let (Some(chain), Some(private_key)) = (chain, private_key) {
        table.accept("key", pem::key_fits(chain, private_key, &files));
    }
    Some(files)
}
