//! `deploy/gateway.schema.json` is that of the reader, and linters accept and reject what `bearward check` does. To
//! write it after a change: `BEARWARD_WRITE=1 cargo test --test documents config::schema`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bearward::config::{self, Probe};
use tempfile::TempDir;

use super::reference::REFERENCE;
use crate::support::source;

const FILE: &str = "deploy/gateway.schema.json";

/// A configuration that every break below changes.
const BASE: &str = r#"watch = "all"
workers = 2

[[listener]]
address = "127.0.0.1:8443"
tls = "off"
proxy_protocol = false

[[upstream]]
name = "backend"
servers = ["http://127.0.0.1:3000"]
balance = "hash"
hash = "subject"
idle_timeout = "4s"
max_concurrent_requests = 100

[upstream.health_check]
path = "/healthz"
status = ["2xx", "304"]

[tokens]
issuer = "https://auth.example"
audience = ["https://api.example"]
algorithm = "ES256"
access_lifetime = "15m"

[store]
sqlite = "bearward.db"

[[issuer]]
issuer = "https://login.example"
audience = ["https://api.example"]
algorithms = ["ES256"]
jwks_url = "https://login.example/keys"

[[route]]
path = "/"
methods = ["GET"]
scopes = ["orders:read"]
login = false

[[route.claim]]
pointer = "/tenant"
equals = "a"

[[rate]]
per = "subject"
requests = 100

[identity]
subject = "X-Auth-Subject"

[cors]
origins = ["https://app.example"]

[forwarding]
trusted = ["10.0.0.0/8"]

[limits]
body_size = "10MiB"
uri_size = "8KiB"
"#;

/// Parts of [`BASE`], and by what to replace each so that `check` rejects the file.
const BREAKS: [(&str, &str); 36] = [
    ("watch = \"all\"", "watch = \"some\""),
    ("watch = \"all\"", "watch = true"),
    ("workers = 2", "workers = \"2\""),
    ("workers = 2", "workers = 2.5"),
    ("workers = 2", "workers = -1"),
    ("workers = 2", "workers = 1025"),
    ("workers = 2", "wrkers = 2"),
    ("workers = 2", "workers = { env = \"WORKERS\", defalt = 2 }"),
    ("workers = 2", "workers = { env = 2 }"),
    ("address = \"127.0.0.1:8443\"", "address = \"127.0.0.1\""),
    ("address = \"127.0.0.1:8443\"\n", ""),
    ("tls = \"off\"", "tls = \"on\""),
    ("tls = \"off\"", "tls = { certificates = \"a.pem\" }"),
    ("proxy_protocol = false", "proxy_protocol = \"false\""),
    ("[[listener]]", "[listener]"),
    ("servers = [\"http://127.0.0.1:3000\"]", "servers = \"http://127.0.0.1:3000\""),
    ("servers = [\"http://127.0.0.1:3000\"]", "servers = []"),
    ("servers = [\"http://127.0.0.1:3000\"]", "servers = [\"127.0.0.1:3000\"]"),
    ("servers = [\"http://127.0.0.1:3000\"]", "servers = [\"http://127.0.0.1:3000/path\"]"),
    ("hash = \"subject\"", "hash = \"cookie\""),
    ("idle_timeout = \"4s\"", "idle_timeout = 4"),
    ("idle_timeout = \"4s\"", "idle_timeout = \"4\""),
    ("max_concurrent_requests = 100", "max_concurrent_requests = 0"),
    ("path = \"/healthz\"", "path = \"healthz\""),
    ("status = [\"2xx\", \"304\"]", "status = [\"2xx\", 304]"),
    ("algorithm = \"ES256\"", "algorithm = \"none\""),
    ("issuer = \"https://auth.example\"", "issuer = \"auth.example\""),
    ("algorithms = [\"ES256\"]", "algorithms = [\"ES257\"]"),
    ("methods = [\"GET\"]", "methods = [\"get\"]"),
    ("scopes = [\"orders:read\"]", "scopes = [\"orders:read orders:write\"]"),
    ("login = false", "login = \"yes\""),
    ("equals = \"a\"", "equals = [\"a\"]"),
    ("requests = 100", "requests = 0"),
    ("subject = \"X-Auth-Subject\"", "subject = \"X Auth\""),
    ("trusted = [\"10.0.0.0/8\"]", "trusted = [\"example.com\"]"),
    ("body_size = \"10MiB\"", "body_size = 10"),
];

