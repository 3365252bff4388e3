//! `bearward token issue|list|revoke` with a running gateway.

use bearward::types::ids::TokenId;
use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, folder_with, printed};
use crate::support::program::{GatewayProcess, Program, bearward, bearward_with_stdin};
use crate::support::tokens::claims_of;
use crate::support::{Gateway, TokenPair, Upstream};

/// A gateway, and the folder of its `gateway.toml`.
fn served(upstream: &Upstream) -> (GatewayProcess, TempDir) {
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    (GatewayProcess::start(folder.path()), folder)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[tokio::test]
async fn without_json_the_output_is_lines_and_a_table() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream);
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
    for expected in [token_id, "live", "a b", "phone"] {
        assert!(row.contains(expected), "{expected} is not in {row}");
    }
    assert!(!listed.contains('\u{1b}'), "a label cannot send control codes to the terminal");

    assert_eq!(printed(&run(&["token", "revoke", token_id])), "revoked\n");
    assert_eq!(client.get("/").await.status, 401);
    let listed = printed(&run(&["token", "list", "--subject", "alice"]));
    assert!(listed.contains("revoked: admin"), "{listed}");
    assert_eq!(printed(&run(&["token", "list", "--subject", "unknown"])).lines().count(), 1);
}

/// Two subjects that differ only in what a terminal does not show look different.
#[tokio::test]
async fn characters_without_a_shape_are_printed_as_escapes() {
    let upstream = Upstream::start();
    let (_served, folder) = served(&upstream);
    let run = |arguments: &[&str]| printed(&bearward(folder.path(), arguments));
    let hidden = " al\u{200B}ice\u{202E}\u{AD}\u{3164}\u{E0041}\u{600}\u{13430}\u{16FE4} ";
    let shown = "\\u{20}al\\u{200b}ice\\u{202e}\\u{ad}\\u{3164}\\u{e0041}\\u{600}\\u{13430}\\u{16fe4}\\u{20}";
    let issued = run(&["token", "issue", "--subject", hidden, "--label", hidden, "--json"]);
    let listed = run(&["token", "list", "--subject", hidden]);
    assert!(listed.contains(shown) && !listed.contains('\u{200B}'), "{listed:?}");
    run(&["apikey", "issue", "--subject", hidden]);
    let listed = run(&["apikey", "list"]);
    assert!(listed.contains(shown) && !listed.contains('\u{200B}'), "{listed:?}");
    let access = TokenPair::from_json(&json(&issued)).access;
    let explained = bearward_with_stdin(folder.path(), &["explain", "--cleartext", "--token-stdin"], &access);
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("claims ") && !explained.contains('\u{200B}'), "{explained:?}");
    // What looks like an escape is one.
    run(&["apikey", "issue", "--subject", "alice "]);
    run(&["apikey", "issue", "--subject", "alice\\u{20}"]);
    let listed = run(&["apikey", "list"]);
    assert!(listed.contains(" alice\\u{20} ") && listed.contains(" alice\\u{5c}u{20} "), "{listed:?}");
}

#[tokio::test]
async fn with_json_the_output_is_json() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream);
    let run = |arguments: &[&str]| json(&printed(&bearward(folder.path(), arguments)));
    let subject = "a/b?c é";
    let issued = run(&["token", "issue", "--subject", subject, "--client-id", "shop", "--json"]);
    let pair = TokenPair::from_json(&issued);
    assert_eq!(issued["tokenId"], pair.token_id.as_str());
    assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 200);

    let listed = run(&["token", "list", "--subject", subject, "--json"]);
    assert_eq!((&listed["tokens"][0]["sub"], &listed["tokens"][0]["state"]), (&subject.into(), &"live".into()));
    assert_eq!(run(&["token", "revoke", &pair.refresh, "--json"]), serde_json::json!({ "success": true }));
    assert_eq!(served.client().bearer(&pair.access).get("/").await.status, 401);
}

#[tokio::test]
async fn an_operator_revokes_by_subject_client_time_jti_or_all() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream);
    let run = |arguments: &[&str]| bearward(folder.path(), arguments);
    let issue = |subject: &str| {
        let arguments = ["token", "issue", "--subject", subject, "--client-id", "https://a.example/x?y", "--json"];
        TokenPair::from_json(&json(&printed(&run(&arguments))))
    };
    let status = async |pair: &TokenPair| served.client().bearer(&pair.access).get("/").await.status.as_u16();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(issue);
    let of_client = ["token", "revoke", "--client-id", "https://a.example/x?y"];
    let long_ago = ["token", "revoke", "--all", "--before", "2020-01-01T00:00:00Z"];
    for (revoke, statuses_after) in [
        (&long_ago[..], [200, 200, 200]),
        (&["token", "revoke", "--client-id", "https://a.example/x"], [200, 200, 200]),
        (&[of_client[0], of_client[1], of_client[2], of_client[3], "--subject", "alice"], [401, 200, 200]),
        (&["token", "revoke", "--subject", "alice"], [401, 200, 200]),
        (&["token", "revoke", "--jti", claims_of(&bob.access)["jti"].as_str().expect("text")], [401, 401, 200]),
        (&of_client, [401, 401, 401]),
        (&["token", "revoke", "--all", "--issuer", "https://gateway.example"], [401, 401, 401]),
    ] {
        assert_eq!(printed(&run(revoke)), "revoked\n", "{revoke:?}");
        assert_eq!([status(&alice).await, status(&bob).await, status(&carol).await], statuses_after, "{revoke:?}");
    }
    for ambiguous in [
        &["token", "revoke"][..],
        &["token", "revoke", "--issuer", "https://gateway.example"],
        &["token", "revoke", "x", "--all"],
        &["token", "revoke", "--subject", "alice", "--all"],
        &["token", "revoke", "--client-id", "a", "--all"],
        &["token", "revoke", "--client-id", "a", "--issuer", "https://gateway.example"],
        &["token", "list"],
        &["token", "revoke", "--jti", "1", "--before", "2020-01-01T00:00:00Z"],
    ] {
        complaint(&run(ambiguous), 2);
    }
}

