//! Arguments, help, and `bearward check`.

use serde_json::Value;
use tempfile::TempDir;

use super::{complaint, folder_with, names_in, printed, text};
use crate::support::program::bearward;

const GOOD: &str = "[[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n";
const BAD: &str = "workers = \"four\"\nunknown = 1\n[[upstream]]\nservers = [\"http://127.0.0.1:3000\"]\n";

#[test]
fn help_names_every_command_and_option() {
    let folder = TempDir::new().expect("a folder");
    for (arguments, says) in [
        (&["--help"][..], &["serve", "check", "demo", "token", "--version"][..]),
        (&["serve", "--help"], &["--config", "gateway.toml"]),
        (&["check", "--help"], &["--config", "--json"]),
        (&["demo", "--help"], &["echo"]),
        (&["token", "--help"], &["issue", "list", "revoke"]),
        (&["token", "issue", "--help"], &["--config", "--subject", "--scope", "--label", "--client-id", "--json"]),
        (&["token", "list", "--help"], &["--config", "--subject", "--json"]),
        (
            &["token", "revoke", "--help"],
            &["--config", "[TOKEN_ID]", "--subject", "--jti", "--all", "--issuer", "--before", "--json"],
        ),
    ] {
        let help = printed(&bearward(folder.path(), arguments));
        for says in says {
            assert!(help.contains(says), "{says} is not in the help of {arguments:?}:\n{help}");
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
        let said = complaint(&bearward(folder.path(), arguments), 2);
        assert!(said.contains("--help") || said.contains("Usage:"), "{arguments:?}: {said}");
    }
    assert_eq!(names_in(folder.path()), ["gateway.toml"]);
}

#[test]
fn check_says_whether_the_configuration_is_right_and_changes_nothing() {
    let good = folder_with(GOOD);
    assert_eq!(printed(&bearward(good.path(), &["check"])), "gateway.toml: no errors\n");
    assert_eq!(printed(&bearward(good.path(), &["check", "--json"])), "[]\n");

    let bad = folder_with(BAD);
    let said = complaint(&bearward(bad.path(), &["check"]), 2);
    for says in ["--> gateway.toml:1:11", "--> gateway.toml:2:1", "unknown", "2 errors in gateway.toml"] {
        assert!(said.contains(says), "{says} is not in\n{said}");
    }
    let output = bearward(bad.path(), &["check", "--json"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), ""));
    let faults: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(faults.as_array().map(Vec::len), Some(2), "{faults}");
    assert_eq!((&faults[0]["line"], &faults[0]["column"]), (&1.into(), &11.into()));

    let file = bad.path().join("gateway.toml").display().to_string();
    let said = complaint(&bearward(good.path(), &["check", "--config", &file]), 2);
    assert!(said.contains(&format!("--> {file}:1:11")), "{said}");
    let said = complaint(&bearward(good.path(), &["check", "--config", "absent.toml"]), 2);
    assert!(said.contains("absent.toml") && said.contains("No such file"), "{said}");
    for folder in [good, bad] {
        assert_eq!(names_in(folder.path()), ["gateway.toml"]);
    }
}
