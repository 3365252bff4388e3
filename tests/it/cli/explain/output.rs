//! The output of `bearward explain`, its exit status, and what it leaves alone.

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use super::ROUTES;
use crate::support::certificates::Authority;
use crate::support::program::{bearward, bearward_with_stdin};
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Client, Gateway, Upstream};

/// Runs `bearward explain` in the gateway's folder with this token. Returns the exit status and the output.
async fn explained(gateway: &Gateway, arguments: &[&str], token: &str) -> (Option<i32>, String) {
    std::fs::write(gateway.path().join("gateway.toml"), gateway.configuration()).expect("written");
    let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs()).to_string();
    let mut all = vec!["explain", "--host", "gateway.test"];
    all.extend(arguments);
    if !arguments.contains(&"--at") {
        all.extend(["--at", &now]);
    }
    let output = bearward_with_stdin(gateway.path(), &all, token);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test]
async fn explain_prints_each_step_and_sets_the_exit_status() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let pair = gateway.issue("alice", "a b").await;
    let scoped = ["--path", "/scoped/1?x=y", "--token-stdin"];
    let (status, output) = explained(&gateway, &scoped, &pair.access).await;
    assert_eq!(status, Some(0), "{output}");
    let steps: Vec<&str> = output.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let expected = "host path route token issuer header claims time key signature revocation rules decision";
    assert_eq!(steps.join(" "), expected, "{output}");
    for line in [
        "host        gateway.test",
        "path        /scoped/1",
        "token       in the Authorization header",
        "issuer      https://gateway.example",
        "claims      sub \"alice\", scope \"a b\"",
        "revocation  not revoked",
        "rules       the scopes a; one of the scopes x, b",
        "decision    allowed",
    ] {
        assert!(output.lines().any(|printed| printed == line), "{line}\n{output}");
    }
    assert!(!output.contains(&pair.access[..40]), "a token was printed: {output}");

    let forbidden = mint.with_claims(gateway.now_secs(), json!({ "scope": "b", "sub": "bob\u{1b}[2J" }));
    let (status, output) = explained(&gateway, &scoped, &forbidden).await;
    assert_eq!(status, Some(1), "{output}");
    assert!(output.ends_with("decision    rejected: 403 insufficient_scope, missing scope a\n"), "{output}");
    assert!(!output.contains("rules ") && !output.contains('\u{1b}'), "{output:?}");

    let large = format!("X-Large: {}", "x".repeat(20_000));
    let (status, output) = explained(&gateway, &["--header", &large], "").await;
    assert!(status == Some(1) && output.contains("rejected: 431 head_too_large"), "{output}");

    let (status, output) = explained(&gateway, &["--path", "/scoped/1", "--json"], "").await;
    assert_eq!(status, Some(1), "{output}");
    let output: Value = serde_json::from_str(&output).expect("JSON");
    let steps = json!([
        { "step": "host", "found": "gateway.test" },
        { "step": "path", "found": "/scoped/1" },
        { "step": "route", "found": "/scoped/" }
    ]);
    assert_eq!(output["steps"], steps);
    assert_eq!(
        (&output["decision"], &output["reason"], &output["status"]),
        (&json!("rejected"), &json!("no_token"), &json!(401))
    );

    for (arguments, token, status, expected_text) in [
        (
            &["--path", "/observed/", "--token-stdin"][..],
            pair.access.as_str(),
            0,
            "does not enforce: 403 insufficient_scope",
        ),
        (&["--path", "/public/"], "", 0, "not required"),
        (&["--path", "/cookie/", "--token-stdin", "--token-in", "cookie:session"], &pair.access, 0, "in a cookie"),
        (&["--path", "/cookie/?a", "--token-stdin", "--token-in", "query:t"], &pair.access, 0, "in the query"),
        (
            &["--path", "/cookie/", "--method", "POST", "--token-stdin", "--token-in", "cookie:session"],
            &pair.access,
            1,
            "403 csrf",
        ),
        (
            &[
                "--path",
                "/cookie/",
                "--method",
                "POST",
                "--token-stdin",
                "--token-in",
                "cookie:session",
                "--header",
                "Origin: https://gateway.test",
            ],
            &pair.access,
            0,
            "origin ",
        ),
        (
            &["--path", "/user/refresh", "--method", "POST", "--token-stdin"],
            &pair.access,
            0,
            "the gateway itself refreshes session",
        ),
        (&["--path", "/user/refresh", "--method", "POST"], "", 1, "401 no_token"),
        (&["--path", "/user/refresh"], "", 1, "405 method_not_allowed"),
        (&["--path", "/any/", "--token-stdin", "--at", "2000-01-01T00:00:00Z"], &pair.access, 1, "401 not_yet_valid"),
        (&["--path", "/any/", "--token-stdin", "--token-in", "body"], &pair.access, 2, "expected header"),
        (&["--at", "yesterday"], "", 2, "expected a time"),
        (&["--header", "Origin"], "", 2, "expected \"Name: value\""),
    ] {
        let (found, output) = explained(&gateway, arguments, token).await;
        assert_eq!(found, Some(status), "{arguments:?}: {output}");
        assert!(output.contains(expected_text), "{arguments:?}: {output}");
    }
}

