//! `[admin]`: where operators reach the gateway, and who they are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::admin::{self, Access, AdminSettings, Operator, Role};
use crate::auth::bearer;
use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::placed::{Placed, report_duplicates};
use crate::config::sections::{files, host, listener, throttle};
use crate::protocols::local_socket::MAX_PATH_SIZE;
use crate::protocols::tls::ServerTlsSettings;

const DEFAULT_ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9443);
const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
/// Maximum length of the name of an operator. It stands in each audit event.
const MAX_NAME: usize = 64;

/// `beside`: the database, or a path for what is beside it.
pub(super) fn read(table: &mut Table<'_>, beside: &Path) -> Placed<AdminSettings> {
    let socket = socket_path(table, beside);
    let address = table.take("address", listener::ADDRESS);
    table.default("address", DEFAULT_ADMIN_ADDRESS.to_string());
    let address = address.and_then(|value| value.parse(listener::socket_address)).unwrap_or(DEFAULT_ADMIN_ADDRESS);
    let tls = listener::tls(table, None);
    table.default("tls", "off");
    if !table.has("tls") && !address.ip().is_loopback() {
        let error = ConfigError::new(
            "the admin token would be sent in cleartext over the network",
            "expected an address of this machine only, for example \"127.0.0.1:9443\"",
        );
        table.reject("address", error.help("add `tls`, or set `tls = \"off\"` if you trust the network"));
    }
    let token = files::secret(table, "token_file", "token_env", "admin.token", files::NEW_SECRET);
    let hosts = table.take("hosts", Shape::list(Shape::Text));
    table.default("hosts", Vec::<String>::new());
    let hosts = hosts.and_then(|hosts| hosts.list_of("[\"gateway.internal\"]", host::parse));
    let value = AdminSettings {
        socket,
        address,
        tls: tls.unwrap_or(ServerTlsSettings::Off),
        token,
        hosts: hosts.unwrap_or_default(),
        connections: table.integer("connections", 256, 1..=100_000),
        connections_per_address: table.integer("connections_per_address", 64, 0..=100_000),
        wrong_tokens: throttle::rate(table, "wrong_tokens", 10, Duration::from_mins(1)),
        operators: operators(table),
        session_lifetime: table.duration("session_lifetime", 12 * HOUR, MINUTE..=7 * 24 * HOUR),
        streams: table.integer("streams", 16, 0..=1_000),
        recent_rejections: table.integer("recent_rejections", 1_024, 0..=65_536),
        page: table.boolean("page", true),
    };
    Placed { value, place: table.place("address") }
}

/// The Unix socket of the admin API. By default it is beside an SQLite database, because one gateway has the database,
/// and beside the configuration with PostgreSQL.
pub(super) fn socket_path(table: &mut Table<'_>, beside: &Path) -> PathBuf {
    let written = table.path("socket");
    let socket = written.unwrap_or_else(|| {
        let mut path = beside.as_os_str().to_owned();
        path.push(".admin");
        path.into()
    });
    table.default("socket", socket.display().to_string());
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

/// `[[admin.operator]]`
fn operators(table: &mut Table<'_>) -> Vec<Access> {
    let operators: Vec<_> = table.tables("operator", operator).into_iter().flatten().collect();
    let message = "two operators have the same name";
    report_duplicates(table.report(), &operators, message, "expected a different name", |operator| operator.name());
    operators.into_iter().map(|operator| operator.value).collect()
}

/// `None` if one of its keys is missing or wrong.
fn operator(table: &mut Table<'_>) -> Option<Placed<Access>> {
    let name = table
        .required("name", Shape::Pattern("^[A-Za-z0-9._@-]{1,64}$"), "\"alice\"")
        .and_then(|value| value.parse(operator_name));
    let role = table.choice("role", Role::View, &[("view", Role::View), ("operate", Role::Operate)]);
    let file = table.required("token_file", Shape::Path, "\"alice.token\"").and_then(|value| value.path());
    let token = file.map(|path| files::random_secret(&path).and_then(sendable));
    if let Some(Err(error)) = &token {
        table.reject("token_file", error.clone());
    }
    let name = name?;
    let token = token?.ok()?;
    let operator = Operator { name: name.into(), role };
    Some(Placed { value: Access::new(operator, token.trim_ascii()), place: table.place("name") })
}

/// RFC 6750 section 2.1 has fewer characters than other secrets.
fn sendable(token: Vec<u8>) -> Result<Vec<u8>, ConfigError> {
    let text = str::from_utf8(token.trim_ascii()).unwrap_or_default();
    if text.len() <= admin::MAX_TOKEN_SIZE && bearer::is_sendable(text) {
        Ok(token)
    } else {
        Err(ConfigError::new(
            "the file has no token",
            format!("expected at most {} letters, digits and characters of \"-._~+/=\"", admin::MAX_TOKEN_SIZE),
        ))
    }
}

/// `admin` is who has `admin.token_file`, and `local` who uses the socket.
fn operator_name(text: &str) -> Result<String, ConfigError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(is_valid) {
        let expected = format!("expected 1 to {MAX_NAME} letters, digits and characters of \"._@-\"");
        return Err(ConfigError::new("this is not a name of an operator", expected));
    }
    match text {
        "admin" | "local" => {
            Err(ConfigError::new("the gateway uses this name itself", "expected another name, for example \"alice\""))
        }
        _ => Ok(text.to_owned()),
    }
}
