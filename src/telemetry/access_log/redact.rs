//! Removes tokens from the paths of log lines.

use std::borrow::Cow;

use crate::protocols::http::path::decode;
use crate::tokens::credential_kind::OWN_PREFIXES;

/// How most JWTs begin.
const JWT_PREFIX: &str = "eyJ";

/// The path, with every segment cut where a token begins. Clients put tokens there on purpose, because
/// `DELETE /token/{tokenId}` accepts a refresh token, or by mistake. Tokens are searched in the percent-decoded
/// segment, because an escaped token is a valid token as well. What is kept stays encoded: a decoded `%3F` or `%0A`
/// would make another path of it.
pub(in crate::telemetry) fn without_tokens(path: &str) -> Cow<'_, str> {
    if !may_have_token(path) || text_before_token(path).is_none() {
        return Cow::Borrowed(path);
    }
    let cut = |segment: &str| match text_before_token(segment) {
        Some(before) => format!("{before}[token]"),
        None => segment.to_owned(),
    };
    Cow::Owned(path.split('/').map(cut).collect::<Vec<_>>().join("/"))
}

/// Returns true if the path has a byte that every token has: one of these, two dots, or an escape that may hide them.
/// Most paths have none.
fn may_have_token(path: &str) -> bool {
    let mut dots = 0;
    path.bytes().any(|byte| {
        dots += u32::from(byte == b'.');
        dots == 2 || matches!(byte, b'_' | b'J' | b'%')
    })
}

/// The encoded text before the first token.
fn text_before_token(encoded: &str) -> Option<&str> {
    // Tokens are ASCII. With one character for each decoded byte, the place of a token is a number of decoded bytes.
    let ascii = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { '?' };
    let start = token_start(&decode(encoded.as_bytes()).iter().map(ascii).collect::<String>())?;
    let mut rest = encoded.as_bytes();
    for _ in 0..start {
        let hex = rest.strip_prefix(b"%").and_then(|after| after.get(..2));
        let is_escape = hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        rest = rest.get(if is_escape { 3 } else { 1 }..)?;
    }
    encoded.get(..encoded.len() - rest.len())
}

/// Where the first token begins.
fn token_start(text: &str) -> Option<usize> {
    let with_prefix = OWN_PREFIXES.iter().chain([&JWT_PREFIX]).filter_map(|prefix| text.find(prefix));
    with_prefix.chain(jws_start(text)).min()
}

/// Where the first signed token begins, by its shape: three parts of base64url separated by dots (RFC 7515 section
/// 3.1), the last one empty for `alg: none`. Most JWTs begin with `eyJ`, but with a space in the JSON they do not.
fn jws_start(text: &str) -> Option<usize> {
    // `{"alg":"none"}` has 19 characters. A MAC with SHA-256 has 43, and every other signature is longer. The names of
    // files that are as long end in something shorter.
    const MIN_HEADER: usize = 19;
    const MIN_CLAIMS: usize = 10;
    const MIN_SIGNATURE: usize = 43;
    let is_base64url = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let dots = || text.match_indices('.').map(|(at, _)| at);
    dots().zip(dots().skip(1)).find_map(|(first, second)| {
        let header = text.as_bytes()[..first].iter().rev().take_while(is_base64url).count();
        let claims = text.as_bytes()[first + 1..second].iter().take_while(is_base64url).count();
        let signature = text.as_bytes()[second + 1..].iter().take_while(is_base64url).count();
        let is_jws = claims == second - first - 1 && (signature == 0 || signature >= MIN_SIGNATURE);
        (is_jws && header >= MIN_HEADER && claims >= MIN_CLAIMS).then(|| first - header)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_a_path_at_a_token_in_every_encoding() {
        for (path, logged) in [
            ("/a/b%20c", "/a/b%20c"),
            ("/a/x-eyJsecret/b", "/a/x-[token]/b"),
            ("/a/eyJsecret.bwr1_secret", "/a/[token]"),
            ("/a/bwr1_secret.eyJsecret", "/a/[token]"),
            ("/a/%62wr1_secret/b%20c", "/a/[token]/b%20c"),
            ("/%C3%A9%65%79Jsecret", "/%C3%A9[token]"),
            ("/%ff%zz%%65yJsecret", "/%ff%zz%[token]"),
            ("/a%2FeyJsecret", "/a%2F[token]"),
            ("/token/bwk_secret", "/token/[token]"),
            ("/x%3Fy-eyJsecret", "/x%3Fy-[token]"),
            ("/%0A-eyJsecret", "/%0A-[token]"),
            ("/é-eyJsecret", "/é-[token]"),
            (
                "/static/vendors-node-modules.0123456789abcdef0123.js",
                "/static/vendors-node-modules.0123456789abcdef0123.js",
            ),
            ("/org.springframework.context.annotation", "/org.springframework.context.annotation"),
            ("/a/b.c/d.e", "/a/b.c/d.e"),
        ] {
            assert_eq!(without_tokens(path), logged, "{path}");
        }
    }

    /// The header is `{ "alg":"none"}`.
    #[test]
    fn cuts_a_path_at_the_shape_of_a_signed_token() {
        const MESSAGE: &str = "eyAiYWxnIjoibm9uZSJ9.eyAic3ViIjoiYSJ9";
        let signed = format!("{MESSAGE}.{}", "s".repeat(43));
        for token in [format!("{MESSAGE}."), signed.clone(), signed.replace('.', "%2e"), format!("{signed}.json")] {
            assert_eq!(without_tokens(&format!("/a.b/{token}/c.d")), "/a.b/[token]/c.d");
            assert_eq!(without_tokens(&format!("/token={token}")), "/token=[token]");
            assert_eq!(without_tokens(&format!("/v1.2.{token}")), "/v1.2.[token]");
        }
        assert_eq!(without_tokens(MESSAGE), MESSAGE);
    }
}
