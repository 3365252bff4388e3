//! The same program gives the same bytes: each package is built twice, at different times and in different folders.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::{Package, run};
use crate::support::files::names;
use crate::support::source;

#[test]
fn each_package_is_the_same_when_built_again() {
    std::thread::scope(|scope| {
        for kind in ["deb", "rpm", "tar", "image"] {
            scope.spawn(move || {
                let first = Package::shared(kind);
                let second = Package::build(kind, 1);
                assert_eq!(first.name(), second.name());
                let page = source::read("deploy/packages.md");
                let is_named = page.contains(&format!("`{}`", first.name()));
                assert!(is_named || cfg!(not(target_arch = "x86_64")), "packages.md does not name {}", first.name());
                let [first, second] = [&*first, &second].map(|package| fs::read(&package.file).expect("a file"));
                assert!(first == second, "{kind}: two builds differ");
            });
        }
    });
}

#[test]
fn the_archive_has_all_that_an_installation_needs() {
    let package = Package::shared("tar");
    let listed = run(Command::new("tar").args(["--list", "--verbose", "--file", package.path()]));
    let lines: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert!(lines.iter().all(|line| line[1] == "0/0"), "files of other users:\n{listed}");
    let paths: Vec<_> = lines.iter().filter_map(|line| line[5].split_once('/').map(|(_, path)| path)).collect();
    assert!(paths.is_sorted_by(|a, b| a.split('/').lt(b.split('/'))), "not sorted: {paths:?}");

    let packed: BTreeSet<_> = paths.into_iter().filter(|path| !path.is_empty() && !path.ends_with('/')).collect();
    let program = lines.iter().find(|line| line[5].ends_with("/bearward")).expect("the program");
    assert_eq!(program[0], "-rwxr-xr-x");
    for path in ["LICENSE", "README.md", "CHANGELOG.md", "gateway.toml", "deploy/bearward.sysusers"] {
        assert!(packed.contains(path), "{path} is missing");
    }
    // The pages link to each other, and to the examples.
    for folder in [
        "deploy",
        "deploy/man",
        "deploy/completions",
        "deploy/beside",
        "deploy/chart",
        "deploy/chart/examples",
        "deploy/chart/templates",
        "deploy/compose",
        "deploy/examples",
        "deploy/kubernetes",
    ] {
        let is_read =
            |name: &str| [".md", ".svg", ".json", ".yml", ".yaml"].iter().any(|ending| name.ends_with(ending));
        let belongs = |name: &&String| folder != "deploy" || is_read(name) || name.starts_with("bearward.");
        let is_file = |name: &&String| source::root().join(folder).join(name).is_file();
        for name in names(&source::root().join(folder)).iter().filter(belongs).filter(is_file) {
            assert!(packed.contains(format!("{folder}/{name}").as_str()), "{folder}/{name} is missing");
        }
    }
}
