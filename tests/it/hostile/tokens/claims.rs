//! Claims that are missing, of another type, of another issuer or audience, or of another time. The times are just
//! outside of their boundary; [`valid_at_the_boundary`] has those just inside.

use bearward::types::reject::Reason::{self, *};
use serde_json::{Value, json};

use super::{OTHER, Row, World, each, row};

pub(super) fn rows(world: &World) -> Vec<Row> {
    [issuers(world), audiences(world), identities(world), dates(world), times(world), own(world)]
        .into_iter()
        .flatten()
        .collect()
}

/// One claim with each of these values, with null, and without a value if `absent`.
fn claim(world: &World, name: &str, values: Vec<Value>, absent: bool, reason: Reason) -> Vec<Row> {
    let with = |value: &Value| world.claims(json!({ name: value }));
    let mut rows = each(name, values, with, reason);
    let mut claims = world.mint.claims(world.now);
    claims[name] = Value::Null;
    rows.push(row(format!("{name} null"), world.claims_text(claims.to_string()), reason));
    if absent {
        rows.push(row(format!("no {name}"), world.claims(json!({ name: null })), reason));
    }
    rows
}

fn issuers(world: &World) -> Vec<Row> {
    let strange = vec![
        json!(""),
        json!("*"),
        json!(7),
        json!(true),
        json!(["https://login.example"]),
        json!({ "url": "https://login.example" }),
        json!("https://evil.example"),
        json!("https://login.example/"),
        json!("https://login.example."),
        json!("https://login.example:443"),
        json!("https://LOGIN.example"),
        json!("HTTPS://login.example"),
        json!("http://login.example"),
        json!("login.example"),
        json!("https://login.example "),
        json!(" https://login.example"),
        json!("https://login.example\0"),
        json!("https://login.example\n"),
        json!("https://login.example?"),
        json!("https://login.example#"),
        json!("https://login.example@evil.example"),
        json!("https://login.example.evil.example"),
        json!("https://evil.example/https://login.example"),
        json!("https://login.example,https://other.example"),
        json!("https://l\u{43e}gin.example"),
        json!("https://login\u{3002}example"),
        json!("https://login%2eexample"),
        json!("x".repeat(4000)),
    ];
    let mut rows = claim(world, "iss", strange, true, UnknownIssuer);
    let other = world.other.with_claims(world.now, json!({}));
    rows.push(row("another issuer's key under this name", other, UnknownKey));
    rows.push(row("iss with another name", world.claims_text(r#"{"ISS":"https://login.example"}"#), UnknownIssuer));
    rows
}

fn audiences(world: &World) -> Vec<Row> {
    let others = vec![
        json!(""),
        json!("*"),
        json!(5),
        json!(true),
        json!({ "https://api.example": true }),
        json!([]),
        json!([[]]),
        json!([["https://api.example"]]),
        json!(["https://api.example", 5]),
        json!(["https://api.example", null]),
        json!([{ "aud": "https://api.example" }]),
        json!(["https://evil.example", "https://login.example"]),
        json!("https://api.example/"),
        json!("https://API.example"),
        json!("https://api.example "),
        json!("https://api.example\0"),
        json!("https://api.exampl"),
        json!("https://api.example.evil.example"),
        json!("https://api.example,https://evil.example"),
        json!("https://evil.example https://api.example"),
        json!("[\"https://api.example\"]"),
        json!("api.example"),
        json!("https://gateway.example"),
        json!("https://login.example"),
    ];
    claim(world, "aud", others, true, WrongAudience)
}

fn identities(world: &World) -> Vec<Row> {
    let no_text = || vec![json!(0), json!(1.5), json!(true), json!(["root"]), json!({ "sub": "root" })];
    let mut rows = claim(world, "sub", [no_text(), vec![json!("")]].concat(), true, BadClaims);
    rows.extend(claim(world, "jti", no_text(), false, BadClaims));
    let no_scope = || {
        let listed = vec![json!([1]), json!(["a", null]), json!([["admin"]]), json!([{ "admin": true }])];
        // One scope for the gateway, and several for a backend that splits `X-Auth-Scope`.
        let listed = [listed, vec![json!(["profile admin"]), json!(["a", "b\tadmin"]), json!(["a "]), json!([""])]];
        let listed = [listed.concat(), vec![json!(["a\"b"]), json!(["é"]), json!("a\tadmin"), json!("a\nb")]].concat();
        [vec![json!(0), json!(true), json!({ "admin": true })], listed].concat()
    };
    rows.extend(claim(world, "scope", no_scope(), false, BadClaims));
    let scp = |value: &Value| world.claims(json!({ "scope": null, "scp": value }));
    rows.extend(each("scp", no_scope(), scp, BadClaims));
    rows
}

/// Invalid NumericDates (RFC 7519 section 2). Some program read each of these as no date, or as one that never comes.
fn dates(world: &World) -> Vec<Row> {
    let now = world.now;
    let none = || {
        vec![
            json!("99999999999"),
            json!(format!("{}", now + 60)),
            json!("never"),
            json!(""),
            json!("2099-01-01T00:00:00Z"),
            json!("0x7fffffff"),
            json!(true),
            json!(false),
            json!([now + 60]),
            json!({ "exp": now + 60 }),
            json!(-1),
            json!(-0.5),
            json!(i64::MIN),
            json!(-1e300),
            json!(253_402_300_800_u64),
            json!(u64::MAX),
            json!(i64::MAX),
            json!(1e18),
            json!(1e300),
            json!(now * 1000),
        ]
    };
    let mut rows = claim(world, "exp", none(), true, BadClaims);
    rows.extend(claim(world, "nbf", none(), false, BadClaims));
    rows.extend(claim(world, "iat", none(), false, BadClaims));
    let raw = |exp: &&str| {
        world.claims_text(format!(
            r#"{{"iss":"https://login.example","aud":"https://api.example","sub":"bob","exp":{exp}}}"#
        ))
    };
    rows.extend(each("exp", vec!["18446744073709551616", "1e19", "253402300800.0", "-1e-3"], raw, BadClaims));
    rows.extend(each("exp", vec!["0", "-0", "-0.0", "1e-300", "1.7e9", "0e99"], raw, Expired));
    rows.extend(each("exp", vec!["253402300799", "253402300799.999", "2.534e11", "4102444800"], raw, LifetimeTooLong));
    rows
}

fn times(world: &World) -> Vec<Row> {
    let now = world.now;
    let with = |changes: &Value| world.claims(changes.clone());
    let at = |time: u64, millis: u64| time as f64 + millis as f64 / 1000.0;
    let expired = vec![
        json!({ "iat": now - 100, "exp": now - 30 }),
        json!({ "iat": now - 100, "exp": at(now - 31, 999) }),
        json!({ "iat": now - 86_431, "exp": now - 31 }),
        json!({ "iat": 0, "exp": 1 }),
        json!({ "exp": now - 30 }),
        json!({ "iat": null, "exp": now - 30 }),
    ];
    let early = vec![
        json!({ "nbf": now + 31 }),
        json!({ "nbf": at(now + 30, 1) }),
        json!({ "iat": now + 31 }),
        json!({ "iat": at(now + 30, 1) }),
        json!({ "iat": now + 599, "nbf": 0 }),
        json!({ "nbf": 253_402_300_799_u64 }),
        json!({ "iat": null, "nbf": now + 500 }),
    ];
    let long = vec![
        json!({ "exp": now + 86_401 }),
        json!({ "exp": at(now + 86_400, 1) }),
        json!({ "iat": null, "exp": now + 86_401 }),
        json!({ "iat": now - 86_000, "exp": now + 401 }),
        json!({ "iat": 0 }),
        json!({ "iat": 1e-9, "exp": now + 1 }),
        json!({ "iat": now - 86_432, "exp": now - 31 }),
    ];
    [
        each("too late", expired, with, Expired),
        each("too early", early, with, NotYetValid),
        each("too long", long, with, LifetimeTooLong),
    ]
    .concat()
}

/// Valid tokens, just inside each boundary of time.
pub(super) fn valid_at_the_boundary(world: &World) -> Vec<String> {
    let now = world.now;
    [
        json!({ "iat": now - 100, "exp": now as f64 - 29.999 }),
        json!({ "nbf": now + 30 }),
        json!({ "iat": now + 30 }),
        json!({ "exp": now + 86_400 }),
        json!({ "iat": null, "exp": now + 86_400 }),
        json!({ "iat": now - 86_000, "exp": now + 400 }),
        json!({ "iat": now - 86_429, "exp": now - 29 }),
        json!({ "nbf": 0 }),
    ]
    .into_iter()
    .map(|changes| world.claims(changes))
    .collect()
}

/// Tokens that name the gateway as their issuer, signed with the key of another issuer.
fn own(world: &World) -> Vec<Row> {
    let sid = "0123456789abcdefghijkl";
    let whole = json!({ "iss": "https://gateway.example", "sid": sid, "rgn": 1, "scope": "token:revoke" });
    let with = |name: &str, value: Value| {
        let mut changes = whole.clone();
        changes[name] = value;
        world.claims(changes)
    };
    let mut rows = vec![
        row("the gateway's name, and all that goes with it", world.claims(whole.clone()), UnknownKey),
        row("the gateway's name and no login", with("sid", Value::Null), BadClaims),
        row("the gateway's name and no generation", with("rgn", Value::Null), BadClaims),
    ];
    let sids =
        vec![json!(1), json!(""), json!("x"), json!([sid]), json!(format!("{sid}x")), json!("../../../../../../etc/")];
    rows.extend(each("sid", sids, |sid| with("sid", sid.clone()), BadClaims));
    let generations = vec![json!("1"), json!(-1), json!(1.5), json!([1]), json!(true)];
    rows.extend(each("rgn", generations, |rgn| with("rgn", rgn.clone()), BadClaims));
    let logins = vec![json!("1"), json!(-1), json!(1.5), json!([1])];
    rows.extend(each("auth_time_ms", logins, |login| with("auth_time_ms", login.clone()), BadClaims));
    let of_other = world.other.with_claims(world.now, json!({ "iss": OTHER, "aud": "https://gateway.example" }));
    rows.push(row("another issuer's token for another audience", of_other, WrongAudience));
    rows
}
