//! Protected resources, as clients name them (RFC 8707). Pure.

/// A protected resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedResource {
    /// The `aud` of its tokens.
    pub url: String,
    /// What its routes ask for.
    pub scopes: Vec<String>,
    /// What the challenges of its routes name. A client that asks for no scope gets these.
    pub default_scopes: Vec<String>,
}

/// Returns true if a client that sends `named` means the resource with this URL. The scheme and the host have no case
/// (RFC 3986 section 6.2.2.1), and a URL without a path is that with "/" (section 6.2.3): libraries that parse URLs add
/// the slash. All other text is compared byte for byte.
pub fn is_named(url: &str, named: &str) -> bool {
    let Some(ours) = parts(url) else { return url == named };
    let Some(theirs) = parts(named) else { return false };
    ours.origin.eq_ignore_ascii_case(theirs.origin) && ours.path == theirs.path
}

struct Parts<'u> {
    origin: &'u str,
    /// With the query.
    path: &'u str,
}

fn parts(url: &str) -> Option<Parts<'_>> {
    let host = url.find("://")? + "://".len();
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |end| host + end);
    let path = &url[end..];
    Some(Parts { origin: &url[..end], path: if path.is_empty() { "/" } else { path } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_named_by_its_url_alone() {
        for (url, named, expected) in [
            ("https://a.example/mcp", "https://a.example/mcp", true),
            ("https://a.example/mcp", "HTTPS://A.example/mcp", true),
            ("https://a.example/mcp", "https://a.example/MCP", false),
            ("https://a.example/mcp", "https://a.example/mcp/", false),
            ("https://a.example/mcp/", "https://a.example/mcp", false),
            ("https://a.example", "https://a.example/", true),
            ("https://a.example/", "https://A.example", true),
            ("https://a.example", "https://a.example//", false),
            ("https://a.example", "https://a.example?a", false),
            ("https://a.example", "https://a.example#", false),
            ("https://a.example", "https://a.example.evil.example/", false),
            ("https://a.example", "https://a.example:443", false),
            ("https://a.example", "http://a.example", false),
            ("https://a.example", "a.example", false),
            ("https://a.example", "", false),
            ("orders", "orders", true),
            ("orders", "Orders", false),
        ] {
            assert_eq!(is_named(url, named), expected, "{url} {named}");
        }
    }
}
