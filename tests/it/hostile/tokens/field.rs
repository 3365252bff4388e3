//! The `Authorization` field: malformed, with another scheme, or more than one.

use bearward::types::reject::Reason::*;

use super::{Row, World, row};

pub(super) fn rows(world: &World) -> Vec<Row> {
    let good = world.good();
    let basic = "Basic YWxpY2U6c2VjcmV0".to_owned();
    let alone = [
        ("an empty field", String::new(), NoToken),
        ("a scheme and no token", "Bearer".into(), NoToken),
        ("a scheme and a space", "Bearer ".into(), NoToken),
        ("a token and no scheme", good.clone(), NoToken),
        ("no space after the scheme", format!("Bearer{good}"), NoToken),
        ("a tab after the scheme", format!("Bearer\t{good}"), NoToken),
        ("a colon after the scheme", format!("Bearer: {good}"), NoToken),
        ("an equals sign after the scheme", format!("Bearer={good}"), NoToken),
        ("a slash after the scheme", format!("Bearer/{good}"), NoToken),
        ("a no-break space after the scheme", format!("Bearer\u{a0}{good}"), NoToken),
        ("the name of the field once more", format!("Authorization: Bearer {good}"), NoToken),
        ("a scheme in quotes", format!("\"Bearer\" {good}"), NoToken),
        ("a scheme with a long s", format!("Beare\u{17f} {good}"), NoToken),
        ("a scheme in full width", format!("\u{ff22}earer {good}"), NoToken),
        ("a longer scheme", format!("Bearers {good}"), NoToken),
        ("a shorter scheme", format!("Beare {good}"), NoToken),
        ("Basic", basic.clone(), NoToken),
        ("Basic around a token", format!("Basic {good}"), NoToken),
        ("the scheme of tokens that are bound to a key", format!("DPoP {good}"), TokenNotBound),
        ("MAC", format!("MAC {good}"), NoToken),
        ("Token", format!("Token {good}"), NoToken),
        ("JWT", format!("JWT {good}"), NoToken),
        ("Digest", "Digest username=\"alice\", uri=\"/\"".into(), NoToken),
        ("Negotiate", "Negotiate YII=".into(), NoToken),
        ("an AWS signature", "AWS4-HMAC-SHA256 Credential=a/b, Signature=0".into(), NoToken),
        ("another scheme before it", format!("Basic YTpi, Bearer {good}"), NoToken),
        ("two spaces", format!("Bearer  {good}"), MalformedToken),
        ("a space and a tab", format!("Bearer \t{good}"), MalformedToken),
        ("the scheme twice", format!("Bearer Bearer {good}"), MalformedToken),
        ("a word after the token", format!("Bearer {good} x"), MalformedToken),
        ("a tab and a word after it", format!("Bearer {good}\tx"), MalformedToken),
        ("two tokens and a space", format!("Bearer {good} {good}"), MalformedToken),
        ("a parameter before it", format!("Bearer realm=\"x\" {good}"), MalformedToken),
        ("a parameter after it", format!("Bearer {good};x=1"), MalformedToken),
        ("a named token", format!("Bearer token=\"{good}\""), MalformedToken),
        ("a token in double quotes", format!("Bearer \"{good}\""), MalformedToken),
        ("a token in single quotes", format!("Bearer '{good}'"), MalformedToken),
        ("a token in angle brackets", format!("Bearer <{good}>"), MalformedToken),
        ("an encoded word", format!("Bearer =?utf-8?q?{good}?="), MalformedToken),
        ("a percent-encoded dot", format!("Bearer {}", good.replacen('.', "%2E", 1)), MalformedToken),
        ("two tokens and a comma", format!("Bearer {good},{good}"), SeveralTokens),
        ("two credentials in one field", format!("Bearer {good}, Bearer {good}"), SeveralTokens),
        ("Basic after it", format!("Bearer {good}, {basic}"), SeveralTokens),
        ("a comma after it", format!("Bearer {good},"), SeveralTokens),
        ("a comma before it", format!("Bearer ,{good}"), SeveralTokens),
    ];
    let bearer = format!("Bearer {good}");
    let together = [
        ("the same token twice", vec![bearer.clone(), bearer.clone()]),
        ("a bad token after a good one", vec![bearer.clone(), "Bearer x".into()]),
        ("a good token after a bad one", vec!["Bearer x".into(), bearer.clone()]),
        ("a good token after Basic", vec![basic.clone(), bearer.clone()]),
        ("Basic after a good token", vec![bearer.clone(), basic]),
        ("a good token after an empty field", vec![String::new(), bearer.clone()]),
        ("an empty field after a good token", vec![bearer.clone(), String::new()]),
        ("three", vec![bearer.clone(), "Bearer y".into(), bearer]),
    ];
    let alone = alone.into_iter().map(|(name, field, reason)| Row(name.into(), vec![field.into_bytes()], reason));
    let together = together.into_iter().map(|(name, fields)| {
        Row(format!("two fields: {name}"), fields.into_iter().map(String::into_bytes).collect(), SeveralTokens)
    });
    let bytes = [
        Row("no field".into(), vec![], NoToken),
        row("a byte above ASCII", [good.as_bytes(), b"\xe9"].concat(), MalformedToken),
        row("half a character", [b"\xc3".as_slice(), good.as_bytes()].concat(), MalformedToken),
        row("a letter of UTF-8", format!("{good}\u{e9}"), MalformedToken),
        row("a zero-width space", format!("{good}\u{200b}"), MalformedToken),
        row("a dot in full width", good.replacen('.', "\u{ff0e}", 1), MalformedToken),
    ];
    alone.chain(together).chain(bytes).collect()
}
