//! Access tokens of another issuer, which the bench signs before the clock starts.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bearward::types::clock::{Clock, SystemClock};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::json;

use crate::Outcome;

pub const ISSUER: &str = "https://login.example";
pub const SECRET: &str = "not-a-secret-at-all-but-long-enough-for-one";

/// The `jti` of the token of this number.
pub fn id(number: usize) -> String {
    format!("token-{number}")
}

/// The number of the token with this `jti`.
pub fn number(id: &str) -> Outcome<usize> {
    Ok(id.strip_prefix("token-").ok_or("an entry of another token")?.parse()?)
}

pub fn sign(count: usize) -> Outcome<Vec<String>> {
    let (key, now) = (EncodingKey::from_secret(SECRET.as_bytes()), SystemClock.now().as_secs());
    let header = URL_SAFE_NO_PAD.encode(json!({ "typ": "at+jwt", "alg": "HS256" }).to_string());
    let sign = |number| {
        let claims = json!({
            "iss": ISSUER, "sub": "bob", "aud": "https://api.example", "iat": now, "exp": now + 3600, "jti": id(number)
        });
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256)?;
        Ok(format!("{message}.{signature}"))
    };
    (0..count).map(sign).collect()
}
