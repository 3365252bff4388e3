//! Client ID Metadata Documents (draft-ietf-oauth-client-id-metadata-document-01): the client id is the URL of a
//! document that describes the client. Pure.

use serde_json::{Map, Value};

use super::redirect_uri::{RedirectKind, RedirectUri};
use crate::tokens::jwt::json;

/// How every such client id begins.
pub const SCHEME: &str = "https://";

/// Maximum length of such a client id.
const MAX_URL: usize = 256;

/// Maximum number of redirect URIs.
const MAX_REDIRECT_URIS: usize = 20;

/// Members by which a client would have a secret. A public document can hold none.
const SECRETS: [&str; 2] = ["client_secret", "client_secret_expires_at"];

/// What a client says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientDocument {
    pub name: Option<String>,
    pub redirect_uris: Vec<RedirectUri>,
    /// The keys of a client that authenticates (`private_key_jwt`). `None`: it is a public client.
    pub keys: Option<DocumentKeys>,
}

/// Where a document has the public keys of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentKeys {
    /// `jwks`: the text of a key set.
    Inline(String),
    /// `jwks_uri`: an `https://` URL.
    At(String),
}

/// The host of a client id that is the URL of a document. The text itself is the identity, so that each URL has exactly
/// one text.
pub fn host_of(client_id: &str) -> Result<&str, &'static str> {
    let rest = client_id.strip_prefix(SCHEME).ok_or("the URL of a client does not begin with https://")?;
    if client_id.len() > MAX_URL {
        return Err("the URL of a client is longer than 256 bytes");
    }
    let is_plain = |byte: u8| {
        byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
    };
    if !rest.bytes().all(is_plain) || rest.contains(['#', '@']) {
        return Err("the URL of a client has a fragment, a user name, or a character that no URL has");
    }
    let slash = rest.find('/').ok_or("the URL of a client has no path")?;
    let (authority, target) = rest.split_at(slash);
    let path = target.split('?').next().unwrap_or_default();
    if path == "/" || has_dot_segment(path) {
        return Err("the URL of a client has no path, or one with dot segments");
    }
    let host = authority.split(':').next().unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let is_address = ends_in_number(host) || authority.starts_with('[');
    // With a dot at its end, it is the same host under another name.
    if host.is_empty() || host.ends_with('.') || is_address || !host.bytes().all(is_name) {
        return Err("the host in the URL of a client is no name in lower case");
    }
    Ok(host)
}

/// Returns true for a host that some parsers take for an IPv4 address, such as 127.1 or 0x7f000001 (URL standard,
/// section 3.5).
fn ends_in_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(is_hexadecimal)
}

fn has_dot_segment(path: &str) -> bool {
    let path = path.to_ascii_lowercase().replace("%2e", ".");
    path.split('/').any(|segment| matches!(segment, "." | ".."))
}

impl ClientDocument {
    /// Reads a document. Members that are unknown are ignored: documents are written for many servers.
    pub fn read(client_id: &str, content: &[u8]) -> Result<Self, &'static str> {
        let document = json::object(content).map_err(|_| "no JSON object without duplicate members")?;
        if document.get("client_id").and_then(Value::as_str) != Some(client_id) {
            return Err("client_id is not the URL of the document");
        }
        if SECRETS.iter().any(|name| document.contains_key(*name)) {
            return Err("a document cannot have a secret");
        }
        let keys = match document.get("token_endpoint_auth_method").map(Value::as_str) {
            None | Some(Some("none")) => None,
            Some(Some("private_key_jwt")) => Some(keys(&document)?),
            Some(_) => return Err("token_endpoint_auth_method is neither none nor private_key_jwt"),
        };
        Ok(ClientDocument { name: text(&document, "client_name"), redirect_uris: redirect_uris(&document)?, keys })
    }
}

/// RFC 7591 section 2: one of the two.
fn keys(document: &Map<String, Value>) -> Result<DocumentKeys, &'static str> {
    match (document.get("jwks"), document.get("jwks_uri").map(Value::as_str)) {
        (Some(set), None) => Ok(DocumentKeys::Inline(set.to_string())),
        (None, Some(Some(url))) => match host_of(url) {
            Ok(_) => Ok(DocumentKeys::At(url.to_owned())),
            Err(_) => Err("jwks_uri is no https:// URL of a host with a name"),
        },
        _ => Err("a client with private_key_jwt has either jwks or jwks_uri"),
    }
}

