//! The fields that the gateway removes from every request: a backend would read them as the word of a proxy that it
//! trusts. Pure.

use http::header::HeaderName;

use super::name_pattern::{NamePattern, folded};

/// Fields in which proxies tell a backend the client's address, its user or its certificate. A list of names is never
/// complete, so families of names are removed by their prefix (Traefik CVE-2024-52003, CVE-2026-35051). `gateway.toml`
/// and `deploy/messages.md` list them too.
pub const CLIENT_CLAIMS: &[&str] = &[
    // The client's address, and the target that it used.
    "Forwarded-*",
    "X-Forwarded",
    "X-Forwarded-*",
    "X-Original-*",
    "X-Rewrite-URL",
    "X-Real-IP",
    "Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "Proxy-Client-IP",
    "WL-Proxy-*",
    "X-ProxyUser-IP",
    "X-Originating-IP",
    "True-Client-IP",
    "CF-Connecting-*",
    "CF-Pseudo-IPv4",
    "DO-Connecting-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Incap-Client-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-Envoy-External-Address",
    "X-Envoy-Internal",
    // Its user.
    "Remote-*",
    "X-Remote-*",
    "X-WebAuth-*",
    "X-Auth-Request-*",
    "X-Authenticated-*",
    "X-Authentik-*",
    "X-Goog-Authenticated-User-*",
    "X-MS-Client-Principal",
    "X-MS-Client-Principal-*",
    "Tailscale-User-*",
    // Its certificate. The two names without a prefix are those of RFC 9440.
    "Client-Cert",
    "Client-Cert-*",
    "X-Client-Cert",
    "X-Client-Cert-*",
    "SSL-Client-*",
    "X-SSL-*",
    "X-Amzn-Mtls-*",
    "X-ARR-ClientCert",
    // A proof (RFC 9449) that the gateway has checked and used up.
    "DPoP",
];

/// `forwarding.remove` and `forwarding.keep`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldRules {
    pub remove: Vec<NamePattern>,
    /// Exceptions from the fields that are removed by default.
    pub keep: Vec<NamePattern>,
}

/// The patterns of [`CLIENT_CLAIMS`].
pub fn removed_by_default() -> impl Iterator<Item = NamePattern> {
    CLIENT_CLAIMS.iter().filter_map(|text| NamePattern::parse(text))
}

/// What is looked up for each field of each request.
pub(super) struct RemovedFields {
    /// Those of the first bucket, then those of the second, and so on.
    patterns: Box<[Removed]>,
    /// Where the patterns of each bucket begin and end.
    buckets: [(u16, u16); BUCKETS],
    kept: Vec<NamePattern>,
}

#[derive(Clone)]
struct Removed {
    pattern: NamePattern,
    /// Only the gateway sets this field, so `forwarding.keep` does not apply to it.
    is_own: bool,
    /// The field is removed only if it names TRACE or TRACK.
    only_trace: bool,
}

/// Whether a client may send a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Always,
    /// With TRACE or TRACK a backend would send the request back, identity headers included.
    IfTrace,
}

/// Letters, digits, and all other characters.
const CLASSES: usize = 37;
/// One bucket for each first character. Names that begin with `X-` have one for each third character instead: they are
/// half of all names.
const BUCKETS: usize = 2 * CLASSES;

impl RemovedFields {
    /// `own`: the fields that only the gateway sets. `overrides`: fields that name another method.
    pub(super) fn new<'n>(
        own: impl Iterator<Item = &'n str>,
        overrides: impl Iterator<Item = &'n str>,
        rules: &FieldRules,
    ) -> Self {
        let own = own.map(|name| Removed { pattern: NamePattern::exact(name), is_own: true, only_trace: false });
        let others = removed_by_default().chain(rules.remove.iter().cloned());
        let others = others.map(|pattern| Removed { pattern, is_own: false, only_trace: false });
        // Last, so that `forwarding.remove` wins.
        let overrides =
            overrides.map(|name| Removed { pattern: NamePattern::exact(name), is_own: true, only_trace: true });
        let all: Vec<Removed> = own.chain(others).chain(overrides).collect();
        let mut patterns = Vec::new();
        let mut buckets = [(0, 0); BUCKETS];
        for (at, bucket) in buckets.iter_mut().enumerate() {
            let begin = patterns.len();
            patterns.extend(all.iter().filter(|removed| may_be_in(at, &removed.pattern)).cloned());
            let position = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
            *bucket = (position(begin), position(patterns.len()));
        }
        RemovedFields { patterns: patterns.into(), buckets, kept: rules.keep.clone() }
    }

    /// Whether a client may send this field, in any spelling of its name. `None` if it may.
    pub(super) fn removal(&self, name: &HeaderName) -> Option<Removal> {
        let name = name.as_str().as_bytes();
        let (begin, end) = self.buckets[bucket_of(name)];
        let candidates = &self.patterns[usize::from(begin)..usize::from(end)];
        // The gateway's own fields come first in each bucket.
        candidates.iter().filter(|removed| removed.pattern.matches(name)).find_map(|removed| {
            let removal = if removed.only_trace { Removal::IfTrace } else { Removal::Always };
            let is_removed = removed.is_own || !self.kept.iter().any(|kept| kept.matches(name));
            is_removed.then_some(removal)
        })
    }
}

