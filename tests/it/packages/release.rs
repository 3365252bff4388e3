//! The preparation of a release, and the place where `cargo binstall` looks for it.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::run;
use crate::support::files::output_text;
use crate::support::source;

/// A repository with the files that a release changes, and a `cargo` that does nothing.
struct Repository(TempDir);

impl Repository {
    fn new(changelog: &str) -> Repository {
        let folder = TempDir::new().expect("a folder");
        let chart = "deploy/chart/Chart.yaml";
        for path in [".ci/release", "Cargo.toml", "deploy/packages.md", chart, "deploy/kubernetes/bearward.yaml"] {
            let to = folder.path().join(path);
            fs::create_dir_all(to.parent().expect("a folder")).expect("created");
            fs::copy(source::root().join(path), to).expect("copied");
        }
        fs::write(folder.path().join("CHANGELOG.md"), changelog).expect("written");
        let repository = Repository(folder);
        let commands = "mkdir .git-bin && printf '#!/bin/sh\\n' >.git-bin/cargo && chmod 755 .git-bin/cargo && \
                        git init --quiet && git config user.name test && git config user.email test@localhost && \
                        echo .git-bin >.gitignore && git add --all && git commit --quiet --message first";
        run(Command::new("bash").args(["-c", commands]).current_dir(repository.path()));
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path().join(path)).expect("a file")
    }

    fn release(&self, version: &str) -> std::process::Output {
        let line = "PATH=$PWD/.git-bin:$PATH exec .ci/release \"$0\"";
        super::output(Command::new("bash").args(["-c", line, version]).current_dir(self.path()))
    }

    fn git(&self, arguments: &[&str]) -> String {
        run(Command::new("git").args(arguments).current_dir(self.path()))
    }
}

#[test]
fn a_release_gives_the_changes_its_heading_and_a_tag() {
    let repository =
        Repository::new("# Changelog\n\n## Unreleased\n\n- A change.\n\n## 0.0.9 (2026-01-01)\n\n- Old.\n");
    let output = repository.release("7.8.9");
    assert!(output.status.success(), "{}", output_text(&output));
    let changelog = repository.read("CHANGELOG.md");
    let (before, after) = changelog.split_once("## 7.8.9 (").expect("a heading");
    assert_eq!(before, "# Changelog\n\n## Unreleased\n\n");
    assert!(after.contains(")\n\n- A change.\n\n## 0.0.9"), "{changelog}");
    assert!(repository.read("Cargo.toml").contains("\nversion = \"7.8.9\"\n"));
    assert!(repository.read("deploy/packages.md").contains("bearward_7.8.9-1_amd64.deb"));
    let chart = repository.read("deploy/chart/Chart.yaml");
    assert!(chart.contains("\nversion: 7.8.9\nappVersion: \"7.8.9\"\n"), "{chart}");
    assert!(repository.read("deploy/kubernetes/bearward.yaml").contains(" image: registry.example/bearward:7.8.9\n"));
    assert_eq!(repository.git(&["tag", "--list"]), "v7.8.9\n");
    assert_eq!(repository.git(&["status", "--porcelain"]), "");

    let again = repository.release("7.8.9");
    assert!(output_text(&again).contains("has version 7.8.9 already"), "{}", output_text(&again));
}

#[test]
fn a_release_without_changes_is_rejected() {
    let repository = Repository::new("# Changelog\n\n## Unreleased\n\n## 0.0.9 (2026-01-01)\n\n- Old.\n");
    let output = repository.release("7.8.9");
    assert!(
        !output.status.success() && output_text(&output).contains("no unreleased change"),
        "{}",
        output_text(&output)
    );
    assert_eq!(repository.git(&["tag", "--list"]), "");
}

/// The names are those of `deploy/package/tar`.
#[test]
fn binstall_looks_for_the_archive_of_the_release() {
    let manifest: toml::Table = source::read("Cargo.toml").parse().expect("TOML");
    // binstall reads `{ repo }` from it.
    assert!(manifest["package"]["repository"].as_str().is_some_and(|url| url.starts_with("https://")));
    let binstall = &manifest["package"]["metadata"]["binstall"];
    let archive = source::read("deploy/package/tar");
    assert!(archive.contains("name=bearward-$version-$machine-unknown-linux-gnu\n"));
    assert!(archive.contains("put_program \"$root/bearward\"\n") && archive.contains("root=$work/$name\n"));
    let name = "{ name }-{ version }-{ target }";
    let url = format!("{{ repo }}/releases/download/v{{ version }}/{name}.tar.gz");
    assert_eq!(binstall["pkg-url"].as_str(), Some(url.as_str()));
    assert_eq!(binstall["bin-dir"].as_str(), Some(format!("{name}/{{ bin }}").as_str()));
}

/// A scenario that the bench does not know would end it only in the release.
#[test]
fn the_packages_get_a_program_with_a_profile_of_known_scenarios() {
    let script = source::read("deploy/package/program");
    let scenarios = source::read("benches/load/scenario.rs");
    let named: Vec<_> = script.split("--scenario ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    assert!(named.len() > 8, "{named:?}");
    for name in named.iter().filter(|name| **name != "es256") {
        assert!(scenarios.contains(&format!("named(\"{name}\")")), "{name}");
    }
    let release = source::read(".github/workflows/release.yml");
    assert!(release.contains("deploy/package/program)\n") && !release.contains("target/release/bearward"));
}
