//! The configuration in force: every key has its value and its origin.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bearward::config::{self, Probe, Setting, ValueSource};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::reference::{Line, REFERENCE, lines};
use crate::support::program::bearward;

fn settings(text: &str) -> BTreeMap<String, Setting> {
    let config = config::parse(text, Path::new(""), Probe::None).unwrap_or_else(|errors| panic!("{text}\n{errors}"));
    config.values.all().iter().map(|setting| (setting.key.clone(), setting.clone())).collect()
}

/// A duration in milliseconds: "60s" is "1m".
fn plain(value: &Value) -> Value {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let text = value.as_str().unwrap_or_default();
    let number = |unit: &str| text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    let millis = units.into_iter().find_map(|(unit, millis)| Some(number(unit)? * millis));
    millis.map_or_else(|| value.clone(), Value::from)
}

/// Each key with a default in the reference has this default, and each active one its line.
#[test]
fn every_key_of_the_reference_has_its_value_and_origin() {
    let found = settings(REFERENCE);
    // `None`: below the header of an example.
    let mut table = Some(String::new());
    let mut checked = 0;
    for (number, line) in lines().enumerate() {
        let (is_default, text) = match line {
            Line::Default(text) => (true, text),
            Line::Active(text) => (false, text),
            Line::Example(text) if text.starts_with('[') => {
                table = None;
                continue;
            }
            Line::Example(_) | Line::Prose => continue,
        };
        if text.starts_with('[') {
            let list = if text.starts_with("[[") { "[0]." } else { "." };
            let name = text.trim_matches(['[', ']']).replace("upstream.", "upstream[0].");
            table = Some(format!("{name}{list}"));
            continue;
        }
        let table = table.as_deref().expect("a default is in a table with defaults");
        let (name, expected) = text.parse::<toml::Table>().expect(text).into_iter().next().expect("a key");
        let setting = found.get(&format!("{table}{name}")).unwrap_or_else(|| panic!("{table}{name} has no value"));
        assert_eq!(setting.value.as_ref().map(plain), Some(plain(&json!(expected))), "{}", setting.key);
        let source = if is_default {
            ValueSource::Default
        } else {
            ValueSource::File { file: "gateway.toml".into(), line: number + 1 }
        };
        assert_eq!(*setting.source(), source, "{}", setting.key);
        checked += 1;
    }
    assert!(checked > 120, "only {checked} keys were found");
}

/// One of each table that is read only if the file has it.
const ALL_TABLES: &str = r#"
listener = [{ address = "127.0.0.1:0", tls = { certificate = "a.pem", key = "a.key" } }]
issuer = [{ issuer = "https://login.example", audience = "any", algorithms = ["ES256"], jwks_file = "keys.json" }]
provider = [{ name = "login", issuer = "https://login.example", client_id = "a", client_auth = "none" }]
event_stream = [{ name = "a", issuer = "https://a.example", audience = "a", path = "/a", authorization_file = "authorization" }]
rate = [{ per = "address", requests = 7 }]
identity = { claim = [{ pointer = "/tenant", header = "X-Auth-Tenant" }] }
admin = { tls = { certificate = "a.pem", key = "a.key" }, operator = [{ name = "alice", token_file = "admin.token" }] }
[[oauth.resource_server]]
client_id = "orders"
secret_file = "admin.token"
[[oauth.client]]
client_id = "ci"
jwks_file = "keys.json"
algorithms = ["ES256"]
[[oauth.scope]]
name = "notes:read"
claim = { pointer = "/groups", present = true }
[[token_exchange]]
name = "orders"
token_endpoint = "https://login.example/token"
client_id = "gateway"
client_secret_file = "admin.token"
audience = ["https://orders.internal"]
[[oauth.exchange]]
issuer = "https://login.example"
clients = ["ci"]
audience = ["a"]
subject_prefix = ""
claim = [{ pointer = "/tenant", present = true }]
[oauth]
token_endpoint = "/t"
introspection_endpoint = "/i"
[[upstream]]
servers = ["http://127.0.0.1:3000"]
health_check = { path = "/healthz" }
[[route]]
path = "/"
claim = [{ pointer = "/tenant", present = true }]
rate = [{ per = "subject", requests = 8 }]
"#;

