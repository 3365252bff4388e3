//! `listener.public_url`: where clients reach a listener behind a proxy.

use http::Uri;

use crate::config::document::error::ConfigError;
use crate::protocols::http::path;
use crate::protocols::http::target;
use crate::tokens::dpop::PublicUrl;

/// A scheme, a host, an optional port and the beginning of all paths.
pub(super) fn parse(text: &str) -> Result<PublicUrl, ConfigError> {
    let error = |help: &str| {
        let expected = "expected http:// or https://, and a host";
        Err(ConfigError::new("this is not the URL of a listener", expected).help(help))
    };
    let complete = "write the URL at which clients reach this listener, for example \"https://api.example\"";
    let Ok(uri) = text.parse::<Uri>() else { return error(complete) };
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return error(complete);
    };
    if text.contains(['?', '#', '@', '\\']) || !target::is_host(authority.as_str().as_bytes()) {
        return error("remove everything except host, port and path");
    }
    let prefix = uri.path().strip_suffix('/').unwrap_or(uri.path());
    // Otherwise no client could write this path into a proof.
    if let Some(reason) = path::ambiguity(uri.path().as_bytes()) {
        return error(&format!("change the path: it has {reason}"));
    }
    Ok(PublicUrl { is_https: scheme == "https", authority: authority.to_string(), prefix: prefix.to_owned() })
}
