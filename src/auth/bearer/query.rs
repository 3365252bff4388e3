//! Parameters of one name in a query. Names are percent-decoded first, as backends do: `access%5Ftoken` is
//! `access_token`.

use crate::protocols::http::path::decode;

/// The values of all parameters of this name, not decoded: no token needs an escape.
pub(super) fn values<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter(move |pair| has_name(pair, name)).map(|pair| pair.split_once('=').map_or("", |(_, v)| v))
}

/// The query without the parameters of these names. `None` if it has none of them.
pub(super) fn without(query: &str, names: &[String]) -> Option<String> {
    let is_named = |pair: &&str| names.iter().any(|name| has_name(pair, name));
    query.split('&').any(|pair| is_named(&pair)).then(|| {
        let others: Vec<&str> = query.split('&').filter(|pair| !is_named(pair)).collect();
        others.join("&")
    })
}

fn has_name(pair: &str, name: &str) -> bool {
    let encoded = pair.split('=').next().unwrap_or_default();
    *decode(encoded.as_bytes()) == *name.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_and_removes_escaped_parameters() {
        for (query, found, rest) in [
            ("t=a", &["a"][..], Some("")),
            ("x=1&t=a&y=%20&z", &["a"], Some("x=1&y=%20&z")),
            ("%74=a&x", &["a"], Some("x")),
            ("t=a&t=b", &["a", "b"], Some("")),
            ("t", &[""], Some("")),
            ("t=a=b&&", &["a=b"], Some("&")),
            ("", &[], None),
            ("T=a&tt=a&x=t&x=1;t=a&%2574=a", &[], None),
        ] {
            assert_eq!(values(query, "t").collect::<Vec<_>>(), found, "{query}");
            assert_eq!(without(query, &["u".into(), "t".into()]).as_deref(), rest, "{query}");
        }
    }
}
