//! Arguments, help, and `bearward check`.

use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, folder_with, printed, text};
use crate::support::files::names;
use crate::support::program::bearward;

const GOOD: &str = "[[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n";
const BAD: &str = "workers = \"four\"\nunknown = 1\n[[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n";

#[test]
fn help_names_every_command_and_option() {
    let folder = TempDir::new().expect("a folder");
    for (arguments, expected) in [
        (&["--help"][..], &["serve", "check", "demo", "token", "--version"][..]),
        (&["serve", "--help"], &["--config", "gateway.toml"]),
        (&["check", "--help"], &["--config", "--json", "--deny-warnings"]),
        (&["demo", "--help"], &["echo"]),
        (&["token", "--help"], &["issue", "list", "revoke"]),
        (&["token", "issue", "--help"], &["--config", "--subject", "--scope", "--label", "--client-id", "--json"]),
        (&["token", "list", "--help"], &["--config", "--subject", "--client-id", "--resource", "--json"]),
        (
            &["token", "revoke", "--help"],
            &["--config", "[TOKEN_ID]", "--subject", "--client-id", "--jti", "--all", "--issuer", "--before", "--json"],
        ),
    ] {
        let help = printed(&bearward(folder.path(), arguments));
        for expected in expected {
            assert!(help.contains(expected), "{expected} is not in the help of {arguments:?}:\n{help}");
        }
    }
    let version = printed(&bearward(folder.path(), &["--version"]));
    assert_eq!(version, format!("bearward {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_arguments_end_with_status_2() {
    let folder = folder_with(GOOD);
    for arguments in [
        &[][..],
        &["start"],
        &["serve", "--port", "1"],
        &["serve", "gateway.toml"],
        &["token"],
        &["token", "issue"],
        &["token", "revoke"],
        &["token", "list", "--subject"],
    ] {
        let message = complaint(&bearward(folder.path(), arguments), 2);
        assert!(message.contains("--help") || message.contains("Usage:"), "{arguments:?}: {message}");
    }
    assert_eq!(names(folder.path()), ["gateway.toml"]);
}

#[test]
fn check_reports_the_errors_and_creates_no_file() {
    let good = folder_with(GOOD);
    assert_eq!(printed(&bearward(good.path(), &["check"])), "gateway.toml: no errors\n");
    assert_eq!(printed(&bearward(good.path(), &["check", "--json"])), "[]\n");

    let bad = folder_with(BAD);
    let message = complaint(&bearward(bad.path(), &["check"]), 2);
    for expected in ["--> gateway.toml:1:11", "--> gateway.toml:2:1", "unknown", "2 errors in gateway.toml"] {
        assert!(message.contains(expected), "{expected} is not in\n{message}");
    }
    let output = bearward(bad.path(), &["check", "--json"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), ""));
    let faults: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(faults.as_array().map(Vec::len), Some(2), "{faults}");
    assert_eq!((&faults[0]["line"], &faults[0]["column"]), (&1.into(), &11.into()));

    let file = bad.path().join("gateway.toml").display().to_string();
    let message = complaint(&bearward(good.path(), &["check", "--config", &file]), 2);
    assert!(message.contains(&format!("--> {file}:1:11")), "{message}");
    let message = complaint(&bearward(good.path(), &["check", "--config", "absent.toml"]), 2);
    assert!(message.contains("absent.toml") && message.contains("No such file"), "{message}");
    for folder in [good, bad] {
        assert_eq!(names(folder.path()), ["gateway.toml"]);
    }
}
