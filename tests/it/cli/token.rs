//! `bearward token issue|list|revoke`, beside a running gateway.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use bearward::types::ids::TokenId;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, folder_with, printed};
use crate::support::program::{Program, Served, bearward};
use crate::support::tokens::claims_of;
use crate::support::{Gateway, Pair, Upstream};

/// A gateway, and a `gateway.toml` in which its admin address has become the real one: that is where the commands look.
fn served(upstream: &Upstream, edit: impl Fn(String) -> String) -> (Served, TempDir) {
    let text = edit(Gateway::text(&upstream.address.to_string(), ""));
    let folder = folder_with(&text);
    let served = Served::start(folder.path());
    name_admin_address(folder.path(), &text, &served.admin.to_string());
    (served, folder)
}

fn name_admin_address(folder: &Path, text: &str, address: &str) {
    let named = text.replace("[admin]\naddress = \"127.0.0.1:0\"", &format!("[admin]\naddress = \"{address}\""));
    fs::write(folder.join("gateway.toml"), named).expect("written");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn people_get_lines_and_a_table() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream, |text| text);
    let run = |arguments: &[&str]| bearward(folder.path(), arguments);
    let issued =
        printed(&run(&["token", "issue", "--subject", "alice", "--scope", "a b", "--label", "phone\u{1b}[2J"]));
    let lines: Vec<(&str, &str)> =
        issued.lines().map(|line| line.split_once("  ").expect("a title and a value")).collect();
    let titles: Vec<_> = lines.iter().map(|(title, _)| title.trim()).collect();
    assert_eq!(titles, ["token id", "access token", "refresh token"]);
    let [token_id, access, refresh] = [0, 1, 2].map(|line: usize| lines[line].1.trim());
    assert!(refresh.contains(token_id));
    let client = served.client().bearer(access);
    assert_eq!(client.get("/").await.status, 200);

    let listed = printed(&run(&["token", "list", "--subject", "alice"]));
    let [titles, row] = listed.lines().collect::<Vec<_>>()[..] else { panic!("{listed}") };
    assert!(titles.starts_with("token id "), "{listed}");
    for says in [token_id, "live", "a b", "phone"] {
        assert!(row.contains(says), "{says} is not in {row}");
    }
    assert!(!listed.contains('\u{1b}'), "a terminal does not obey what a label says");

    assert_eq!(printed(&run(&["token", "revoke", token_id])), "revoked\n");
    assert_eq!(client.get("/").await.status, 401);
    let listed = printed(&run(&["token", "list", "--subject", "alice"]));
    assert!(listed.contains("revoked: admin"), "{listed}");
    assert_eq!(printed(&run(&["token", "list", "--subject", "nobody"])).lines().count(), 1);
}

#[tokio::test]
async fn programs_get_json() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream, |text| text);
    let run = |arguments: &[&str]| json(&printed(&bearward(folder.path(), arguments)));
    let subject = "a/b?c é";
    let issued = run(&["token", "issue", "--subject", subject, "--client-id", "shop", "--json"]);
    let pair = Pair::of(&issued);
    assert_eq!(issued["tokenId"], pair.token_id.as_str());
    assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 200);

    let listed = run(&["token", "list", "--subject", subject, "--json"]);
    assert_eq!((&listed["tokens"][0]["sub"], &listed["tokens"][0]["state"]), (&subject.into(), &"live".into()));
    assert_eq!(run(&["token", "revoke", &pair.refresh, "--json"]), serde_json::json!({ "success": true }));
    assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 401);
}

#[tokio::test]
async fn an_operator_revokes_by_subject_by_time_by_jti_and_all() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream, |text| text);
    let run = |arguments: &[&str]| bearward(folder.path(), arguments);
    let issue = |subject: &str| Pair::of(&json(&printed(&run(&["token", "issue", "--subject", subject, "--json"]))));
    let status = async |pair: &Pair| served.client().bearer(&pair.access).get("/").await.status.as_u16();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(issue);
    let long_ago = ["token", "revoke", "--all", "--before", "2020-01-01T00:00:00Z"];
    for (revoke, left) in [
        (&long_ago[..], [200, 200, 200]),
        (&["token", "revoke", "--subject", "alice"], [401, 200, 200]),
        (&["token", "revoke", "--jti", claims_of(&bob.access)["jti"].as_str().expect("text")], [401, 401, 200]),
        (&["token", "revoke", "--all", "--issuer", "https://gateway.example"], [401, 401, 401]),
    ] {
        assert_eq!(printed(&run(revoke)), "revoked\n", "{revoke:?}");
        assert_eq!([status(&alice).await, status(&bob).await, status(&carol).await], left, "{revoke:?}");
    }
    for unclear in [
        &["token", "revoke"][..],
        &["token", "revoke", "--issuer", "https://gateway.example"],
        &["token", "revoke", "x", "--all"],
        &["token", "revoke", "--subject", "alice", "--all"],
        &["token", "revoke", "--jti", "1", "--before", "2020-01-01T00:00:00Z"],
    ] {
        complaint(&run(unclear), 2);
    }
}

