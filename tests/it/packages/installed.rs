//! The packages for Debian and RPM, installed into a fresh system, upgraded, removed and purged. The scripts beside
//! this file run in it: mmdebstrap makes it and removes it again. Below `target` is an archive of the system of before.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{Package, on_this_machine, output};
use crate::support::Upstream;
use crate::support::source;

#[tokio::test]
async fn the_packages_install_run_upgrade_and_leave() {
    let backend = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    let (text, address) = on_this_machine(&source::read("deploy/package/gateway.toml"), &backend);
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let [deb, rpm] = ["deb", "rpm"].map(Package::shared);
    let newer = Package::build("deb", 2);

    let scripts = source::root().join("tests/it/packages");
    let mut bash = Command::new("bash");
    bash.arg(scripts.join("fresh_system.sh")).arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("fresh-system"));
    bash.args(["installed_deb.sh", "installed_rpm.sh"].map(|name| scripts.join(name)));
    bash.env("DEB", deb.path()).env("NEWER", newer.path()).env("RPM", rpm.path());
    bash.env("CONFIGURATION", folder.path().join("gateway.toml")).env("ADDRESS", address.to_string());
    let output = tokio::task::spawn_blocking(move || output(&mut bash)).await.expect("it ran");
    let printed = crate::support::files::output_text(&output);
    assert!(output.status.success(), "{printed}");
    // Each script says so after its last step.
    assert_eq!(printed.matches("all steps passed").count(), 2, "{printed}");
    assert_eq!(backend.only_request().header("x-auth-subject"), Some("alice"));
}
