//! The key in `tokens.signing_key_file`, which the operator replaces while the gateway runs.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use bearward::types::secret;
use tempfile::TempDir;

use super::*;
use crate::support::clock::ManualClock;
use crate::support::program::{GatewayProcess, bearward};
use crate::support::{Gateway, Upstream};

fn text(upstream: &Upstream, file: &str) -> String {
    let keys = format!("[tokens]\nsigning_key_file = \"{file}\"\n");
    Gateway::config_text(&upstream.address.to_string(), "").replace("[tokens]\n", &keys)
}

fn start(upstream: &Upstream, file: &str, folder: &TempDir) -> GatewayProcess {
    fs::write(folder.path().join("gateway.toml"), text(upstream, file)).expect("written");
    GatewayProcess::start(folder.path())
}

#[tokio::test]
async fn a_swapped_mount_signs_without_a_restart_and_old_tokens_stay_valid() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let [(first, first_kid), (second, second_kid), (third, third_kid)] = [new_key(), new_key(), new_key()];
    let mut mounted = MountedVolume::new(&folder.path().join("mount"), &[("signing.pem", &first)]);
    let served = start(&upstream, "mount/signing.pem", &folder);
    let (admin, client) = (served.admin_client(), served.client());
    let old = issue(&admin).await;
    assert_eq!(kid_of(&old.access), first_kid);

    mounted.swap(&[("signing.pem", &second)]);
    let new = wait_for_signer(&admin, &second_kid).await;
    assert_eq!((status(&client, &old.access).await, status(&client, &new.access).await), (200, 200));
    assert_eq!(published(&client).await, [second_kid.clone(), first_kid.clone()], "backends check both");
    let refreshed = refresh(&client, &old).await;
    assert_eq!(kid_of(&refreshed.access), second_kid);
    wait_for_states(&admin, &[(&first_kid, "retired"), (&second_kid, "active")]).await;
    served.program.wait_for_stderr("a new key in tokens.signing_key_file signs");

    // The store has only public halves, and they outlive the process.
    served.program.kill();
    mounted.swap(&[("signing.pem", &third)]);
    let served = GatewayProcess::start(folder.path());
    let (admin, client) = (served.admin_client(), served.client());
    assert_eq!(kid_of(&issue(&admin).await.access), third_kid);
    for token in [&old.access, &new.access, &refreshed.access] {
        assert_eq!(status(&client, token).await, 200);
    }
    assert_eq!(published(&client).await, [third_kid, second_kid, first_kid]);
}

