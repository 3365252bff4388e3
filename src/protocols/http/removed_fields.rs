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
}

/// Letters, digits, and all other characters.
const CLASSES: usize = 37;
/// One bucket for each first character. Names that begin with `X-` have one for each third character instead: they are
/// half of all names.
const BUCKETS: usize = 2 * CLASSES;

impl RemovedFields {
    /// `own`: the fields that only the gateway sets.
    pub(super) fn new<'n>(own: impl Iterator<Item = &'n str>, rules: &FieldRules) -> Self {
        let own = own.map(|name| Removed { pattern: NamePattern::exact(name), is_own: true });
        let others = removed_by_default().chain(rules.remove.iter().cloned());
        let all: Vec<Removed> = own.chain(others.map(|pattern| Removed { pattern, is_own: false })).collect();
        let (mut patterns, mut buckets) = (Vec::new(), [(0, 0); BUCKETS]);
        for (at, bucket) in buckets.iter_mut().enumerate() {
            let begin = patterns.len();
            patterns.extend(all.iter().filter(|removed| may_be_in(at, &removed.pattern)).cloned());
            let position = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
            *bucket = (position(begin), position(patterns.len()));
        }
        RemovedFields { patterns: patterns.into(), buckets, kept: rules.keep.clone() }
    }

    /// Returns true if a client must not send this field, in any spelling of its name.
    pub(super) fn contains(&self, name: &HeaderName) -> bool {
        let name = name.as_str().as_bytes();
        let (begin, end) = self.buckets[bucket_of(name)];
        let candidates = &self.patterns[usize::from(begin)..usize::from(end)];
        // The gateway's own fields come first in each bucket.
        let found = candidates.iter().find(|removed| removed.pattern.matches(name));
        found.is_some_and(|removed| removed.is_own || !self.kept.iter().any(|kept| kept.matches(name)))
    }
}

/// Returns true if a name that matches the pattern can be in this bucket.
fn may_be_in(bucket: usize, pattern: &NamePattern) -> bool {
    let text = pattern.folded();
    // The names of a prefix as short as `X-*` are in all buckets of the third character.
    let is_short_prefix = pattern.is_prefix() && matches!(text, [b'x', _]);
    if is_short_prefix { bucket >= CLASSES } else { bucket_of(text) == bucket }
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
        fields.contains(&name.parse().expect("a name"))
    }

    #[test]
    fn every_default_is_a_pattern_and_is_found() {
        assert_eq!(removed_by_default().count(), CLIENT_CLAIMS.len());
        let fields = RemovedFields::new(std::iter::empty(), &FieldRules::default());
        for name in CLIENT_CLAIMS {
            let name = name.replace('*', "x");
            assert!(removes(&fields, &name) && removes(&fields, &name.replace('-', "_")), "{name}");
        }
        for name in ["x", "x-", "xx", "accept", "x-requested-with", "client-id", "remote", "x-ssl", "cf-ray"] {
            assert!(!removes(&fields, name), "{name}");
        }
    }

    #[test]
    fn keep_applies_only_to_fields_that_the_gateway_does_not_set() {
        let rules = rules(&["X-*", "Z"], &["X-SSL-*", "X-Forwarded-*", "Remote-User", "x_auth-subject"]);
        let fields = RemovedFields::new(["x-forwarded-for", "x-auth-subject"].into_iter(), &rules);
        for name in ["x-a", "x-1", "x-.", "z", "x-forwarded-for", "x_forwarded_for", "x-auth-subject", "remote-name"] {
            assert!(removes(&fields, name), "{name}");
        }
        for name in ["x-ssl-cert", "x_ssl_cert", "x-forwarded-prefix", "remote-user", "y"] {
            assert!(!removes(&fields, name), "{name}");
        }
    }
}