#[tokio::test]
async fn explain_rejects_revoked_tokens() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let mut gateway = Gateway::with_issuer(&upstream, &mint, "");
    let pair = gateway.issue("alice", "").await;
    let foreign = mint.with_claims(gateway.now_secs(), json!({ "jti": "one" }));
    let all = ["--token-stdin"];
    for token in [&pair.access, &foreign] {
        assert_eq!(explained(&gateway, &all, token).await.0, Some(0));
    }
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let body = json!({ "jti": "one", "issuer": EXTERNAL_ISSUER });
    assert_eq!(gateway.admin_client().post("/admin/v1/revocations", &body).await.status, 200);
    // The command did not disturb the running gateway.
    gateway.client().bearer(&pair.access).get("/").await.assert_rejected(401, "invalid_token");
    let other = gateway.issue("bob", "").await;
    assert_eq!(Client::http1(gateway.address()).bearer(&other.access).get("/").await.status, 200);
    for runs in [true, false] {
        for token in [&pair.access, &foreign] {
            let (status, output) = explained(&gateway, &all, token).await;
            assert_eq!(status, Some(1), "{output}");
            assert!(output.ends_with("decision    rejected: 401 revoked, the token was revoked\n"), "{runs}: {output}");
        }
        assert_eq!(explained(&gateway, &all, &other.access).await.0, Some(0));
        gateway.drain();
    }
}

/// Without the database, a token may be revoked.
#[tokio::test]
async fn explain_says_unknown_without_the_database() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let mut gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let token = mint.valid_token(gateway.now_secs());
    gateway.drain();
    for name in ["bearward.db", "bearward.db-wal", "bearward.db-shm"] {
        let _ = std::fs::remove_file(gateway.path().join(name));
    }
    let (status, output) = explained(&gateway, &["--token-stdin", "--path", "/any/"], &token).await;
    assert_eq!(status, Some(3), "{output}");
    assert!(output.contains("decision    unknown: allowed, unless the token is revoked (there is no"), "{output}");
    let (status, output) = explained(&gateway, &["--token-stdin", "--path", "/any/", "--json"], &token).await;
    let json: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!((status, &json["decision"]), (Some(3), &json!("unknown")));
    assert_eq!(explained(&gateway, &["--token-stdin", "--path", "/claim/"], &token).await.0, Some(1), "anyway");
    assert_eq!(explained(&gateway, &["--path", "/public/"], "").await.0, Some(0), "no token");
}