/// Waits until this number of reloads has failed.
async fn wait_for_failures(admin: &Client, expected: f64) {
    eventually_within(TIMEOUT, &format!("{expected} failed reloads"), async || {
        let found = metric(admin, "bearward_reloads_total{outcome=\"failed\"}").await;
        if found >= expected { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

/// A program such as the Vault agent may write a file in pieces, and a deployment may remove it.
#[tokio::test]
async fn the_last_good_key_signs_while_the_file_is_not_usable() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let [(first, first_kid), (second, second_kid)] = [new_key(), new_key()];
    let file = folder.path().join("signing.pem");
    secret::write_private(&file, first.as_bytes()).expect("written");
    let gateway = Gateway::in_file(text(&upstream, "signing.pem"), folder);
    let admin = gateway.admin_client();
    let client = gateway.client();
    let pair = issue(&admin).await;
    let mut failed = 0.0;
    for (case, content, mode) in [
        ("empty", String::new(), 0o600),
        ("half of it", second[..second.len() / 2].to_owned(), 0o600),
        ("a certificate", second.replace("PRIVATE KEY", "CERTIFICATE"), 0o600),
        ("for every user", second.clone(), 0o644),
        ("for every user to write", format!("{second}\n"), 0o602),
    ] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("set");
        fs::write(&file, content).expect("written");
        failed += 1.0;
        wait_for_failures(&admin, failed).await;
        assert_eq!(metric(&admin, "bearward_reload_succeeded").await, 0.0, "{case}");
        assert_eq!(kid_of(&issue(&admin).await.access), first_kid, "{case}");
    }
    let name = file.to_str().expect("UTF-8");
    let lines = gateway.logged();
    let lines: Vec<_> = lines.lines().filter(|line| line.contains(name)).collect();
    let says = "tokens.signing_key_file has changed and is invalid; the old key signs";
    assert!(lines.len() == 5 && lines.iter().all(|line| line.contains(says)), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("chmod")), "{lines:#?}");

    fs::remove_file(&file).expect("removed");
    wait_for_failures(&admin, failed + 1.0).await;
    let lines = gateway.logged();
    assert!(lines.lines().any(|line| line.contains(name) && line.contains("No such file or directory")), "{lines}");
    assert_eq!(status(&client, &pair.access).await, 200);

    // Written in two pieces, with white space at its end.
    secret::write_private(&file, &second.as_bytes()[..40]).expect("written");
    let mut rest = OpenOptions::new().append(true).open(&file).expect("opened");
    rest.write_all(&second.as_bytes()[40..]).and_then(|()| rest.write_all(b"\n\n")).expect("written");
    let new = wait_for_signer(&admin, &second_kid).await;
    assert_eq!((status(&client, &pair.access).await, status(&client, &new.access).await), (200, 200));
    assert_eq!(metric(&admin, "bearward_reload_succeeded").await, 1.0);
}

#[tokio::test]
async fn a_leaked_key_is_replaced_and_then_revoked() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let [(first, first_kid), (second, second_kid)] = [new_key(), new_key()];
    let file = folder.path().join("signing.pem");
    secret::write_private(&file, first.as_bytes()).expect("written");
    let served = start(&upstream, "signing.pem", &folder);
    let (admin, client) = (served.admin_client(), served.client());
    let leaked = issue(&admin).await;
    for path in ["rotate".to_owned(), format!("{first_kid}/revoke")] {
        let response = admin.post(&format!("/admin/v1/keys/{path}"), &json!({})).await;
        response.assert_rejected(400, "invalid_request");
        assert!(response.text().contains("signing_key_file"), "{response:?}");
    }
    secret::write_private(&file, second.as_bytes()).expect("written");
    let new = wait_for_signer(&admin, &second_kid).await;
    assert_eq!(admin.post(&format!("/admin/v1/keys/{first_kid}/revoke"), &json!({})).await.status, 200);
    assert_eq!((status(&client, &leaked.access).await, status(&client, &new.access).await), (401, 200));
    let refused = client.clone().bearer(&leaked.access);
    let body = json!({ "refreshToken": leaked.refresh });
    refused.post("/user/refresh", &body).await.assert_rejected(401, "invalid_token");

    // The leaked key does not come back: not in the running gateway, and not at a start.
    secret::write_private(&file, first.as_bytes()).expect("written");
    served.program.wait_for_stderr("was revoked: its tokens are rejected; put another key into the file");
    assert_eq!(kid_of(&issue(&admin).await.access), second_kid);
    assert_eq!(status(&client, &new.access).await, 200);
    served.program.kill();
    let output = bearward(folder.path(), &["serve"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && printed.contains("was revoked"), "{printed}");
}

/// An operator can move from keys that the gateway makes to a file, and back.
#[tokio::test]
async fn a_move_to_a_file_and_back_keeps_every_session() {
    let upstream = Upstream::start();
    let (folder, clock) = (Arc::new(TempDir::new().expect("a folder")), Arc::new(ManualClock::new()));
    let (pem, kid) = new_key();
    secret::write_private(&folder.path().join("signing.pem"), pem.as_bytes()).expect("written");
    let made = Gateway::in_folder(Gateway::config_text(&upstream.address.to_string(), ""), folder, clock);
    let first = made.issue("alice", "").await;
    let in_file =
        made.restart_with(|text| text.replace("[tokens]\n", "[tokens]\nsigning_key_file = \"signing.pem\"\n"));
    assert_eq!(in_file.status_of(&first.access).await, 200);
    let second = in_file.issue("bob", "").await;
    assert_eq!(kid_of(&second.access), kid);
    // Long after `key_lifetime`, the gateway makes no key of its own.
    in_file.advance(Duration::from_hours(24 * 365));
    eventually_within(TIMEOUT, "the first key is deleted", async || {
        let keys = in_file.admin_client().get("/admin/v1/keys").await.json();
        let count = keys["keys"].as_array().expect("a list").len();
        if count == 1 && keys.get("nextRotation").is_none() { Ok(()) } else { Err(keys.to_string()) }
    })
    .await;
    let third = in_file.issue("carol", "").await;
    assert_eq!(kid_of(&third.access), kid);

    let back = in_file.restart_with(|text| text.replace("signing_key_file = \"signing.pem\"\n", ""));
    assert_eq!(back.status_of(&third.access).await, 200);
    let fourth = back.issue("dave", "").await;
    assert_ne!(kid_of(&fourth.access), kid);
    let refreshed = back.refresh(&third.access, &third.refresh).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    assert_eq!(published(&back.client()).await, [kid_of(&fourth.access), kid]);
}