fn text(document: &Map<String, Value>, name: &str) -> Option<String> {
    document.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// A redirect URI that is not possible here is left out: the client may have others for other servers.
fn redirect_uris(document: &Map<String, Value>) -> Result<Vec<RedirectUri>, &'static str> {
    let listed = document.get("redirect_uris").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if listed.is_empty() || listed.len() > MAX_REDIRECT_URIS {
        return Err("expected 1 to 20 redirect_uris");
    }
    let uris = listed.iter().filter_map(|value| RedirectUri::parse(value.as_str()?).ok());
    // A stranger would choose which program of the device opens.
    let is_possible = |uri: &RedirectUri| !matches!(uri.kind(), RedirectKind::PrivateScheme { .. });
    let uris: Vec<RedirectUri> = uris.filter(is_possible).collect();
    if uris.is_empty() { Err("none of the redirect_uris is possible") } else { Ok(uris) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hostile case 45.
    #[test]
    fn a_client_id_is_one_text() {
        for (url, host) in [
            ("https://claude.ai/oauth/mcp-oauth-client-metadata", "claude.ai"),
            ("https://vscode.dev/oauth/client-metadata.json", "vscode.dev"),
            ("https://app.example:8443/client?version=2", "app.example"),
        ] {
            assert_eq!(host_of(url), Ok(host));
        }
        for wrong in [
            "http://app.example/client",
            "https://app.example",
            "https://app.example/",
            "https://127.0.0.1/client",
            "https://[::1]/client",
            "https://app.example./client",
            "https://App.example/client",
            "https://user@app.example/client",
            "https://app.example/client#x",
            "https://app.example/a/../b",
            "https://app.example/%2E%2e/b",
            "https://app.example/./b",
            "https://app.example/a b",
            "https://app.example/\u{e4}",
            "https:///client",
            "HTTPS://app.example/client",
            &format!("https://app.example/{}", "a".repeat(MAX_URL)),
        ] {
            assert!(host_of(wrong).is_err(), "{wrong}");
        }
    }

    const URL: &str = "https://app.example/client";

    fn read(more: &str) -> Result<ClientDocument, &'static str> {
        let text = format!("{{\"client_id\":\"{URL}\",\"redirect_uris\":[\"https://app.example/cb\"]{more}}}");
        ClientDocument::read(URL, text.as_bytes())
    }

    /// Hostile cases 51 and 52.
    #[test]
    fn a_document_describes_its_client() {
        for more in [
            "",
            ",\"client_name\":\"Notes\"",
            ",\"token_endpoint_auth_method\":\"none\",\"grant_types\":[\"authorization_code\",\"device_code\"],\"x\":[{}]",
        ] {
            assert!(read(more).is_ok(), "{more}");
        }
        assert_eq!(read(",\"client_name\":\"Notes\"").map(|document| document.name), Ok(Some("Notes".into())));
        let with_keys = |keys: &str| read(&format!(",\"token_endpoint_auth_method\":\"private_key_jwt\"{keys}"));
        let inline = with_keys(",\"jwks\":{\"keys\":[]}").map(|document| document.keys);
        assert_eq!(inline, Ok(Some(DocumentKeys::Inline("{\"keys\":[]}".into()))));
        let elsewhere = with_keys(",\"jwks_uri\":\"https://app.example/jwks\"").map(|document| document.keys);
        assert_eq!(elsewhere, Ok(Some(DocumentKeys::At("https://app.example/jwks".into()))));
        for keys in [
            "",
            ",\"jwks\":{\"keys\":[]},\"jwks_uri\":\"https://app.example/jwks\"",
            ",\"jwks_uri\":\"http://app.example/jwks\"",
            ",\"jwks_uri\":\"https://127.0.0.1/jwks\"",
            ",\"jwks_uri\":7",
        ] {
            assert!(with_keys(keys).is_err(), "{keys}");
        }
        for more in [
            ",\"client_secret\":\"x\"",
            ",\"token_endpoint_auth_method\":\"client_secret_basic\"",
            ",\"token_endpoint_auth_method\":7",
            ",\"client_id\":\"https://app.example/client\"",
            ",\"x\":{\"a\":1,\"a\":2}",
        ] {
            assert!(read(more).is_err(), "{more}");
        }
        assert!(ClientDocument::read("https://app.example/other", read_text().as_bytes()).is_err());
        for wrong in ["", "[]", "\u{feff}{}", "{\"client_id\":\"https://app.example/client\"}", &"[".repeat(10_000)] {
            assert!(ClientDocument::read(URL, wrong.as_bytes()).is_err(), "{}", wrong.len());
        }
    }

    fn read_text() -> String {
        format!("{{\"client_id\":\"{URL}\",\"redirect_uris\":[\"https://app.example/cb\"]}}")
    }

    #[test]
    fn a_redirect_uri_of_another_kind_is_left_out() {
        let uris = |list: &str| {
            let text = format!("{{\"client_id\":\"{URL}\",\"redirect_uris\":[{list}]}}");
            ClientDocument::read(URL, text.as_bytes()).map(|document| document.redirect_uris.len())
        };
        assert_eq!(uris("\"http://127.0.0.1/cb\",\"javascript:x\",\"https://a.example/cb\""), Ok(2));
        assert!(uris("\"javascript:x\"").is_err());
        assert!(uris("").is_err());
        assert!(uris(&vec!["\"https://a.example/cb\""; 21].join(",")).is_err());
    }
}
