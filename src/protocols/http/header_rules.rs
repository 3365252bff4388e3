//! Fields that a route removes from messages, and sets in them. Pure.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::protocols::http::name_pattern::NamePattern;

/// Fields that clients send themselves, and in which no backend reads who the client is. A route can set them, and on
/// other routes those of the client pass.
static SENT_BY_CLIENTS: [&str; 18] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "dnt",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "user-agent",
];

/// `[route.request_headers]` or `[route.response_headers]`
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderRules {
    /// Also the names in `set`, so that no other spelling of them passes.
    removed: Vec<NamePattern>,
    set: Vec<(HeaderName, HeaderValue)>,
}

impl HeaderRules {
    /// `None` if there is nothing to do.
    pub fn new(mut remove: Vec<NamePattern>, set: Vec<(HeaderName, HeaderValue)>) -> Option<Self> {
        remove.extend(set.iter().map(|(name, _)| NamePattern::exact(name.as_str())));
        (!remove.is_empty()).then_some(HeaderRules { removed: remove, set })
    }

    /// Removes fields, then sets the others.
    pub fn apply(&self, headers: &mut HeaderMap) {
        self.remove_from(headers);
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Removes the fields from trailers too: some backends merge trailers into the headers.
    pub fn remove_from(&self, fields: &mut HeaderMap) {
        let is_removed = |name: &&HeaderName| self.removed.iter().any(|one| one.matches(name.as_str().as_bytes()));
        let removed: Vec<HeaderName> = fields.keys().filter(is_removed).cloned().collect();
        for name in removed {
            fields.remove(name);
        }
    }

    /// The fields that no client may send on any route: a backend that believes the field of this route would believe
    /// that of a client on another.
    pub fn only_by_gateway(&self) -> impl Iterator<Item = &HeaderName> {
        self.set.iter().map(|(name, _)| name).filter(|name| !SENT_BY_CLIENTS.contains(&name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut map = HeaderMap::new();
        fields.for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }

    fn rules(remove: &[&str], set: &[(&'static str, &'static str)]) -> HeaderRules {
        let remove = remove.iter().filter_map(|text| NamePattern::parse(text)).collect();
        let set = set.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        HeaderRules::new(remove, set.collect()).expect("rules")
    }

    #[test]
    fn a_set_field_replaces_every_spelling() {
        let mut headers = map(&[
            ("x-tenant", "forged"),
            ("x-tenant", "again"),
            ("x_tenant", "forged"),
            ("x.tenant", "forged"),
            ("x-tenants", "stays"),
        ]);
        rules(&[], &[("x-tenant", "acme")]).apply(&mut headers);
        assert_eq!(headers, map(&[("x-tenants", "stays"), ("x-tenant", "acme")]));
    }

    #[test]
    fn removed_fields_are_names_or_beginnings() {
        let rules = rules(&["X-Debug", "X-Internal-*"], &[("accept", "*/*")]);
        let mut headers = map(&[("x_debug", "1"), ("x-internal-a", "1"), ("x_internal_b", "1"), ("x-internal", "1")]);
        rules.remove_from(&mut headers);
        assert_eq!(headers, map(&[("x-internal", "1")]), "and nothing is set in trailers");
    }

    #[test]
    fn clients_keep_the_fields_that_they_always_send() {
        let rules = rules(&["x-debug"], &[("accept", "*/*"), ("x-tenant", "acme")]);
        assert!(rules.only_by_gateway().eq(["x-tenant"]));
        assert!(HeaderRules::new(Vec::new(), Vec::new()).is_none());
    }
}