/// Without the database, it does not know the keys of the gateway's own tokens either.
#[tokio::test]
async fn explain_says_unknown_without_the_own_keys() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    gateway.drain();
    let removed = ["bearward.db", "bearward.db-wal", "bearward.db-shm"];
    for name in removed {
        let _ = std::fs::remove_file(gateway.path().join(name));
    }
    for (method, path, status) in [
        ("GET", "/any/", 3),
        ("POST", "/user/refresh", 3),
        ("DELETE", "/token/7PglJZLUprqGHtkRxVpG3Q", 3),
        ("GET", "/observed/", 0),
        ("GET", "/public/", 0),
    ] {
        let request = ["--token-stdin", "--method", method, "--path", path];
        let (exit, output) = explained(&gateway, &request, &pair.access).await;
        assert_eq!(exit, Some(status), "{path}: {output}");
        let says = "decision    unknown: the keys that sign this gateway's tokens are in its store, which cannot be \
                    read (there is no database ";
        assert_eq!(output.contains(says), status == 3, "{path}: {output}");
        assert_eq!(output.contains("); run the command where the gateway runs\n"), status == 3, "{path}: {output}");
    }
    let request = ["explain", "--host", "gateway.test", "--token-stdin", "--path", "/any/"];
    let other = gateway.configuration().replace("[tokens]\n", "[tokens]\nalgorithm = \"EdDSA\"\n");
    std::fs::write(gateway.path().join("gateway.toml"), other).expect("written");
    let output = bearward_with_stdin(gateway.path(), &request, &pair.access);
    assert_eq!(output.status.code(), Some(3), "the operator has changed the algorithm: {output:?}");
    let expired = ["--token-stdin", "--path", "/any/", "--at", "2100-01-01T00:00:00Z"];
    assert_eq!(explained(&gateway, &expired, &pair.access).await.0, Some(1), "rejected with any key");
    let foreign = Mint::new(Algorithm::ES256).valid_token(gateway.now_secs());
    assert_eq!(explained(&gateway, &["--token-stdin", "--path", "/any/"], &foreign).await.0, Some(1), "not its issuer");
}

#[test]
fn explain_creates_no_file_before_the_first_start() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), "[[upstream]]\nservers = [\"http://127.0.0.1:1\"]\n")
        .expect("written");
    let output = bearward_with_stdin(folder.path(), &["explain", "--token-stdin"], "a.b.c");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|file| file.file_name()).collect();
    assert_eq!(names, ["gateway.toml"]);

    std::fs::write(folder.path().join("gateway.toml"), "workers = \"x\"").expect("written");
    let output = bearward(folder.path(), &["explain"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("workers"), "{output:?}");
}

/// The tokens of a client with a certificate, as the command line binds and explains them.
#[tokio::test]
async fn a_bound_token_is_explained_beside_its_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"required\"", "");
    authority.client(|_| {}).write(gateway.path(), "own");
    authority.client(|_| {}).write(gateway.path(), "other");
    std::fs::write(gateway.path().join("gateway.toml"), gateway.configuration()).expect("written");
    let issue = ["token", "issue", "--subject", "alice", "--json", "--certificate", "own.pem"];
    let output = bearward(gateway.path(), &issue);
    let issued: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let token = crate::support::TokenPair::from_json(&issued).access;
    for (shown, expected, says) in [
        (Some("own.pem"), 0, "proof       the certificate of cnf"),
        (Some("other.pem"), 1, "401 certificate_other"),
        (None, 1, "401 certificate_other"),
        (Some("own.key"), 2, "own.key: expected a certificate in PEM"),
        (Some("missing.pem"), 2, "missing.pem: "),
    ] {
        let arguments: Vec<&str> =
            ["--token-stdin"].into_iter().chain(shown.iter().flat_map(|file| ["--certificate", *file])).collect();
        let (status, output) = explained(&gateway, &arguments, &token).await;
        assert!(status == Some(expected) && output.contains(says), "{shown:?}: {output}");
    }
}
