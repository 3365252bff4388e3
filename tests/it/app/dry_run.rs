//! `bearward reload --dry-run` and `GET /admin/v1/config` say what a reload does.

use std::fs;
use std::path::Path;

use bearward::tokens::jwt::Algorithm;
use bearward::types::secret;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{GatewayProcess, bearward};
use crate::support::tokens::Mint;
use crate::support::{Gateway, Upstream};

/// A gateway on a folder, and its file.
struct Served {
    folder: TempDir,
    gateway: GatewayProcess,
    upstream: Upstream,
}

impl Served {
    /// `more`: the end of the file.
    fn start(more: &str) -> Served {
        let (folder, upstream) = (TempDir::new().expect("a folder"), Upstream::start());
        certificate(folder.path());
        secret::write_private(&folder.path().join("orders.secret"), "a".repeat(40).as_bytes()).expect("written");
        fs::write(folder.path().join("gateway.toml"), text(&upstream, more)).expect("written");
        let gateway = GatewayProcess::start(folder.path());
        Served { folder, gateway, upstream }
    }

    fn write(&self, more: &str) {
        fs::write(self.folder.path().join("gateway.toml"), text(&self.upstream, more)).expect("written");
    }

    /// What the command prints, and its exit status.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = bearward(self.folder.path(), arguments);
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8")).concat();
        (output.status.code(), text)
    }

    fn dry_run(&self) -> String {
        self.run(&["reload", "--dry-run"]).1
    }

    fn reload(&self) -> String {
        self.run(&["reload"]).1
    }
}

fn text(upstream: &Upstream, more: &str) -> String {
    // The settings of the whole file come before the first table.
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    format!("watch = \"off\"\n{text}")
}

fn certificate(folder: &Path) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["a.example".to_owned()]).expect("made");
    for (name, content) in [("a.pem", cert.pem()), ("a.key", signing_key.serialize_pem())] {
        let _ = fs::remove_file(folder.join(name));
        secret::write_private(&folder.join(name), content.as_bytes()).expect("written");
    }
}

