//! JSON that two parsers read differently, and invalid JSON (RFC 8259). A parser must not repair it.

use bearward::types::reject::Reason::*;

use super::{Row, World, and, each, row};

pub(super) fn rows(world: &World) -> Vec<Row> {
    let claims = world.mint.claims(world.now);
    let header = world.mint.header();
    let (now, kid) = (world.now, &world.mint.kid);
    let mut all = Vec::new();

    // Some parsers take the first of two members, others the last.
    let twice = vec![
        r#","iss":"https://login.example""#.to_owned(),
        r#","iss":"https://evil.example""#.into(),
        format!(r#","exp":{}"#, now + 86_000),
        r#","aud":"https://evil.example""#.into(),
        r#","sub":"root""#.into(),
        r#","\u0069ss":"https://evil.example""#.into(),
        r#","\u0073\u0075\u0062":"root""#.into(),
        r#","x":{"a":1,"a":2}"#.into(),
        r#","x":[[{"a":1,"\u0061":1}]]"#.into(),
        r#","":1,"":2"#.into(),
        r#","x":1,"y":2,"x":1"#.into(),
    ];
    all.extend(each("claims with a member twice", twice, |more| world.claims_and(more), MalformedToken));
    let twice = vec![
        r#","alg":"none""#.to_owned(),
        r#","\u0061lg":"none""#.into(),
        r#","typ":"JWT""#.into(),
        format!(r#","kid":"{kid}""#),
        r#","x":{"b":null,"b":null}"#.into(),
    ];
    all.extend(each("a header with a member twice", twice, |more| world.header_and(more), MalformedToken));

    let no_json = vec![
        r#","x":NaN"#,
        r#","x":Infinity"#,
        r#","x":-Infinity"#,
        r#","x":-"#,
        r#","x":01"#,
        r#","x":+1"#,
        r#","x":.5"#,
        r#","x":5."#,
        r#","x":1e"#,
        r#","x":0x10"#,
        r#","x":1_000"#,
        r#","x":1e400"#,
        r#","x":True"#,
        r#","x":nul"#,
        r#","x":undefined"#,
        r#","x":'1'"#,
        r#",x:1"#,
        r#",'x':1"#,
        r#",1:1"#,
        r#",null:1"#,
        r#","x""#,
        r#","x":"#,
        r#","x" 1"#,
        r#","x"=1"#,
        r#","#,
        r#",,"x":1"#,
        r#","x":[1,]"#,
        r#","x":[1"#,
        r#","x":[1}"#,
        r#","x":{"y":1]"#,
        r#","x":1/*comment*/"#,
        "//comment\n",
        "#comment\n",
        r#","x":"\x41""#,
        r#","x":"\u00""#,
        r#","x":"\uZZZZ""#,
        r#","x":"\ud800""#,
        r#","x":"\udc00\ud800""#,
        r#","x":"\ud800\u0041""#,
        r#","\udfff":1"#,
        "\u{b},\"x\":1",
        "\u{c},\"x\":1",
        "\u{a0},\"x\":1",
        ",\"x\":\"a\nb\"",
        ",\"x\":\"a\tb\"",
        ",\"x\":\"a\0b\"",
        ",\"x\":\"a\u{1f}b\"",
        "\0,\"x\":1",
    ];
    all.extend(each("claims that are not JSON", no_json, |more| world.claims_and(more), MalformedToken));
    let no_json = vec![r#","x":NaN"#, ",", r#","x":"\ud800""#, r#",x:1"#, "\0", r#","x":1e400"#];
    all.extend(each("a header that is not JSON", no_json, |more| world.header_and(more), MalformedToken));

    let (claims, header) = (claims.to_string(), header.to_string());
    let around = |text: &str| {
        vec![
            String::new(),
            " ".into(),
            "{".into(),
            "{}{}".into(),
            "[]".into(),
            "null".into(),
            "true".into(),
            "1".into(),
            "\"\"".into(),
            format!("[{text}]"),
            format!("{text}x"),
            format!("{text}{text}"),
            format!("{text}\0"),
            format!("\0{text}"),
            format!("{text},"),
            format!("\u{feff}{text}"),
            text[..text.len() - 1].to_owned(),
            text[1..].to_owned(),
            format!("{:?}", text),
            text.replace('"', "'"),
            text.replace('{', "(").replace('}', ")"),
        ]
    };
    all.extend(each("claims", around(&claims), |text| world.claims_text(text), MalformedToken));
    all.extend(each("a header", around(&header), |text| world.header_text(text), MalformedToken));
    all.extend(bytes(world, &claims));
    all.extend(deep(world));
    all
}

/// Claims that are not UTF-8.
fn bytes(world: &World, claims: &str) -> Vec<Row> {
    let with = |bytes: &[u8]| {
        let open = claims.strip_suffix('}').expect("an object").as_bytes();
        world.claims_text([open, b",\"x\":\"", bytes, b"\"}"].concat())
    };
    let utf16: Vec<u8> = claims.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let utf16_le: Vec<u8> = claims.encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        row("a lone byte above ASCII", with(b"\xe9"), MalformedToken),
        row("half a character", with(b"\xc3"), MalformedToken),
        row("an overlong slash", with(b"\xc0\xaf"), MalformedToken),
        row("an overlong NUL", with(b"\xc0\x80"), MalformedToken),
        row("a surrogate in UTF-8", with(b"\xed\xa0\x80"), MalformedToken),
        row("a code point beyond the last", with(b"\xf4\x90\x80\x80"), MalformedToken),
        row("a byte that UTF-8 does not have", with(b"\xff"), MalformedToken),
        row("UTF-16", world.claims_text(utf16), MalformedToken),
        row("UTF-16, little-endian", world.claims_text(utf16_le), MalformedToken),
        row("CBOR, as in a CWT", world.claims_text(b"\xa1\x01\x65login"), MalformedToken),
        row(
            "gzip",
            world.claims_text(b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0"),
            MalformedToken,
        ),
        row("XML", world.claims_text("<claims><sub>root</sub></claims>"), MalformedToken),
        row("a form", world.claims_text("iss=https://login.example&sub=root"), MalformedToken),
        row("a payload that is a token", world.claims_text(world.good()), MalformedToken),
    ]
}

/// Deep nesting, which overflows the stack of a recursive parser.
fn deep(world: &World) -> Vec<Row> {
    let nested = |open: &str, depth: usize, close: &str| {
        and(&world.mint.claims(world.now), &format!(",\"x\":{}1{}", open.repeat(depth), close.repeat(depth)))
    };
    let claims = |text: String| world.claims_text(text);
    vec![
        row("17 objects", claims(nested("{\"a\":", 16, "}")), MalformedToken),
        row("17 arrays", claims(nested("[", 16, "]")), MalformedToken),
        row("arrays and objects by turns", claims(nested("[{\"a\":", 8, "}]")), MalformedToken),
        row("2,500 arrays", claims(nested("[", 2500, "]")), MalformedToken),
        row("5,000 arrays without an end", claims(nested("[", 5000, "")), MalformedToken),
        row(
            "a deep header",
            world.header_and(&format!(",\"x\":{}1{}", "[".repeat(16), "]".repeat(16))),
            MalformedToken,
        ),
    ]
}
