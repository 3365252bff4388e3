//! The keys that a reload applies, and those that require a restart.

use serde_json::Value as Json;

/// The keys that require a restart, and the tables of which all keys do.
const RESTART: [&str; 28] = [
    "workers",
    "event_stream",
    "listener[].address",
    "listener[].proxy_protocol",
    "listener[].public_url",
    "listener[].client_certificate",
    "admin",
    "store",
    "tokens",
    "audit",
    "trace",
    "access_log.file",
    "timeouts.store",
    "timeouts.lingering_close",
    "limits.connections",
    "limits.connections_per_address",
    "limits.concurrent_requests",
    "limits.reserve_percent",
    "limits.discarded_body_size",
    "limits.penalty_duration",
    "limits.failed_handshakes",
    "limits.malformed_requests",
    "limits.rejected_bodies",
    "limits.retry_delay",
    "limits.token_size",
    "limits.bad_signatures",
    "limits.introspected_bad_signatures",
    "limits.sessions_per_subject",
];

/// Returns true if a reload applies a change of this key, such as `route[1].path`. It applies any certificate of a
/// listener, but cannot switch between cleartext and TLS.
pub(super) fn is_reloadable(key: &str, value: Option<&Json>) -> bool {
    let name = super::document::record::without_indexes(key);
    let is_inside =
        |table: &str| name.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let is_cleartext = name == "listener[].tls" && value.is_some_and(|value| value == "off");
    !is_cleartext && !RESTART.into_iter().any(is_inside)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_lists_name_only_keys_that_exist() {
        let keys: BTreeSet<String> = crate::config::keys();
        let unknown: Vec<_> = RESTART.into_iter().filter(|key| !keys.contains(*key)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
        for (key, expected) in [
            ("route[3].rate[0].per", true),
            ("watch", true),
            ("workers", false),
            ("event_stream[0].path", false),
            ("event_stream[1]", false),
            ("listener[0].tls", true),
            ("listener[0].tls[1].key", true),
            ("admin.tls.key", false),
            ("timeouts.upstream_connect", true),
            ("timeouts.drain", true),
            ("timeouts.store", false),
            ("limits.uri_size", true),
            ("limits.connections", false),
        ] {
            assert_eq!(is_reloadable(key, None), expected, "{key}");
        }
        assert!(!is_reloadable("listener[0].tls", Some(&"off".into())));
    }
}
