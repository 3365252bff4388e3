//! `bearward init`: the first configuration.

use std::fs;
use std::path::Path;

use bearward::tokens::jwt::Algorithm;
use serde_json::json;
use tempfile::TempDir;

use crate::support::Upstream;
use crate::support::jwks::KeyServer;
use crate::support::program::{GatewayProcess, bearward};
use crate::support::tokens::Mint;

/// Exit status, standard output and standard error.
fn init(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let arguments: Vec<&str> = ["init"].iter().chain(arguments).copied().collect();
    let output = bearward(folder, &arguments);
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"));
    (output.status.code(), out, err)
}

#[tokio::test]
async fn the_written_file_is_valid_and_serves_tokens_of_the_issuer() {
    let (upstream, folder) = (Upstream::start(), TempDir::new().expect("a folder"));
    let keys = [Mint::new(Algorithm::RS256), Mint::new(Algorithm::ES384)];
    let server = KeyServer::start(&[&keys[0], &keys[1]]);
    let issuer = server.url("/login");
    server.publish_discovery("/login/.well-known/openid-configuration", &issuer);
    let backend = format!("http://{}", upstream.address);
    let (status, out, err) =
        init(folder.path(), &["--backend", &backend, "--issuer", &issuer, "--audience", "https://api.example"]);
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("wrote gateway.toml") && out.contains("bearward serve"), "{out}");
    let file = folder.path().join("gateway.toml");
    let text = fs::read_to_string(&file).expect("it was written");
    assert!(
        text.contains("algorithms = [\"ES384\",\"RS256\"]") || text.contains("algorithms = [\"ES384\", \"RS256\"]"),
        "{text}"
    );
    assert!((12..=20).contains(&text.lines().count()), "{text}");
    let checked = bearward(folder.path(), &["check", "--deny-warnings"]);
    assert!(checked.status.success(), "{checked:?}");

    let ports = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"off\"\n[admin]\naddress = \"127.0.0.1:0\"\n";
    fs::write(&file, format!("{text}\n{ports}")).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    for mint in &keys {
        let token = mint.with_claims(now, json!({ "iss": issuer, "aud": "https://api.example" }));
        let answer = served.client().bearer(&token).get("/orders").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    served.client().get("/orders").await.assert_rejected(401, "unauthorized");
}

#[test]
fn a_file_is_never_overwritten() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("gateway.toml");
    fs::write(&file, "mine").expect("written");
    let backend = ["--backend", "http://127.0.0.1:3000"];
    let (status, _, err) = init(folder.path(), &backend);
    assert!(status == Some(1) && err.contains("gateway.toml exists") && err.contains("--output"), "{err}");
    assert_eq!(fs::read(&file).expect("read"), b"mine");
    let (status, _, err) = init(folder.path(), &[&backend[..], &["--output", "other.toml"]].concat());
    assert_eq!(status, Some(0), "{err}");
    assert!(folder.path().join("other.toml").exists());
    // A link to a file that is missing.
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).expect("linked");
    let (status, _, err) = init(folder.path(), &[&backend[..], &["--output", "link"]].concat());
    assert!(status == Some(1) && err.contains("link exists"), "{err}");
}

#[test]
fn standard_output_has_only_the_file() {
    let folder = TempDir::new().expect("a folder");
    let arguments = ["--backend", "http://127.0.0.1:3000", "--domain", "api.example.com", "--output", "-"];
    let (status, out, err) = init(folder.path(), &arguments);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    fs::write(folder.path().join("gateway.toml"), &out).expect("written");
    assert!(bearward(folder.path(), &["check"]).status.success(), "{out}");
    assert!(out.contains("issuer = \"https://api.example.com\""), "{out}");
    assert!(!out.contains("[[issuer]]"), "{out}");
}

/// Arguments, exit status and what the message says: the argument, and what to do.
#[test]
fn a_wrong_argument_is_explained() {
    let folder = TempDir::new().expect("a folder");
    let server = KeyServer::start(&[]);
    server.publish_discovery("/none/.well-known/openid-configuration", &server.url("/none"));
    server.publish_discovery("/other/.well-known/openid-configuration", &server.url("/none"));
    let issuers = ["/none", "/other", "/missing"].map(|path| server.url(path));
    let good = "http://127.0.0.1:3000";
    for (arguments, status, says) in [
        (vec!["--backend", "127.0.0.1:3000"], 2, vec!["--backend: ", "write \"http://127.0.0.1:3000\""]),
        (vec!["--backend", "http://user:hush@a"], 2, vec!["--backend: ", "remove it"]),
        (vec!["--backend", "http://a/path"], 2, vec!["--backend: ", "remove the path"]),
        (vec!["--backend", good, "--domain", "api example"], 2, vec!["--domain: "]),
        (vec!["--backend", good, "--domain", "a.example/x"], 2, vec!["--domain: ", "only the name"]),
        (vec!["--backend", good, "--domain", "https://a.example"], 2, vec!["--domain: "]),
        (vec!["--backend", good, "--issuer", "http://u:hush@a.example"], 1, vec!["--issuer: ", "password"]),
        (vec!["--backend", good, "--issuer", "https://a.example?key=hush"], 1, vec!["--issuer: "]),
        (vec!["--backend", good, "--issuer", "http://login.example"], 1, vec!["--issuer: ", "use https://"]),
        (vec!["--backend", good, "--issuer", "login"], 1, vec!["--issuer: ", "leave out --issuer"]),
        (vec!["--backend", good, "--issuer", &issuers[0]], 1, vec!["--issuer http", "leave out --issuer"]),
        (vec!["--backend", good, "--issuer", &issuers[1]], 1, vec!["--issuer http", "issuer"]),
        (vec!["--backend", good, "--issuer", &issuers[2]], 1, vec!["--issuer http", "404"]),
        (vec!["--backend", good, "--audience", "a"], 2, vec!["--issuer"]),
    ] {
        let (found, out, err) = init(folder.path(), &arguments);
        assert_eq!(found, Some(status), "{arguments:?}: {out}{err}");
        assert!(says.iter().all(|part| err.contains(part)), "{arguments:?}: {err}");
        assert!(!err.contains("hush"), "{err}");
        assert!(!folder.path().join("gateway.toml").exists(), "{arguments:?}");
    }
}