/// Returns true if a name that matches the pattern can be in this bucket.
fn may_be_in(bucket: usize, pattern: &NamePattern) -> bool {
    let text = pattern.folded();
    // The names of a prefix as short as `X-*` are in all buckets of the third character, and `X-` is in that of its
    // first one.
    let is_short_prefix = pattern.is_prefix() && matches!(text, [b'x', _]);
    bucket_of(text) == bucket || is_short_prefix && bucket >= CLASSES
}

fn bucket_of(name: &[u8]) -> usize {
    match name {
        [b'x' | b'X', _, third, ..] => CLASSES + class(*third),
        [first, ..] => class(*first),
        [] => 0,
    }
}

fn class(byte: u8) -> usize {
    match folded(byte) {
        letter @ b'a'..=b'z' => usize::from(letter - b'a'),
        digit @ b'0'..=b'9' => 26 + usize::from(digit - b'0'),
        _ => CLASSES - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(remove: &[&str], keep: &[&str]) -> FieldRules {
        let parse = |list: &[&str]| list.iter().filter_map(|text| NamePattern::parse(text)).collect();
        FieldRules { remove: parse(remove), keep: parse(keep) }
    }

    fn removes(fields: &RemovedFields, name: &str) -> bool {
        fields.removal(&name.parse().expect("a name")) == Some(Removal::Always)
    }

    #[test]
    fn every_default_is_a_pattern_and_is_found() {
        assert_eq!(removed_by_default().count(), CLIENT_CLAIMS.len());
        let fields = RemovedFields::new(std::iter::empty(), std::iter::empty(), &FieldRules::default());
        for name in CLIENT_CLAIMS {
            for rest in ["x", ""] {
                let name = name.replace('*', rest);
                assert!(removes(&fields, &name) && removes(&fields, &name.replace('-', "_")), "{name}");
            }
        }
        for name in ["x", "x-", "xx", "accept", "x-requested-with", "client-id", "remote", "x-ssl", "cf-ray"] {
            assert!(!removes(&fields, name), "{name}");
        }
    }

    #[test]
    fn keep_applies_only_to_fields_that_the_gateway_does_not_set() {
        let rules = rules(&["X-*", "Z"], &["X-SSL-*", "X-Forwarded-*", "Remote-User", "x_auth-subject"]);
        let fields = RemovedFields::new(["x-forwarded-for", "x-auth-subject"].into_iter(), std::iter::empty(), &rules);
        for name in [
            "x-a",
            "x-1",
            "x-.",
            "x-",
            "X_",
            "z",
            "x-forwarded-for",
            "x_forwarded_for",
            "x-auth-subject",
            "remote-name",
        ] {
            assert!(removes(&fields, name), "{name}");
        }
        for name in ["x-ssl-cert", "x_ssl_cert", "x-forwarded-prefix", "remote-user", "y"] {
            assert!(!removes(&fields, name), "{name}");
        }
    }

    #[test]
    fn a_method_override_is_removed_for_its_value_also_if_kept() {
        let of = |remove: &[&str]| {
            let overrides = ["x-http-method-override"].into_iter();
            RemovedFields::new(std::iter::empty(), overrides, &rules(remove, &["X-HTTP-Method-Override"]))
        };
        let removal = |remove: &[&str], name: &str| of(remove).removal(&name.parse().expect("a name"));
        for name in ["x-http-method-override", "x_http_method_override"] {
            assert_eq!(removal(&[], name), Some(Removal::IfTrace));
            assert_eq!(removal(&["X-HTTP-*"], name), Some(Removal::IfTrace), "`keep` is an exception from `remove`");
        }
        assert_eq!(removal(&["X-HTTP-*"], "x-http-method"), Some(Removal::Always));
    }
}
