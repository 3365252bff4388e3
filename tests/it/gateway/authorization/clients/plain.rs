//! `openid-client`, a strict library for every OAuth server.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::Site;
use crate::support::source;

const TABLES: &str = "[[oauth.scope]]\nname = \"notes\"\n\
    [[oauth.client]]\nclient_id = \"cli\"\nclient_auth = \"none\"\nredirect_uris = [\"http://127.0.0.1/callback\"]\n\
    [[route]]\npath = \"/notes\"\nresource = true\nscopes = [\"notes\"]\n";

async fn all_steps(keys: &str, pushes: bool, proves: bool) -> Value {
    let site = Site::start(&format!("{keys}{TABLES}")).await;
    let folder = site.folder.path().join("oidc");
    std::fs::create_dir(&folder).expect("a folder");
    symlink(source::root().join("target/oidc/node_modules"), folder.join("node_modules")).expect("a link");
    std::fs::write(folder.join("plain.mjs"), include_str!("../../../oidc/plain.mjs")).expect("written");
    let settings = json!({
        "issuer": site.url, "client": "cli", "redirect": "http://127.0.0.1:7777/callback",
        "resource": format!("{}/notes", site.url), "scope": "notes", "pushes": pushes, "proves": proves,
    });
    let found = site.run("oidc/plain.mjs", &settings).await;
    assert_eq!((&found["granted"], &found["refreshed"]), (&json!(200), &json!(200)), "{found}");
    assert_eq!((&found["revoked"], &found["scope"]), (&json!(401), &json!("notes")), "{found}");
    found
}

#[tokio::test]
async fn openid_client_goes_all_steps() {
    let found = all_steps("", false, false).await;
    assert_eq!(found["type"], "bearer", "{found}");
}

/// The browser brings nothing but the name of the request.
#[tokio::test]
async fn openid_client_pushes_its_request_and_proves_its_key() {
    let found = all_steps("require_par = true\n", true, true).await;
    assert_eq!(found["type"], "dpop", "{found}");
    let url = found["url"].as_str().expect("a URL");
    let query = url.split_once('?').expect("a query").1;
    let mut names: Vec<_> = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
    names.sort_unstable();
    assert_eq!(names, ["client_id", "request_uri"], "{url}");
}
