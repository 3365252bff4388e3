//! A running gateway does not load keys from a file that other users can change, or read if it is a secret.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bearward::config::{self, Probe};
use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::with_causes;
use bearward::types::secret;

use super::{fetches, folder, issuer, new_token, start_in, status, wait_for_fetch};
use crate::support::secrets::logged_since;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Waits until a new content of the file was rejected.
async fn wait_for_rejection(gateway: &Gateway, path: &Path, failed_before: f64) {
    wait_for_fetch(gateway, "failed", failed_before).await;
    // The fetch may have failed while there was no file, and the next one reads it.
    let line = eventually_ok("a line names the file", async || {
        let log = logged_since(0);
        let line = log.lines().find(|line| line.contains(&path.display().to_string()) && line.contains("run: chmod"));
        line.map(str::to_owned).ok_or(log)
    })
    .await;
    assert!(line.contains("ERROR") && line.contains("rejected the key file of an issuer"), "{line}");
}

#[tokio::test]
async fn a_lax_secret_leaves_the_current_one_active() {
    let upstream = Upstream::start();
    let folder = folder();
    let keys = folder.path().join("keys");
    fs::create_dir(&keys).expect("a folder");
    let file = keys.join("hmac.secret");
    secret::write_private(&file, &[b'a'; 64]).expect("written");
    let text = issuer(EXTERNAL_ISSUER, "secret_file = \"keys/hmac.secret\"").replace("ES256", "HS256");
    let gateway = start_in(folder.clone(), &upstream, &text);
    let [real, forged, next] = [b'a', b'b', b'c'].map(|byte| Mint::hmac(Algorithm::HS256, &[byte; 64]));
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200);

    // Another user removes the file and writes its own, which every user can read.
    let failed = fetches(&gateway, "failed").await;
    fs::remove_file(&file).expect("removed");
    fs::write(keys.join("new"), [b'b'; 64]).expect("written");
    set_mode(&keys.join("new"), 0o644);
    fs::rename(keys.join("new"), &file).expect("renamed");
    wait_for_rejection(&gateway, &file, failed).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &forged)).await, 401);
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200);

    // Its mode is right, and every user can replace it.
    let failed = fetches(&gateway, "failed").await;
    set_mode(&keys, 0o777);
    set_mode(&file, 0o600);
    wait_for_rejection(&gateway, &keys, failed).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &forged)).await, 401);

    let changed = fetches(&gateway, "changed").await;
    secret::write_private(&file, &[b'c'; 64]).expect("written");
    set_mode(&keys, 0o700);
    wait_for_fetch(&gateway, "changed", changed).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &next)).await, 200);
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 401);
}

#[tokio::test]
async fn public_keys_that_all_users_can_write_are_not_loaded() {
    let upstream = Upstream::start();
    let folder = folder();
    let [real, forged] = [(); 2].map(|()| super::mint());
    let file = folder.path().join("login.json");
    fs::write(&file, real.jwks()).expect("written");
    let gateway = start_in(folder.clone(), &upstream, &issuer(EXTERNAL_ISSUER, "jwks_file = \"login.json\""));
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200, "every user may read them");
    let failed = fetches(&gateway, "failed").await;
    set_mode(&file, 0o666);
    fs::write(&file, forged.jwks()).expect("written");
    wait_for_rejection(&gateway, &file, failed).await;
    // Its key is unknown, and the real file could have it.
    assert_eq!(status(&gateway, &new_token(&gateway, &forged)).await, 503);
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200);
}

/// Its readers can sign tokens. The name of the key does not matter: the content of the file does.
#[tokio::test]
async fn a_jwks_with_a_shared_secret_is_a_secret() {
    let upstream = Upstream::start();
    let folder = folder();
    let [real, next] = [b'a', b'c'].map(|byte| Mint::hmac(Algorithm::HS256, &[byte; 64]));
    let file = folder.path().join("keys.json");
    secret::write_private(&file, real.jwks().as_bytes()).expect("written");
    let text = issuer(EXTERNAL_ISSUER, "jwks_file = \"keys.json\"").replace("ES256", "HS256");
    let gateway = start_in(folder.clone(), &upstream, &text);
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200);

    // The task that follows the file.
    let failed = fetches(&gateway, "failed").await;
    set_mode(&file, 0o644);
    fs::write(&file, next.jwks()).expect("written");
    wait_for_rejection(&gateway, &file, failed).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200);
    // `check`, and with it the start.
    let parse = || config::parse(gateway.configuration(), folder.path(), Probe::None);
    let errors = parse().map(drop).expect_err("every user can read it").to_string();
    assert!(errors.contains("every user of this machine can use") && errors.contains("chmod 600"), "{errors}");
    // A reload of a file that was private when it was checked. Meanwhile, the task may read it.
    fs::write(&file, real.jwks()).expect("written");
    set_mode(&file, 0o600);
    let config = parse().expect("a good configuration");
    set_mode(&file, 0o604);
    let error = gateway.running().reload(config).expect_err("every user can read it");
    assert!(with_causes(&error).contains("keys.json"), "{error}");
    assert_eq!(status(&gateway, &new_token(&gateway, &real)).await, 200);
}
