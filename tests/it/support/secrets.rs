//! The tokens of a story, which must be found nowhere but in the answers that carried them.

use std::sync::Mutex;

use serde_json::Value;

use super::Answer;

#[derive(Default)]
pub struct Secrets(Mutex<Vec<String>>);

impl Secrets {
    /// Remembers the tokens of an answer, if it has any.
    pub fn note(&self, answer: &Answer) {
        if let Ok(body) = serde_json::from_slice(&answer.body) {
            self.note_json(&body);
        }
    }

    pub fn note_json(&self, answer: &Value) {
        for member in ["accessToken", "refreshToken"] {
            if let Some(token) = answer[member].as_str() {
                self.0.lock().expect("unpoisoned").push(secret_part(token).to_owned());
            }
        }
    }

    /// Asserts that none of them is in `text`.
    #[track_caller]
    pub fn assert_absent_from(&self, place: &str, text: &str) {
        let secrets = self.0.lock().expect("unpoisoned");
        assert!(!secrets.is_empty(), "no token was noted: there was nothing to look for");
        for secret in secrets.iter() {
            assert!(!text.contains(secret), "a token is in {place}: …{secret} in\n{text}");
        }
    }
}

/// What makes a token worth stealing: the signature of an access token, all that follows the token id in a refresh token.
pub fn secret_part(token: &str) -> &str {
    let between = if token.contains('.') { '.' } else { '_' };
    let (_, secret) = token.rsplit_once(between).expect("a token has segments");
    assert!(secret.len() >= 62, "{token}");
    secret
}