const FILES: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = { certificate = \"a.pem\", key = \"a.key\" }\n";

const OPERATOR: &str = "[[admin.operator]]\nname = \"ann\"\ntoken_file = \"orders.secret\"\n";

#[tokio::test]
async fn another_kind_of_certificate_needs_no_restart() {
    let served = Served::start(FILES);
    served.write(&FILES.replace("{ certificate = \"a.pem\", key = \"a.key\" }", "\"self-signed\""));
    let shown = served.dry_run();
    assert!(
        shown.contains("listener[2].tls (127.0.0.1:0): not set -> \"self-signed\"") && !shown.contains("restart"),
        "{shown}"
    );
    assert_eq!(served.reload(), "reloaded; changed: listener\n");
    let settings = served.gateway.admin_client().get("/admin/v1/config").await.json();
    let settings = settings["settings"].as_array().expect("a list");
    let tls = settings.iter().find(|setting| setting["key"] == "listener[2].tls").expect("a setting");
    assert_eq!((&tls["value"], &tls["reloadable"]), (&"self-signed".into(), &true.into()));
    assert!(settings.iter().all(|setting| setting.get("pending").is_none()), "{settings:?}");

    served.write(&FILES.replace("{ certificate = \"a.pem\", key = \"a.key\" }", "\"off\""));
    let shown = served.dry_run();
    assert!(shown.starts_with("a restart would change:") && !shown.contains("a reload"), "{shown}");
    assert!(served.reload().contains("require a restart: listener"));
}

#[test]
fn a_table_that_waits_for_a_restart_is_not_in_force() {
    let served = Served::start("");
    served.write(FILES);
    assert!(served.reload().contains("require a restart: listener"));
    let shown = served.dry_run();
    assert_eq!(shown, "a restart would change:\n  listener[2] (127.0.0.1:0): added\n");
    served.write("");
    assert_eq!(served.dry_run(), "no changes\n");
}

#[test]
fn new_content_of_a_file_that_a_start_reads_requires_a_restart() {
    let served = Served::start(OPERATOR);
    let file = served.folder.path().join("orders.secret");
    fs::remove_file(&file).expect("removed");
    secret::write_private(&file, "b".repeat(40).as_bytes()).expect("written");
    let shown = served.dry_run();
    assert_eq!(shown, "a restart would change:\n  admin: new content of a file\n");
    assert_eq!(served.reload(), "reloaded; no changes\nchanges that require a restart: admin\n");
}

#[test]
fn a_new_order_and_new_content_of_files_are_changes() {
    let servers = "[oauth]\nintrospection_endpoint = \"/i\"\n[[oauth.resource_server]]\nclient_id = \"orders\"\n\
        secret_file = \"orders.secret\"\n";
    let route = |path: &str| format!("[[route]]\npath = \"/{path}/\"\n");
    let more = |first, second| format!("{FILES}{}{}{servers}", route(first), route(second));
    let served = Served::start(&more("a", "b"));
    assert_eq!(served.dry_run(), "no changes\n");
    assert_eq!(served.reload(), "reloaded; no changes\n");

    served.write(&more("b", "a"));
    assert_eq!(served.dry_run(), "a reload would change:\n  route: reordered\n");
    assert_eq!(served.reload(), "reloaded; changed: route\n");

    let secret = served.folder.path().join("orders.secret");
    fs::remove_file(&secret).expect("removed");
    secret::write_private(&secret, "b".repeat(40).as_bytes()).expect("written");
    let line = "oauth.resource_server[0].secret_file: new content of a file";
    assert_eq!(served.dry_run(), format!("a reload would change:\n  {line}\n"));
    assert_eq!(served.reload(), "reloaded; changed: oauth\n");

    certificate(served.folder.path());
    assert_eq!(served.dry_run(), "a reload would change:\n  listener[2].tls: new content of a file\n");
    assert_eq!(served.reload(), "reloaded; changed: listener\n");
    assert_eq!(served.dry_run(), "no changes\n");
}

#[test]
fn a_longer_lifetime_than_at_the_start_is_found_in_the_file() {
    let served = Served::start("");
    let keys = Mint::new(Algorithm::ES256).jwks();
    fs::write(served.folder.path().join("login.json"), keys).expect("written");
    let issuer = "[[issuer]]\nissuer = \"https://login.example\"\naudience = [\"a\"]\njwks_file = \"login.json\"\n\
        algorithms = [\"ES256\"]\n";
    served.write(&format!("{issuer}max_lifetime = \"1h\"\n"));
    let file = fs::read_to_string(served.folder.path().join("gateway.toml")).expect("read");
    let line = file.lines().count();
    for arguments in [&["reload"][..], &["reload", "--dry-run"]] {
        let (status, shown) = served.run(arguments);
        let place = format!("gateway.toml:{line}:16");
        assert_eq!(status, Some(2), "{shown}");
        assert!(shown.contains("issuer[0].max_lifetime") && shown.contains(&place), "{shown}");
        assert!(shown.contains("at most \"875s\"") && shown.contains("restart the gateway"), "{shown}");
    }
    // The default is too long as well. The place is the header.
    served.write(issuer);
    let (status, shown) = served.run(&["reload", "--dry-run"]);
    assert!(status == Some(2) && shown.contains(&format!("gateway.toml:{}:1", line - 5)), "{shown}");
    served.write(&format!("{issuer}max_lifetime = \"10m\"\n"));
    assert_eq!(served.run(&["reload"]).0, Some(0));
}

/// The lines of the report are those of `check`, with their indentation.
#[test]
fn a_rejected_file_is_shown_as_check_shows_it() {
    let served = Served::start("");
    served.write("[[route]]\npath = \"/a\"\nmethods = [\n    \"GET\",\n    7,\n]\nupstraem = \"x\"\n");
    let (status, checked) = served.run(&["check"]);
    assert!(status == Some(2) && checked.contains("\n   |") && checked.contains(" --> gateway.toml:"), "{checked}");
    for arguments in [&["reload"][..], &["reload", "--dry-run"]] {
        let (status, shown) = served.run(arguments);
        let report = shown.strip_prefix("error: not reloaded; the current settings stay active\n");
        assert_eq!((status, report), (Some(2), Some(checked.as_str())), "{shown}");
    }
}

/// `store.sqlite` decides where the gateway listens for commands, from its next start on.
#[test]
fn a_command_finds_the_gateway_after_its_database_was_renamed() {
    let served = Served::start("");
    served.write("[store]\nsqlite = \"other.db\"\n");
    let file = fs::read_to_string(served.folder.path().join("gateway.toml")).expect("read");
    let line = file.lines().position(|line| line.starts_with("sqlite")).expect("a line") + 1;
    let note = "note: the gateway listens at ";
    for (arguments, says) in [
        (&["reload", "--dry-run"][..], "a restart would change:\n".to_owned()),
        (&["reload"], format!("store.sqlite (gateway.toml:{line})")),
        (&["keys", "list"], "active".to_owned()),
        (&["top", "--once"], String::new()),
    ] {
        let (status, shown) = served.run(arguments);
        assert_eq!(status, Some(0), "{arguments:?}: {shown}");
        assert!(shown.contains(&says) && shown.contains(note), "{arguments:?}: {shown}");
        assert!(shown.contains("bearward.db.admin") && shown.contains("other.db.admin"), "{shown}");
    }
    // A gateway of another file is not called.
    let other = TempDir::new().expect("a folder");
    fs::write(other.path().join("gateway.toml"), text(&served.upstream, "")).expect("written");
    let output = bearward(other.path(), &["reload"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("no gateway listens"), "{message}");
    assert!(message.contains("After a change of admin.socket or [store]"), "{message}");
}

fn find<'v>(settings: &'v [Value], key: &str) -> &'v Value {
    settings.iter().find(|setting| setting["key"] == key).unwrap_or_else(|| panic!("no {key} in {settings:?}"))
}

