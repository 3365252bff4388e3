//! Host names in URLs and in `route.host`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::config::document::error::ConfigError;

/// The host in lower case, an IPv6 address without brackets. Underscores are allowed: container networks use them.
pub(super) fn parse(text: &str) -> Result<String, ConfigError> {
    if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match inside.parse::<Ipv6Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => {
                Err(ConfigError::new(format!("{text} is not an IPv6 address"), "expected an address such as [::1]"))
            }
        };
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(allowed);
    if text.len() > 253 || !text.split('.').all(label) {
        let error = ConfigError::new(format!("\"{text}\" is not a host name"), "expected a host name or an IP address");
        return Err(if text.is_ascii() {
            error
        } else {
            error.help("write international names in their ASCII form: xn--…")
        });
    }
    let last = text.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<Ipv4Addr>().is_err() {
        return Err(ConfigError::new(
            format!("\"{text}\" is not an IPv4 address"),
            "expected four numbers from 0 to 255",
        ));
    }
    Ok(text.to_ascii_lowercase())
}