fn linter(name: &str) -> PathBuf {
    let program = source::root().join("target/linters/bin").join(name);
    assert!(program.exists(), "{name} is missing: run tests/run");
    program
}

/// Lints `gateway.toml` in this folder with the schema.
fn lint(folder: &Path) -> [(&'static str, Output); 2] {
    let schema = source::root().join(FILE);
    let settings = format!("toml-version = \"v1.0.0\"\n[[schemas]]\npath = {:?}\ninclude = [\"*.toml\"]\n", schema);
    fs::write(folder.join("tombi.toml"), settings).expect("written");
    let run = |mut command: Command| command.current_dir(folder).output().expect("it runs");
    let mut tombi = Command::new(linter("tombi"));
    tombi.args(["lint", "--offline", "gateway.toml"]);
    let mut taplo = Command::new(linter("taplo"));
    taplo.args(["lint", "--no-auto-config", "--schema", &format!("file://{}", schema.display()), "gateway.toml"]);
    [("tombi", run(tombi)), ("taplo", run(taplo))]
}

#[test]
fn the_schema_is_that_of_the_reader() {
    let expected = format!("{:#}\n", config::schema());
    if std::env::var_os("BEARWARD_WRITE").is_some() {
        fs::write(source::root().join(FILE), &expected).expect("written");
    }
    assert!(
        source::read(FILE) == expected,
        "{FILE} differs: BEARWARD_WRITE=1 cargo test --test documents config::schema"
    );
    for part in [
        "\"minimum\": 1",
        "\"maximum\": 1024",
        "round_robin",
        "Maximum size of a request body.",
        "\"default\": \"64KiB\"",
    ] {
        assert!(expected.contains(part), "{part}");
    }
    let schema = config::schema();
    let of_route = &schema["properties"]["route"]["items"]["properties"]["cors"]["properties"];
    let defaults = of_route.as_object().expect("keys").values().filter(|key| key.get("default").is_some());
    assert_eq!(defaults.count(), 0, "they are those of [cors]: {of_route:#?}");
    // Every key has a description: the comment of the reference.
    let limits = schema["properties"]["limits"]["properties"].as_object().expect("keys");
    assert!(limits.len() > 20 && limits.values().all(|key| key["description"].is_string()), "{limits:#?}");
}

#[test]
fn linters_accept_every_complete_configuration() {
    let folder = TempDir::new().expect("a folder");
    let examples = crate::support::files::names(&source::root().join("deploy/examples"));
    let examples = examples.iter().map(|name| source::read(format!("deploy/examples/{name}")));
    let outside = "workers = { env = \"WORKERS\", default = 2 }\n[store]\nsecret_file = { credential = \"root\" }\n\
        [[upstream]]\nservers = [{ env = \"BACKEND\" }]\n[tokens]\nissuer = \"HTTPS://a.example\"\n";
    let texts = [REFERENCE, BASE, outside].map(str::to_owned).into_iter().chain([super::reference::uncommented()]);
    for text in texts.chain(examples) {
        fs::write(folder.path().join("gateway.toml"), &text).expect("written");
        for (linter, output) in lint(folder.path()) {
            assert!(output.status.success(), "{linter}: {text}\n{output:?}");
        }
    }
}

#[test]
fn linters_reject_what_check_rejects() {
    let folder = TempDir::new().expect("a folder");
    let parse = |text: &str| config::parse(text, folder.path(), Probe::None);
    parse(BASE).unwrap_or_else(|errors| panic!("{errors}"));
    for (part, broken) in BREAKS {
        assert!(BASE.contains(part), "{part}");
        let text = BASE.replacen(part, broken, 1);
        assert!(parse(&text).is_err(), "check accepts {broken}");
        fs::write(folder.path().join("gateway.toml"), &text).expect("written");
        for (linter, output) in lint(folder.path()) {
            assert!(!output.status.success(), "{linter} accepts {broken}");
        }
    }
}