#[tokio::test]
async fn a_running_gateway_shows_what_is_in_force_after_a_reload() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gateway.toml");
    let text = Gateway::config_text(&upstream.address.to_string(), "[[rate]]\nper = \"address\"\nrequests = 5000\n");
    fs::write(&file, &text).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    let admin = served.admin_client();
    let in_force = async || admin.get("/admin/v1/config").await.json()["settings"].as_array().expect("a list").clone();
    let before = in_force().await;
    assert_eq!(find(&before, "rate[0].requests")["value"], 5000);
    assert!(before.iter().all(|setting| setting.get("pending").is_none()));

    let changed = format!("{}[timeouts]\nstore = \"7s\"\n", text.replace("5000", "6000"));
    fs::write(&file, &changed).expect("written");
    assert_eq!(admin.post("/admin/v1/reload", &json!({})).await.status, 200);
    let after = in_force().await;
    assert_eq!(find(&after, "rate[0].requests")["value"], 6000);
    let timeout = find(&after, "timeouts.store");
    assert_eq!((&timeout["value"], &timeout["pending"]["value"]), (&json!("5s"), &json!("7s")));
    assert_eq!(timeout["pending"]["origin"]["kind"], "file");

    let next = changed.replace("6000", "7000").replace("7s", "5s").replace("name = \"backend\"", "name = \"other\"");
    let next = format!("{}[[route]]\npath = \"/new/\"\n", next.replace("workers = 2", "workers = 7"));
    fs::write(&file, &next).expect("written");
    let dry = admin.post("/admin/v1/reload?dryRun=true", &json!({})).await.json();
    let changes = dry["changes"].as_array().expect("a list");
    let row = |key: &str| changes.iter().find(|change| change["key"] == key).unwrap_or_else(|| panic!("{key}: {dry}"));
    let rate = json!({ "key": "rate[0].requests", "change": "changed", "from": 6000, "to": 7000,
        "item": "address (address)", "place": "gateway.toml:28", "requiresRestart": false });
    assert_eq!(row("rate[0].requests"), &rate);
    assert_eq!((&row("workers")["to"], &row("workers")["requiresRestart"]), (&json!(7), &json!(true)));
    let routes: Vec<_> = changes.iter().filter(|change| change["key"] == "route[0]").collect();
    let kinds: Vec<_> = routes.iter().map(|change| (&change["change"], &change["item"])).collect();
    assert_eq!(kinds, [(&json!("added"), &json!("/new/")), (&json!("removed"), &json!("/"))]);
    let upstreams: Vec<_> = changes.iter().filter(|change| change["key"] == "upstream[0]").collect();
    let kinds: Vec<_> = upstreams.iter().map(|change| (&change["change"], &change["item"])).collect();
    assert_eq!(kinds, [(&json!("added"), &json!("other")), (&json!("removed"), &json!("backend"))]);
    assert!(dry["requiresRestart"].as_array().expect("a list").contains(&json!("workers")), "{dry}");
    assert!(!changes.iter().any(|change| change["key"] == "timeouts.store"), "it is in force: {dry}");
    assert_eq!(in_force().await, after, "a dry run changes nothing");
    let path = folder.path().to_owned();
    let shown = tokio::task::spawn_blocking(move || bearward(&path, &["reload", "--dry-run"])).await.expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    for line in [
        "a reload would change:",
        "  rate[0].requests (address (address)): 6000 -> 7000",
        "  upstream[0] (other): added",
        "a restart would change:",
        "  workers: 2 -> 7",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in\n{shown}");
    }

    fs::write(&file, "nonsense").expect("written");
    assert_eq!(admin.post("/admin/v1/reload?dryRun=true", &json!({})).await.status, 422);
    assert_eq!(admin.post("/admin/v1/reload?dryRun=1", &json!({})).await.status, 400);
    assert_eq!(admin.post("/admin/v1/reload", &json!({})).await.status, 422);
    assert_eq!(in_force().await, after, "an invalid file changes nothing");
}