#[tokio::test]
async fn sessions_are_listed_by_client_and_resource() {
    let upstream = Upstream::start();
    let (_served, folder) = served(&upstream);
    let run = |arguments: &[&str]| printed(&bearward(folder.path(), arguments));
    for (subject, client_id) in [("alice", "spa"), ("bob", "spa"), ("alice", "cli")] {
        run(&["token", "issue", "--subject", subject, "--client-id", client_id]);
    }
    let count = |filter: &[&str]| {
        let listed = json(&run(&[&["token", "list", "--json"][..], filter].concat()));
        listed["tokens"].as_array().expect("a list").len()
    };
    for (filter, expected) in [
        (&["--client-id", "spa"][..], 2),
        (&["--client-id", "spa", "--subject", "alice"], 1),
        (&["--client-id", "sp"], 0),
        (&["--resource", "https://api.example/mcp"], 0),
        (&["--subject", "alice"], 2),
    ] {
        assert_eq!(count(filter), expected, "{filter:?}");
    }
    let clients = json(&run(&["client", "list", "--json"]));
    let expected = serde_json::json!({ "clientId": "spa", "source": "other", "live": 2, "denied": false });
    assert_eq!(clients["clients"][0], expected);
    let table = run(&["client", "list"]);
    assert!(table.lines().last().is_some_and(|row| row.contains("cli") && row.contains("other")), "{table}");
    let table = run(&["token", "list", "--client-id", "cli"]);
    assert!(table.lines().last().is_some_and(|row| row.contains("alice") && row.contains("cli")), "{table}");
}

#[test]
fn a_failed_command_reports_the_error_with_status_1() {
    let upstream = Upstream::start();
    let (served, folder) = served(&upstream);
    let run = |arguments: &[&str]| complaint(&bearward(folder.path(), arguments), 1);
    let message = run(&["token", "revoke", &TokenId::random().to_string()]);
    assert!(message.contains("404") && message.contains("no such token"), "{message}");
    let message = run(&["token", "issue", "--subject", "alice", "--scope", "a\"b"]);
    assert!(message.contains("scope contains a character that RFC 6749 does not allow"), "{message}");
    let message = run(&["token", "issue", "--subject", ""]);
    assert!(message.contains("sub must have 1 to 255 bytes"), "{message}");

    served.program.kill();
    let message = run(&["token", "list", "--subject", "alice"]);
    assert!(message.contains("no gateway listens") && message.contains("none started within 5s"), "{message}");
}

/// A script may start a gateway and run a command at once, before the admin socket exists.
#[tokio::test]
async fn a_command_waits_for_a_gateway_that_is_starting() {
    let upstream = Upstream::start();
    let folder = folder_with(&Gateway::config_text(&upstream.address.to_string(), ""));
    let command = Program::start(folder.path(), &["token", "issue", "--subject", "alice", "--json"]);
    let served = GatewayProcess::start(folder.path());
    let (status, issued, message) = command.wait();
    assert_eq!((status.code(), message.as_str()), (Some(0), ""));
    assert_eq!(served.client().bearer(&TokenPair::from_json(&json(&issued)).access).get("/").await.status, 200);
}

#[tokio::test]
async fn api_keys_are_issued_listed_and_revoked() {
    let upstream = Upstream::start();
    let folder =
        folder_with(&Gateway::config_text(&upstream.address.to_string(), "[[route]]\npath = \"/\"\napi_keys = true\n"));
    let served = GatewayProcess::start(folder.path());
    let run = |arguments: &[&str]| bearward(folder.path(), arguments);
    let issued = printed(&run(&["apikey", "issue", "--subject", "ci", "--scope", "a b", "--label", "job\u{1b}[2J"]));
    let values: Vec<&str> = issued.lines().map(|line| line.rsplit(' ').next().expect("a value")).collect();
    let [id, key, expires] = values[..] else { panic!("{issued}") };
    assert!(key.starts_with(&format!("bwk_{id}_")) && expires.ends_with('Z'), "{issued}");
    assert_eq!(served.client().bearer(key).get("/").await.status, 200);
    let other = json(&printed(&run(&["apikey", "issue", "--subject", "a/b c", "--expires-in", "60", "--json"])));

    let listed = printed(&run(&["apikey", "list"]));
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 3, "{listed}");
    for expected in [id, "live", "ci", "a b", "job"] {
        assert!(rows[2].contains(expected), "{expected} is not in {listed}");
    }
    assert!(!listed.contains('\u{1b}') && !listed.contains(key), "{listed}");
    let of_other = json(&printed(&run(&["apikey", "list", "--subject", "a/b c", "--json"])));
    assert_eq!(of_other["apiKeys"].as_array().expect("a list").len(), 1);
    assert_eq!(of_other["apiKeys"][0]["keyId"], other["keyId"]);

    assert_eq!(printed(&run(&["apikey", "revoke", id])), "revoked\n");
    assert_eq!(served.client().bearer(key).get("/").await.status, 401);
    assert!(printed(&run(&["apikey", "list", "--subject", "ci"])).contains("revoked"));
    assert!(complaint(&run(&["apikey", "revoke", "nothing"]), 1).contains("no such API key"));
    assert!(complaint(&run(&["apikey", "issue", "--subject", "x", "--expires-in", "0"]), 1).contains("expiresIn"));
}
