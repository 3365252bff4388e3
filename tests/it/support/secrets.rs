//! The tokens of a story, which must be found nowhere but in the answers that carried them.
//!
//! Whatever the stories mint or are given is remembered for the whole run, and each gateway's output is searched for all of
//! it when the gateway ends: access log, audit events, metrics, and what was traced.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, Once};

use serde_json::Value;
use tracing_subscriber::EnvFilter;

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

/// What makes each token of this run worth stealing.
static MINTED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// Everything that was traced in this process.
static TRACED: Mutex<String> = Mutex::new(String::new());

/// No signature and no MAC is shorter.
const SHORTEST: usize = 43;

pub fn remember(token: &str) {
    let between = if token.contains('.') { '.' } else { '_' };
    if let Some((_, secret)) = token.rsplit_once(between).filter(|(_, secret)| secret.len() >= SHORTEST) {
        MINTED.lock().expect("unpoisoned").get_or_insert_default().insert(secret.to_owned());
    }
}

/// Remembers the tokens of an answer, if it has any.
pub fn remember_all(body: &[u8]) {
    let Ok(text) = str::from_utf8(body) else { return };
    let Some(answer) = Some(text).filter(|text| text.contains("Token")).and_then(|text| text.parse::<Value>().ok())
    else {
        return;
    };
    for token in ["accessToken", "refreshToken"].into_iter().filter_map(|member| answer[member].as_str()) {
        remember(token);
    }
}

/// A token that was remembered and is in `text`.
pub fn found_in(text: &str) -> Option<String> {
    let minted = MINTED.lock().expect("unpoisoned");
    let minted = minted.as_ref()?;
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let long = words.filter(|word| word.len() >= SHORTEST);
    // A signature is a word; in a refresh token, the secret is what follows the last underscore.
    let parts = long.flat_map(|word| [Some(word), word.rsplit_once('_').map(|(_, secret)| secret)]);
    parts.flatten().find(|part| minted.contains(*part)).map(str::to_owned)
}

/// Where in these outputs of a gateway a token is; `None` if in none.
pub fn leak(folder: &Path, outputs: &[(&str, String)]) -> Option<String> {
    let read = |name| (name, std::fs::read_to_string(folder.join(name)).unwrap_or_default());
    let files = [read("access.log"), read("audit.jsonl")];
    let mut places = files.iter().chain(outputs);
    places.find_map(|(place, text)| found_in(text).map(|secret| format!("a token is in {place}: …{secret} in\n{text}")))
}

/// Begins to keep what is traced. Answers where this caller's part begins.
pub fn capture_traces() -> usize {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_env_filter(EnvFilter::new("bearward=trace,debug"));
        subscriber.with_ansi(false).with_writer(|| Traces).init();
    });
    TRACED.lock().expect("unpoisoned").len()
}

pub fn traced_since(begin: usize) -> String {
    TRACED.lock().expect("unpoisoned")[begin..].to_owned()
}

struct Traces;

impl Write for Traces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TRACED.lock().expect("unpoisoned").push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_token_is_found_wherever_it_is_and_what_names_a_login_is_none() {
    let refresh = format!("bwr1_{}_{}", "0".repeat(22), "Ab1".repeat(20) + "xy");
    let access = format!("eyJh.eyJp.{}", "aB-_9".repeat(17));
    for token in [&refresh, &access] {
        remember(token);
        for text in [format!("x={token}&y"), format!("{{\"a\":\"{token}\"}}"), secret_part(token).to_owned()] {
            assert_eq!(found_in(&text).as_deref(), Some(secret_part(token)), "{text}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(leak(folder.path(), &[("a trace", "nothing".into())]), None);
    for (name, outputs) in
        [("access.log", vec![]), ("audit.jsonl", vec![]), ("a trace", vec![("a trace", access.clone())])]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("{{\"path\":\"/{refresh}\"}}\n")).expect("written");
        let leak = leak(folder.path(), &outputs).unwrap_or_else(|| panic!("not found in {name}"));
        assert!(leak.contains(name), "{leak}");
        std::fs::remove_file(file).expect("removed");
    }
    assert_eq!(found_in(&format!("token_id={} {}", "0".repeat(22), "e".repeat(62))), None);
}