#[test]
fn what_goes_wrong_is_said_with_status_1() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream, |text| text);
    let run = |arguments: &[&str]| complaint(&bearward(folder.path(), arguments), 1);
    let said = run(&["token", "revoke", &TokenId::random().to_string()]);
    assert!(said.contains("404") && said.contains("no such token"), "{said}");
    let said = run(&["token", "issue", "--subject", "alice", "--scope", "a\"b"]);
    assert!(said.contains("scope holds a character that no scope may have"), "{said}");
    let said = run(&["token", "issue", "--subject", ""]);
    assert!(said.contains("sub must have 1 to 255 bytes"), "{said}");

    fs::write(folder.path().join("admin.token"), "0".repeat(43)).expect("written");
    let said = run(&["token", "list", "--subject", "alice"]);
    assert!(said.contains("401") && said.contains("admin token"), "{said}");
    fs::remove_file(folder.path().join("admin.token")).expect("removed");
    let said = run(&["token", "list", "--subject", "alice"]);
    assert!(said.contains("cannot read admin.token_file") && said.contains("admin.token ("), "{said}");

    fs::write(folder.path().join("admin.token"), "0".repeat(43)).expect("written");
    served.program.kill();
    let said = run(&["token", "list", "--subject", "alice"]);
    assert!(said.contains("no gateway listens at admin.address") && said.contains("none started within 5s"), "{said}");
}

/// As a script has it that begins a gateway and goes on: there is neither a token to show yet nor an address to ask at.
#[tokio::test]
async fn a_gateway_that_is_just_starting_is_waited_for() {
    let upstream = Upstream::start();
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let text = Gateway::text(&upstream.address.to_string(), "");
    let folder = folder_with(&text);
    name_admin_address(folder.path(), &text, &free().to_string());
    let asking = Program::start(folder.path(), &["token", "issue", "--subject", "alice", "--json"]);
    let served = Served::start(folder.path());
    let (status, issued, said) = asking.wait();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    assert_eq!(served.client().bearer(&Pair::of(&json(&issued)).access).get("/").await.status, 200);
}

/// A certificate that an authority gave for a name, and an address that the commands know by number.
#[tokio::test]
async fn the_admin_listener_may_have_a_certificate_for_any_name() {
    let upstream = Upstream::start();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["gateway.example".to_owned()]).expect("made");
    let folder = folder_with("");
    fs::write(folder.path().join("admin.pem"), cert.pem()).expect("written");
    fs::write(folder.path().join("admin.key"), signing_key.serialize_pem()).expect("written");
    let admin = "[admin]\naddress = \"127.0.0.1:0\"\ntls = { certificate = \"admin.pem\", key = \"admin.key\" }";
    let text = Gateway::text(&upstream.address.to_string(), "").replace("[admin]\naddress = \"127.0.0.1:0\"", admin);
    fs::write(folder.path().join("gateway.toml"), &text).expect("written");
    let served = Served::start(folder.path());
    name_admin_address(folder.path(), &text, &served.admin.to_string());
    let issued = printed(&bearward(folder.path(), &["token", "issue", "--subject", "alice", "--json"]));
    let access = Pair::of(&json(&issued)).access;
    assert_eq!(served.client().bearer(&access).get("/").await.status, 200);

    let another = generate_simple_self_signed(["gateway.example".to_owned()]).expect("made");
    fs::write(folder.path().join("admin.pem"), another.cert.pem()).expect("written");
    fs::write(folder.path().join("admin.key"), another.signing_key.serialize_pem()).expect("written");
    let said = complaint(&bearward(folder.path(), &["token", "list", "--subject", "alice"]), 1);
    assert!(said.contains("another certificate than"), "the token is not shown to whoever listens there: {said}");
}
