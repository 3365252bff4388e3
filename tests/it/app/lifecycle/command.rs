//! `bearward reload`, and what the log and the metrics report about a reload.

use std::process::Output;

use serde_json::{Value, json};

use super::{metric, served, soon, write};
use crate::support::Upstream;
use crate::support::program::bearward;

/// Returns the exit status, standard output and standard error.
fn parts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_command_reports_active_sections_restarts_and_errors() {
    let upstream = Upstream::start();
    let (served, folder, text) = served(&upstream, |text| text);
    let run = |arguments: &[&str]| parts(bearward(folder.path(), arguments));
    assert_eq!(metric(&served, "bearward_reload_succeeded").await, 1.0, "after the start");
    let started = metric(&served, "bearward_reload_success_time_seconds").await;

    // The file now has the real admin address instead of port 0.
    let place = |start: &str| {
        let before = text.lines().take_while(|line| !line.starts_with(start)).count();
        format!("gateway.toml:{}", before + 1)
    };
    let named = format!("admin.address ({})", place(&format!("address = \"{}\"", served.admin)));
    write(folder.path(), &text.replace("public = true", "public = false"));
    let out = format!("reloaded; changed: route\nchanges that require a restart: {named}\n");
    assert_eq!(run(&["reload"]), (Some(0), out, String::new()));
    served.client().get("/").await.assert_rejected(401, "unauthorized");
    let out = format!("reloaded; no changes\nchanges that require a restart: {named}\n");
    assert_eq!(run(&["reload"]), (Some(0), out, String::new()));
    served.program.wait_for_stderr(&format!("requires_restart=\"{named}\""));
    write(folder.path(), &text);
    let (status, out, _) = run(&["reload", "--json"]);
    let out: Value = serde_json::from_str(&out).expect("JSON");
    let public = json!({ "key": "route[0].public", "item": "/", "change": "changed", "from": false, "to": true,
        "place": place("public = true"), "requiresRestart": false });
    let address = json!({ "key": "admin.address", "change": "changed", "from": "127.0.0.1:0",
        "to": served.admin.to_string(), "place": place(&format!("address = \"{}\"", served.admin)),
        "requiresRestart": true });
    let changes = [public, address];
    let expected = json!({ "success": true, "changed": ["route"], "requiresRestart": ["admin"],
        "restartKeys": [named], "changes": changes });
    assert_eq!((status, out), (Some(0), expected));
    assert_eq!(served.client().get("/").await.status, 200);
    assert!(metric(&served, "bearward_reload_success_time_seconds").await >= started);

    write(folder.path(), &format!("{text}\n[[route]]\npath = 7\nupstraem = \"x\"\n"));
    let (status, out, err) = run(&["reload"]);
    assert_eq!((status, out.as_str()), (Some(2), ""));
    for expected in [
        "not reloaded; the current settings stay active",
        "route[1].path",
        "--> gateway.toml:",
        "did you mean `upstream`?",
        "2 errors",
    ] {
        assert!(err.contains(expected), "{expected} is not in\n{err}");
    }
    served.program.wait_for_stderr("did you mean `upstream`?");
    let (status, out, err) = run(&["reload", "--json"]);
    let out: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((status, err.as_str(), &out["success"]), (Some(2), "", &json!(false)));
    assert_eq!(out["errors"].as_array().expect("a list").len(), 2);
    assert!(out["errors"][0]["line"].is_u64() && out["errors"][0]["key"] == "route[1].path", "{out}");
    assert_eq!(served.client().get("/").await.status, 200, "the settings are unchanged");
    assert_eq!(metric(&served, "bearward_reload_succeeded").await, 0.0);
    assert_eq!(metric(&served, "bearward_reloads_total{outcome=\"failed\"}").await, 2.0);
    assert_eq!(metric(&served, "bearward_reloads_total{outcome=\"succeeded\"}").await, 3.0);

    write(folder.path(), &text);
    served.program.signal("HUP");
    soon("the settings are active", async || metric(&served, "bearward_reload_succeeded").await == 1.0).await;
    served.program.kill();
    let (status, _, err) = run(&["reload"]);
    assert!(status == Some(1) && err.contains("no gateway listens"), "{err}");
}

/// A signal has no response, so the operator only sees the log and the metric.
#[tokio::test]
async fn a_signal_with_an_invalid_file_keeps_the_settings() {
    let upstream = Upstream::start();
    let (served, folder, text) = served(&upstream, |text| text);
    let closed = text.replace("public = true", "public = false");
    for (failed, torn, says) in [
        (1.0, format!("{closed}\n[[route]]\npath = 7\nupstraem = \"x\"\n"), "did you mean `upstream`?"),
        (2.0, format!("{closed}\n[[route"), "unclosed array table"),
    ] {
        write(folder.path(), &torn);
        served.program.signal("HUP");
        let done = async || metric(&served, "bearward_reloads_total{outcome=\"failed\"}").await == failed;
        soon("the failure is counted", done).await;
        served.program.wait_for_stderr("not reloaded; the current settings stay active");
        served.program.wait_for_stderr(says);
        assert_eq!(metric(&served, "bearward_reload_succeeded").await, 0.0);
        assert_eq!(served.client().get("/").await.status, 200, "the settings are unchanged");
    }
    write(folder.path(), &closed);
    served.program.signal("HUP");
    soon("the settings are active", async || served.client().get("/").await.status == 401).await;
    assert_eq!(metric(&served, "bearward_reload_succeeded").await, 1.0);
}

#[tokio::test]
async fn a_reload_needs_the_admin_token_and_a_post() {
    let upstream = Upstream::start();
    let (served, _folder, _) = served(&upstream, |text| text);
    let unauthenticated = crate::support::Client::http1(served.admin).host("localhost");
    assert_eq!(unauthenticated.post("/admin/v1/reload", &json!({})).await.status, 401);
    assert_eq!(served.admin_client().get("/admin/v1/reload").await.status, 405);
}

/// About the file, and about what the reload has tried.
#[tokio::test]
async fn the_command_and_the_log_report_warnings() {
    let upstream = Upstream::start();
    let (served, folder, text) = served(&upstream, |text| text);
    let run = |arguments: &[&str]| parts(bearward(folder.path(), arguments));
    let issuer = "[[issuer]]\nissuer = \"https://login.example\"\naudience = \"any\"\nalgorithms = [\"ES256\"]\n\
                  jwks_url = \"http://127.0.0.1:1/keys\"\nstartup = \"continue\"\nmax_lifetime = \"10m\"\n";
    write(folder.path(), &format!("{text}\n{issuer}"));
    let (status, out, err) = run(&["reload"]);
    assert_eq!((status, out.starts_with("reloaded; changed: issuer\n")), (Some(0), true), "{out}");
    for expected in
        ["warning: gateway.toml:", "tokens for every other service", "warning: https://login.example: cannot fetch"]
    {
        assert!(err.contains(expected), "{expected} is not in\n{err}");
    }
    served.program.wait_for_stderr("the reloaded configuration has a warning");
    let (_, out, _) = run(&["reload", "--json"]);
    let out: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(out["warnings"].as_array().map(Vec::len), Some(2), "{out}");
    let (status, _, err) = run(&["reload", "--dry-run"]);
    assert!(status == Some(0) && err.contains("tokens for every other service"), "{err}");
}
