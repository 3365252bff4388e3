//! Values from environment variables, and files from credentials of systemd.

use std::fs;
use std::path::Path;

use bearward::types::secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::bearward_with_variables;

const VARIABLES: [(&str, &str); 10] = [
    ("WORKERS", "3"),
    ("BACKEND", "http://127.0.0.1:3000"),
    ("IDLE", "90s"),
    ("SIZE", "1MiB"),
    ("ON", "true"),
    ("STRATEGY", "least_requests"),
    ("HUSH", "hush-hush"),
    ("EMPTY", ""),
    ("BELOW", "hush-hush/x"),
    ("COOKIE", "cookie:hush-hush SECRET"),
];

fn folder(text: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    folder
}

/// Exit status, and all that was printed.
fn check(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let arguments: Vec<&str> = ["check"].iter().chain(arguments).copied().collect();
    let output = bearward_with_variables(folder, &arguments, variables);
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8")).concat();
    (output.status.code(), text)
}

fn effective(folder: &Path, variables: &[(&str, &str)]) -> Vec<Value> {
    // Warnings are on standard error.
    let output = bearward_with_variables(folder, &["check", "--effective", "--json"], variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    object["settings"].as_array().expect("a list").clone()
}

fn find<'v>(settings: &'v [Value], key: &str) -> &'v Value {
    settings.iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn values_of_every_type_come_from_variables() {
    let text = "workers = { env = \"WORKERS\" }\n[[upstream]]\nservers = [{ env = \"BACKEND\" }]\n\
        idle_timeout = { env = \"IDLE\" }\npreserve_host = { env = \"ON\" }\nbalance.env = \"STRATEGY\"\n\
        max_concurrent_requests = { env = \"NOT_SET\", default = 77 }\n[[route]]\npath = \"/in\"\npublic = true\n\
        login = { env = \"ON\" }\n[limits]\nbody_size = { env = \"SIZE\" }\n";
    let folder = folder(text);
    let settings = effective(folder.path(), &VARIABLES);
    for (key, value, name, line) in [
        ("workers", json!(3), "WORKERS", 1),
        ("upstream[0].idle_timeout", json!("90s"), "IDLE", 4),
        ("upstream[0].preserve_host", json!(true), "ON", 5),
        ("upstream[0].balance", json!("least_requests"), "STRATEGY", 6),
        ("route[0].login", json!(true), "ON", 11),
        ("limits.body_size", json!("1MiB"), "SIZE", 13),
    ] {
        let found = find(&settings, key);
        let origin = json!({ "kind": "environment", "name": name, "file": "gateway.toml", "line": line });
        assert_eq!((&found["value"], &found["origin"]), (&value, &origin), "{key}");
    }
    let servers = find(&settings, "upstream[0].servers");
    assert_eq!(servers["value"], json!(["http://127.0.0.1:3000"]));
    let default = find(&settings, "upstream[0].max_concurrent_requests");
    assert_eq!((&default["value"], &default["origin"]["kind"]), (&json!(77), &json!("file")));
}