#[test]
fn every_key_has_a_value_and_the_default_of_its_comment() {
    let folder = super::secrets::folder();
    let config = config::parse(ALL_TABLES, folder.path(), Probe::None).unwrap_or_else(|errors| panic!("{errors}"));
    let found: BTreeMap<String, &Setting> =
        config.values.all().iter().map(|setting| (super::reference::without_indexes(&setting.key), setting)).collect();
    let keys = config::keys();
    let is_table = |key: &str| keys.iter().any(|other| other.strip_prefix(key).is_some_and(is_inside));
    let leaves: BTreeSet<&String> = keys.iter().filter(|key| !is_table(key)).collect();
    assert!(leaves.len() > 200, "{}", leaves.len());
    assert_eq!(found.keys().collect::<BTreeSet<_>>(), leaves);

    // Keys in these tables have no default that the other test finds: their lines are examples.
    let mut checked = 0;
    for comment in super::reference::comments() {
        let Some((_, default)) = comment.text.split_once("Default: ") else { continue };
        let default = default.split(". ").next().unwrap_or_default().trim_end().trim_end_matches('.');
        let default = default.split(';').next().unwrap_or_default();
        let Ok(value) = format!("value = {default}").parse::<toml::Table>() else { continue };
        let setting = found.get(&comment.key).unwrap_or_else(|| panic!("{} is not there", comment.key));
        if *setting.source() == ValueSource::Default {
            assert_eq!(setting.value.as_ref().map(plain), Some(plain(&json!(value["value"]))), "{}", comment.key);
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} defaults were found");
}

fn is_inside(rest: &str) -> bool {
    rest.starts_with('.') || rest.starts_with("[]")
}

/// The values of `check --effective --json`.
fn effective(folder: &Path) -> Vec<Value> {
    let output = bearward(folder, &["check", "--effective", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    object["settings"].as_array().expect("a list").clone()
}

fn find<'v>(settings: &'v [Value], key: &str) -> &'v Value {
    settings.iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("no {key} in {settings:?}"))
}

#[test]
fn check_shows_each_value_with_its_origin() {
    let folder = TempDir::new().expect("a folder");
    let text = "workers = 3\n[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\nidle_timeout = \"90s\"\n[limits]\n\
        uri_size = \"1024B\"\n[audit]\nwebhook = \"https://collector.example/x?token=hush\"\n\
        [[issuer]]\njwks_url = \"https://login.example/keys?api_key=hush\"\nissuer = \"https://login.example\"\n\
        audience = [\"a\"]\nalgorithms = [\"ES256\"]\n";
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let settings = effective(folder.path());
    let of_file = |line: u32| json!({ "kind": "file", "file": "gateway.toml", "line": line });
    for (key, value, origin, reloadable) in [
        ("issuer[0].jwks_url", json!("https://login.example/keys?…"), of_file(10), true),
        ("workers", json!(3), of_file(1), false),
        ("upstream[0].servers", json!(["http://127.0.0.1:1"]), of_file(3), true),
        ("upstream[0].idle_timeout", json!("90s"), of_file(4), true),
        ("limits.uri_size", json!("1KiB"), of_file(6), true),
        ("audit.webhook", json!("https://collector.example/x?…"), of_file(8), false),
        ("limits.body_size", json!("unlimited"), json!({ "kind": "default" }), true),
        ("listener[0].address", json!("0.0.0.0:8443"), json!({ "kind": "default" }), false),
        ("route[0].path", json!("/"), json!({ "kind": "default" }), true),
        ("route[0].upstream", json!("backend"), json!({ "kind": "default" }), true),
    ] {
        let expected = json!({ "key": key, "value": value, "origin": origin, "reloadable": reloadable });
        assert_eq!(find(&settings, key), &expected);
    }
    assert_eq!(find(&settings, "tokens.signing_key_file").get("value"), None);

    let output = bearward(folder.path(), &["check", "--effective"]);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && !shown.contains("hush"), "{shown}");
    let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        "workers = 3 # gateway.toml:1",
        "watch = \"certificates\" # default",
        "# tokens.signing_key_file is not set # default",
    ] {
        assert!(words.contains(&line.split(' ').collect()), "{line:?} is not in\n{shown}");
    }

    fs::write(folder.path().join("gateway.toml"), "wrkers = 3").expect("written");
    let output = bearward(folder.path(), &["check", "--effective"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}
