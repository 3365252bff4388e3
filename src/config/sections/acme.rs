//! `[acme]`, and the names of listeners that an ACME server certifies.

use std::net::IpAddr;
use std::sync::Arc;

use crate::config::document::error::ConfigError;
use crate::config::document::shape::Shape;
use crate::config::document::table::Table;
use crate::config::sections::pem;
use crate::protocols::url::SecureUrl;
use crate::server::acme::{AcmePace, AcmeSettings};

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// The form of a name.
pub(super) const NAME: Shape = Shape::Pattern("^[A-Za-z0-9.-]+$");
/// RFC 1035 section 2.3.4.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// `[acme]`
pub(super) struct Acme {
    pub(super) settings: Arc<AcmeSettings>,
    /// Maximum names of one listener.
    pub(super) names_per_listener: usize,
}

pub(super) fn read(table: &mut Table<'_>) -> Acme {
    let directory = table.take("directory", Shape::Pattern("^(letsencrypt|letsencrypt-staging|https?://.+)$"));
    table.default("directory", "letsencrypt");
    let directory = directory.and_then(|value| {
        if value.string() == Some("letsencrypt-staging") {
            let warning = ConfigError::new("no client trusts certificates of this directory", "for trials only");
            value.warn(warning.help("remove `directory` when the trial has succeeded"));
        }
        value.parse(directory_url)
    });
    let directory_ca = table.path("directory_ca");
    if let Some(path) = &directory_ca {
        table.accept("directory_ca", pem::certificates(path));
    }
    let contact = table.take("contact", Shape::list(Shape::Pattern(r"^[^@\s]+@[^@\s]+$")));
    table.default("contact", Vec::<String>::new());
    let contact = contact.and_then(|value| value.list_of("[\"ops@example.com\"]", contact_url));
    let settings = AcmeSettings {
        directory: directory.unwrap_or_else(lets_encrypt),
        directory_ca,
        contact: contact.unwrap_or_default(),
        orders_per_hour: table.integer("orders_per_hour", 20, 1..=300),
        pace: AcmePace::default(),
    };
    let names_per_listener = table.integer("names_per_listener", 20, 1..=100);
    Acme { settings: Arc::new(settings), names_per_listener }
}

fn lets_encrypt() -> SecureUrl {
    let host = "acme-v02.api.letsencrypt.org".to_owned();
    SecureUrl { tls: true, authority: host.clone(), host, port: 443, target: "/directory".to_owned() }
}

fn directory_url(text: &str) -> Result<SecureUrl, ConfigError> {
    let url = match text {
        "letsencrypt" => LETS_ENCRYPT,
        "letsencrypt-staging" => LETS_ENCRYPT_STAGING,
        url => url,
    };
    SecureUrl::parse(url, false).map_err(|error| {
        let error = ConfigError::new(error.to_string(), "expected \"letsencrypt\" or the URL of an ACME directory");
        error.help("for example \"https://ca.internal/acme/acme/directory\"")
    })
}

fn contact_url(text: &str) -> Result<String, ConfigError> {
    let is_address = |text: &str| {
        let parts = text.split_once('@').filter(|(user, host)| !user.is_empty() && !host.is_empty());
        parts.is_some()
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?,@\"<>".contains(&byte) || byte == b'@')
    };
    // RFC 8555 section 7.3: one address, and no other fields.
    if is_address(text) && text.matches('@').count() == 1 {
        Ok(format!("mailto:{text}"))
    } else {
        Err(ConfigError::new("this is no e-mail address", "expected an address such as \"ops@example.com\""))
    }
}

/// `listener.tls.acme`. In lower case.
pub(super) fn name(text: &str) -> Result<String, ConfigError> {
    let expected = "expected a DNS name such as \"api.example.com\"";
    if text.contains('*') {
        let error = ConfigError::new(format!("\"{text}\" is a wildcard"), expected);
        return Err(error.help("authorities validate wildcards only by DNS: name each host, or use certificate files"));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(ConfigError::new(format!("\"{text}\" is an IP address"), expected));
    }
    let is_label = |label: &str| {
        let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inner && (1..=MAX_LABEL).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if text.len() <= MAX_NAME && text.split('.').all(is_label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(ConfigError::new(format!("\"{}\" is not a DNS name", text.escape_default()), expected))
    }
}

/// Returns false if there are no names. Returns false, and reports why, if there are too many.
pub(super) fn check_names(table: &Table<'_>, names: &[String], limit: usize) -> bool {
    if names.len() > limit {
        let error = ConfigError::new(
            format!("the listener has {} names", names.len()),
            format!("expected at most {limit}, which is acme.names_per_listener"),
        );
        table.reject("acme", error.help("each name has a certificate of its own; see also acme.orders_per_hour"));
    }
    (1..=limit).contains(&names.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_directory_of_lets_encrypt() {
        assert_eq!(directory_url("letsencrypt").ok(), Some(lets_encrypt()));
    }

    #[test]
    fn a_name_is_a_name_of_dns() {
        for text in ["api.example.com", "localhost", "a-b.c", "xn--mller-kva.example"] {
            assert_eq!(name(text).ok().as_deref(), Some(text));
        }
        assert_eq!(name("API.Example").ok().as_deref(), Some("api.example"));
        let label = "a".repeat(64);
        let long = ["a"; 128].join(".");
        for text in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a.b",
            "a-.b",
            "a_b.c",
            "a b",
            "ü.example",
            "*.a.b",
            "1.2.3.4",
            "::1",
            &label,
            &long,
        ] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_contact_is_one_address() {
        assert_eq!(contact_url("ops@example.com").ok().as_deref(), Some("mailto:ops@example.com"));
        for text in ["", "@", "a@", "@b", "a@b,c@d", "a@b?cc=c@d", "a b@c", "mailto", "a@b\r\n"] {
            assert!(contact_url(text).is_err(), "{text}");
        }
    }
}
