//! `[audit]`: the file or webhook for audit events.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::{files, pem};
use crate::protocols::url::{SecureUrl, UrlError};
use crate::telemetry::audit_log::{AuditLogSettings, AuditLogTarget};
use crate::telemetry::post::Receiver;

const NO_PIPE: &str = "a pipe does not confirm that an event was stored; use a file or `webhook`";

const DEFAULT_FILE: &str = "audit.jsonl";

/// Keys that need `webhook`.
const WEBHOOK_ONLY: &[&str] = &["webhook_ca_file", "webhook_authorization_file", "webhook_allow_http"];

/// By default, events go to a file beside the database.
pub(super) fn read(table: &mut Table<'_>, store: &Path) -> AuditLogSettings {
    let webhook = webhook(table);
    let file = file(table, store);
    let target = match webhook {
        Some(webhook) => {
            if table.has("file") {
                let error = ConfigError::new("audit events have two destinations", "expected `file` or `webhook`");
                table.reject("file", error.related(&table.place("webhook"), "also set here"));
            }
            AuditLogTarget::Webhook(webhook)
        }
        None => {
            reject_webhook_settings(table);
            file
        }
    };
    AuditLogSettings { target, outbox: table.integer("outbox", 100_000, 1_000..=10_000_000) }
}

fn file(table: &mut Table<'_>, store: &Path) -> AuditLogTarget {
    let default = || AuditLogTarget::File(store.with_file_name(DEFAULT_FILE));
    let value = table.take("file", Shape::Path);
    if !table.has("webhook") {
        table.default("file", store.with_file_name(DEFAULT_FILE).display().to_string());
    }
    let Some(value) = value else { return default() };
    let path = match value.string() {
        Some("off") => return AuditLogTarget::Off,
        Some("stdout") => {
            value.reject(
                ConfigError::new("audit events cannot be written to stdout", "expected the path of a file, or \"off\"")
                    .help(NO_PIPE),
            );
            return default();
        }
        Some(_) => value.path(),
        None => None,
    };
    let Some(path) = path else { return default() };
    table.accept("file", files::can_create(&path).and_then(|()| is_no_pipe(&path)));
    AuditLogTarget::File(path)
}

fn is_no_pipe(path: &Path) -> Result<(), ConfigError> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => {
            let what = format!("{} is a named pipe", path.display());
            Err(ConfigError::new(what, "expected the path of a file, or \"off\"").help(NO_PIPE))
        }
        _ => Ok(()),
    }
}

fn webhook(table: &mut Table<'_>) -> Option<Receiver> {
    let allow_http = table.boolean("webhook_allow_http", false);
    let ca_file = table.path("webhook_ca_file");
    if let Some(path) = &ca_file {
        table.accept("webhook_ca_file", pem::certificates(path));
    }
    let authorization_file = table.path("webhook_authorization_file");
    if let Some(path) = &authorization_file {
        table.accept("webhook_authorization_file", files::secret_contents(path));
    }
    let url = table.take("webhook", Shape::URL)?;
    let url = url.parse(|text| SecureUrl::parse(text, allow_http).map_err(explain))?;
    let authorization_file = authorization_file.map(|file| ("audit.webhook_authorization_file", file));
    Some(Receiver { url, ca_file, authorization_file })
}

fn explain(error: UrlError) -> ConfigError {
    let expected = "expected https:// and a host";
    match error {
        UrlError::Invalid => ConfigError::new("this is not a URL for a webhook", expected)
            .help("write the complete URL, for example \"https://collector.example/bearward\""),
        UrlError::Credentials => ConfigError::new("the URL contains a user name or password", expected)
            .help("write the value of the Authorization header to a file, and name it in `webhook_authorization_file`")
            .confidential(),
        UrlError::Fragment => {
            ConfigError::new("the URL contains a fragment", expected).help("remove `#` and the text after it")
        }
        UrlError::Cleartext => ConfigError::new("events would be sent in cleartext", expected).help(
            "use https://; on a trusted network, set `webhook_allow_http = true` (events contain users and addresses)",
        ),
    }
}

fn reject_webhook_settings(table: &Table<'_>) {
    // An invalid webhook has its own error.
    for key in WEBHOOK_ONLY.iter().filter(|key| table.has(key) && !table.has("webhook")) {
        let error =
            ConfigError::new(format!("`{key}` has no effect without a webhook"), "expected `webhook` in this table");
        table.reject(key, error.help("add `webhook = \"https://collector.example/bearward\"`, or remove this key"));
    }
}