/// Each error names the key, its line and the variable, and none shows the text of the variable.
#[test]
fn a_wrong_variable_is_reported_without_its_text() {
    let upstream = "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";
    for (text, place, variable, says) in [
        ("workers = { env = \"NOT_SET\" }\n", "workers", "NOT_SET", "is not set"),
        ("workers = { env = \"HUSH\" }\n", "workers", "HUSH", "wrong type"),
        ("workers = { env = \"EMPTY\" }\n", "workers", "EMPTY", "out of range"),
        ("watch = { env = \"HUSH\" }\n", "watch", "HUSH", "unknown value"),
        ("[[issuer]]\nissuer = \"a\"\njwks_url = { env = \"HUSH\" }\n", "issuer[0].jwks_url", "HUSH", "URL"),
        ("[tokens]\nissuer = { env = \"HUSH\" }\n", "tokens.issuer", "HUSH", "URL"),
        ("[tokens]\naccess_lifetime = { env = \"HUSH\" }\n", "tokens.access_lifetime", "HUSH", "not a duration"),
        ("[limits]\nuri_size = { env = \"HUSH\" }\n", "limits.uri_size", "HUSH", "not a size"),
        ("[forwarding]\ntrusted = [{ env = \"HUSH\" }]\n", "forwarding.trusted[0]", "HUSH", "not a network"),
        ("[forwarding]\ntrusted = [{ env = \"NOT_SET\" }]\n", "forwarding.trusted[0]", "NOT_SET", "is not set"),
        ("[forwarding]\nx_real_ip = { env = \"HUSH\" }\n", "forwarding.x_real_ip", "HUSH", "wrong type"),
        ("[store]\nsqlite = { env = \"BELOW\" }\n", "store.sqlite", "BELOW", "does not exist"),
        ("[access_log]\nfile = { env = \"BELOW\" }\n", "access_log.file", "BELOW", "does not exist"),
        ("[audit]\nfile = { env = \"BELOW\" }\n", "audit.file", "BELOW", "does not exist"),
        (
            "[[route]]\npath = \"/\"\ntoken_from = [{ env = \"COOKIE\" }]\n",
            "route[0].token_from[0]",
            "COOKIE",
            "is not a",
        ),
        ("watch = { env = \"HUSH\", defalt = 1 }\n", "watch", "", "wrong type"),
        ("watch = { env = \"A-B\" }\n", "watch", "", "not the name"),
    ] {
        let folder = folder(&format!("{text}{upstream}"));
        let (status, printed) = check(folder.path(), &["--json"], &VARIABLES);
        assert_eq!(status, Some(2), "{text}{printed}");
        assert!(!printed.contains("hush-hush") && !printed.contains("SECRET"), "{printed}");
        let errors: Vec<Value> = serde_json::from_str(&printed).expect("JSON");
        let error = errors.iter().find(|error| error["key"] == place).unwrap_or_else(|| panic!("{text}{printed}"));
        let message = error["message"].as_str().expect("text");
        assert!(message.contains(says) && message.contains(variable), "{text}{message}");
        assert_eq!(error["line"], text.lines().count(), "{text}{printed}");
        assert!(
            !errors
                .iter()
                .any(|other| other["message"].as_str().expect("text").contains("missing") && other["key"] == place),
            "{printed}"
        );
    }
}

#[test]
fn a_file_can_be_a_credential_of_systemd() {
    let text = "[store]\nsecret_file = { credential = \"root\" }\n[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";
    let (folder, credentials) = (folder(text), TempDir::new().expect("a folder"));
    let passed = credentials.path().to_str().expect("UTF-8");
    let variables = [("CREDENTIALS_DIRECTORY", passed)];

    let (status, printed) = check(folder.path(), &[], &[]);
    assert!(status == Some(2) && printed.contains("LoadCredential=root:FILE"), "{printed}");
    let (status, printed) = check(folder.path(), &[], &variables);
    assert!(status == Some(2) && printed.contains("does not exist (the credential root)"), "{printed}");
    assert!(printed.contains("LoadCredential=root:FILE"), "{printed}");

    let root = credentials.path().join("root");
    secret::write_private(&root, format!("1 {}\n", "0".repeat(43)).as_bytes()).expect("written");
    let settings = effective(folder.path(), &variables);
    let found = find(&settings, "store.secret_file");
    assert_eq!(found["value"], root.to_str().expect("UTF-8"));
    assert_eq!((&found["origin"]["kind"], &found["origin"]["name"]), (&json!("credential"), &json!("root")));

    // The gateway cannot write a credential.
    let before = fs::read(&root).expect("read");
    let output = bearward_with_variables(folder.path(), &["keys", "rotate", "--root"], &variables);
    let printed = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("read-only") && printed.contains("echo \"2 "), "{printed}");
    assert_eq!(fs::read(&root).expect("read"), before);

    for (name, says) in [("../root", "not the name of a credential"), ("", "not the name of a credential")] {
        fs::write(folder.path().join("gateway.toml"), text.replace("\"root\"", &format!("\"{name}\"")))
            .expect("written");
        let (status, printed) = check(folder.path(), &[], &variables);
        assert!(status == Some(2) && printed.contains(says), "{printed}");
    }
    let text = text.replace("[store]", "[tokens]\nissuer = { credential = \"root\" }\n[store]");
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let (status, printed) = check(folder.path(), &[], &variables);
    assert!(status == Some(2) && printed.contains("a credential is a file"), "{printed}");
}

/// A command needs only the socket: the shell of an operator has not the variables of the service.
#[test]
fn a_command_works_without_the_variables_of_the_service() {
    let text = "workers = { env = \"NOT_SET\" }\n[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n";
    let folder = folder(text);
    let output = bearward_with_variables(folder.path(), &["keys", "list"], &[]);
    let printed = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(printed.contains("no gateway listens") && !printed.contains("NOT_SET"), "{printed}");
}
