//! The linters of Debian and RPM find nothing, and the packages have the files of each other.

use std::collections::BTreeSet;
use std::process::Command;

use super::{Package, output, run};
use crate::support::source;

#[test]
fn lintian_finds_nothing_in_the_deb() {
    let package = Package::shared("deb");
    let mut lintian = Command::new("lintian");
    let output = output(lintian.args(["--fail-on", "error,warning", "--allow-root", package.path()]));
    let printed = crate::support::files::output_text(&output);
    assert!(output.status.success() && printed.is_empty(), "lintian: {printed}");
}

#[test]
fn rpmlint_finds_nothing_in_the_rpm() {
    let package = Package::shared("rpm");
    let config = source::root().join("deploy/package/rpmlint.toml");
    let printed = run(Command::new("rpmlint").arg("--config").arg(config).arg(package.path()));
    assert!(printed.contains("0 errors, 0 warnings"), "rpmlint: {printed}");
}

/// Only documents about the package itself, and the folder of zsh, have other places.
#[test]
fn the_deb_and_the_rpm_have_the_same_files() {
    let [deb, rpm] = ["deb", "rpm"].map(Package::shared);
    let of_deb = files(&run(Command::new("dpkg-deb").args(["--contents", deb.path()])));
    let list = "[%{FILEMODES:perms} %{FILENAMES}\\n]";
    let of_rpm = files(&run(Command::new("rpm").args(["--query", "--package", "--queryformat", list, rpm.path()])));
    let only_deb: Vec<_> = of_deb.difference(&of_rpm).collect();
    let only_rpm: Vec<_> = of_rpm.difference(&of_deb).collect();
    assert_eq!(
        only_deb,
        [
            "/usr/share/doc/bearward/changelog.Debian.gz",
            "/usr/share/doc/bearward/changelog.gz",
            "/usr/share/doc/bearward/copyright",
            "/usr/share/lintian/overrides/bearward",
            "/usr/share/zsh/vendor-completions/_bearward",
        ]
    );
    assert_eq!(
        only_rpm,
        [
            "/usr/share/doc/bearward/CHANGELOG.md",
            "/usr/share/licenses/bearward/LICENSE",
            "/usr/share/zsh/site-functions/_bearward",
        ]
    );
}

/// The paths of the files in lines that begin with the permissions and end with the path.
fn files(lines: &str) -> BTreeSet<String> {
    let files = lines.lines().filter(|line| line.starts_with('-'));
    let files = files.filter_map(|line| line.split(' ').next_back());
    files.map(|path| path.trim_start_matches('.').to_owned()).collect()
}
