//! `[audit]`: where audit events go.

use std::path::Path;

use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::sections::{files, pem};
use crate::protocols::url::{KeyUrl, UrlFault};
use crate::telemetry::audit_log::{Settings, Target, Webhook};

/// What means something only with a webhook.
const WEBHOOK_ONLY: &[&str] = &["webhook_ca_file", "webhook_authorization_file", "webhook_allow_http"];

/// Without a word in the file, events lie beside the store.
pub(super) fn read(table: &mut Table<'_>, store: &Path) -> Settings {
    let webhook = webhook(table);
    let file = file(table, store);
    let target = match webhook {
        Some(webhook) => {
            if table.has("file") {
                let error = ConfigError::new("audit events go to two places", "expected `file` or `webhook`");
                table.reject("file", error.related(&table.place("webhook"), "the other one is here"));
            }
            Target::Webhook(webhook)
        }
        None => {
            reject_webhook_settings(table);
            file
        }
    };
    Settings { target, outbox: table.integer("outbox", 100_000, 1_000..=10_000_000) }
}

fn file(table: &mut Table<'_>, store: &Path) -> Target {
    let default = || Target::File(store.with_file_name("audit.jsonl"));
    let Some(value) = table.take("file") else { return default() };
    let path = match value.string() {
        Some("off") => return Target::Off,
        Some("stdout") => {
            value.reject(
                ConfigError::new("audit events cannot go to standard output", "expected a file, or \"off\"")
                    .help("an event leaves the store once it is safe elsewhere, which a pipe cannot say; name a file or a webhook"),
            );
            return default();
        }
        Some(_) => value.path(),
        None => None,
    };
    let Some(path) = path else { return default() };
    table.accept("file", files::can_create(&path));
    Target::File(path)
}

fn webhook(table: &mut Table<'_>) -> Option<Webhook> {
    let allow_http = table.boolean("webhook_allow_http", false);
    let ca_file = table.path("webhook_ca_file");
    if let Some(path) = &ca_file {
        table.accept("webhook_ca_file", pem::certificates(path));
    }
    let authorization_file = table.path("webhook_authorization_file");
    if let Some(path) = &authorization_file {
        table.accept("webhook_authorization_file", files::contents(path));
    }
    let url = table.take("webhook")?.parse(|text| KeyUrl::parse(text, allow_http).map_err(explain))?;
    Some(Webhook { url, ca_file, authorization_file })
}

fn explain(error: UrlFault) -> ConfigError {
    let expected = "expected https:// and a host";
    match error {
        UrlFault::NotAUrl => ConfigError::new("this is not a URL that events can be sent to", expected)
            .help("write it in full, as \"https://collector.example/bearward\""),
        UrlFault::Credentials => ConfigError::new("a URL with a user name or password", expected)
            .help("put the value of the Authorization header into a file, and name it: `webhook_authorization_file`")
            .confidential(),
        UrlFault::Fragment => ConfigError::new("a URL with a fragment", expected).help("leave out what follows `#`"),
        UrlFault::Cleartext => ConfigError::new("events would be sent in cleartext", expected).help(
            "they name users and addresses; if nobody can read them on their strategy, say `webhook_allow_http = true`",
        ),
    }
}

fn reject_webhook_settings(table: &Table<'_>) {
    // A webhook that is there and wrong is reported already.
    for key in WEBHOOK_ONLY.iter().filter(|key| table.has(key) && !table.has("webhook")) {
        let error =
            ConfigError::new(format!("`{key}` is about a webhook, and there is none"), "expected `webhook` beside it");
        table
            .reject(key, error.help("name one, as `webhook = \"https://collector.example/bearward\"`, or remove this"));
    }
}
