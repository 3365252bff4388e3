//! Checks that no token leaks. Tokens may be in responses only.
//!
//! All tokens that tests sign or receive are remembered for the whole run. When a gateway stops, its access log, audit
//! log, metrics and log messages are searched for all of them.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, Once};

use serde_json::Value;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use super::TestResponse;

/// The members of responses that are tokens.
const MEMBERS: [&str; 3] = ["accessToken", "refreshToken", "apiKey"];

#[derive(Default)]
pub struct Secrets(Mutex<Vec<String>>);

impl Secrets {
    /// Remembers the tokens of a response, if it has any.
    pub fn note(&self, response: &TestResponse) {
        if let Ok(body) = serde_json::from_slice(&response.body) {
            self.note_json(&body);
        }
    }

    pub fn note_json(&self, body: &Value) {
        for member in MEMBERS {
            if let Some(token) = body[member].as_str() {
                self.0.lock().expect("unpoisoned").push(secret_part(token).to_owned());
            }
        }
    }

    /// Asserts that no remembered token is in `text`.
    #[track_caller]
    pub fn assert_absent_from(&self, place: &str, text: &str) {
        let secrets = self.0.lock().expect("unpoisoned");
        assert!(!secrets.is_empty(), "no token was remembered, so there is nothing to search for");
        for secret in secrets.iter() {
            assert!(!text.contains(secret), "a token is in {place}: …{secret} in\n{text}");
        }
    }
}

/// The part of a token that an attacker needs: the signature of an access token, or what follows the token id in a
/// refresh token or in an API key.
pub fn secret_part(token: &str) -> &str {
    let separator = if token.contains('.') { '.' } else { '_' };
    let (_, secret) = token.rsplit_once(separator).expect("a token has segments");
    assert!(secret.len() >= 49, "{token}");
    secret
}

/// The secret parts of all tokens of this run.
static REMEMBERED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

/// All log messages of this process, also those below the default level.
static LOGGED: Mutex<String> = Mutex::new(String::new());

/// Minimum length of a signature or MAC in base64url.
const MIN_SECRET: usize = 43;

pub fn remember(token: &str) {
    let separator = if token.contains('.') { '.' } else { '_' };
    if let Some((_, secret)) = token.rsplit_once(separator).filter(|(_, secret)| secret.len() >= MIN_SECRET) {
        REMEMBERED.lock().expect("unpoisoned").get_or_insert_default().insert(secret.to_owned());
    }
}

/// Remembers the tokens of a response body, if it has any.
pub fn remember_all(body: &[u8]) {
    let Ok(text) = str::from_utf8(body) else { return };
    let Some(body) = Some(text)
        .filter(|text| text.contains("Token") || text.contains("apiKey"))
        .and_then(|text| text.parse::<Value>().ok())
    else {
        return;
    };
    for token in MEMBERS.into_iter().filter_map(|member| body[member].as_str()) {
        remember(token);
    }
}

/// Returns the secret part of a remembered token that is in `text`.
pub fn found_in(text: &str) -> Option<String> {
    let remembered = REMEMBERED.lock().expect("unpoisoned");
    let remembered = remembered.as_ref()?;
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let long = words.filter(|word| word.len() >= MIN_SECRET);
    // A signature is a whole word. The secret part of a refresh token follows its last underscore.
    let parts = long.flat_map(|word| [Some(word), word.rsplit_once('_').map(|(_, secret)| secret)]);
    parts.flatten().find(|part| remembered.contains(*part)).map(str::to_owned)
}

/// Searches the outputs of a gateway for tokens. Returns a message if one of them has a token.
pub fn leak(folder: &Path, outputs: &[(&str, String)]) -> Option<String> {
    let read = |name| (name, std::fs::read_to_string(folder.join(name)).unwrap_or_default());
    let files = [read("access.log"), read("audit.jsonl")];
    let mut places = files.iter().chain(outputs);
    places.find_map(|(place, text)| found_in(text).map(|secret| format!("a token is in {place}: …{secret} in\n{text}")))
}

/// Records log messages from now on. Returns where those of this caller start.
pub fn capture_log() -> usize {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let levels = Targets::new().with_default(Level::DEBUG).with_target("bearward", Level::TRACE);
        let lines = fmt::layer().with_ansi(false).with_writer(|| Recorder);
        registry().with(lines.with_filter(levels)).init();
    });
    LOGGED.lock().expect("unpoisoned").len()
}

pub fn logged_since(start: usize) -> String {
    LOGGED.lock().expect("unpoisoned")[start..].to_owned()
}

struct Recorder;

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().expect("unpoisoned").push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_leaked_token_is_found_and_a_token_id_is_no_leak() {
    let refresh = format!("bwr1_{}_{}", "0".repeat(22), "Ab1".repeat(20) + "xy");
    let access = format!("eyJh.eyJp.{}", "aB-_9".repeat(17));
    for token in [&refresh, &access] {
        remember(token);
        for text in [format!("x={token}&y"), format!("{{\"a\":\"{token}\"}}"), secret_part(token).to_owned()] {
            assert_eq!(found_in(&text).as_deref(), Some(secret_part(token)), "{text}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(leak(folder.path(), &[("a log message", "nothing".into())]), None);
    for (name, outputs) in
        [("access.log", vec![]), ("audit.jsonl", vec![]), ("a log message", vec![("a log message", access.clone())])]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("{{\"path\":\"/{refresh}\"}}\n")).expect("written");
        let leak = leak(folder.path(), &outputs).unwrap_or_else(|| panic!("not found in {name}"));
        assert!(leak.contains(name), "{leak}");
        std::fs::remove_file(file).expect("removed");
    }
    assert_eq!(found_in(&format!("token_id={} {}", "0".repeat(22), "e".repeat(62))), None);
}
