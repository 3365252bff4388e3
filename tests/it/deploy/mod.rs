//! The files in `deploy/` and the README: units, pages and examples, as far as they run without systemd or Docker.

mod commands;
mod examples;
mod gateway_api;
pub mod pages;
mod recipes;
mod replicas;
mod stream_recipes;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::house::source;
use crate::support::certificates::Authority;
use crate::support::program::{GatewayProcess, Program};

/// systemd 252 rates the unit at 1.4 of 10. Later versions rate differently, so the bound is the next whole number.
const MAX_EXPOSURE: f64 = 2.0;

#[test]
fn systemd_accepts_the_units() {
    let unit = source::read("deploy/bearward.service");
    // `verify` looks for the program. The one of this build replaces the installed one.
    let installed = "=/usr/local/bin/bearward ";
    for command in ["ExecStart", "ExecReload"] {
        assert!(unit.contains(&format!("{command}{installed}")), "{command} is no longer /usr/local/bin/bearward");
    }
    let built = format!("={} ", env!("CARGO_BIN_EXE_bearward"));
    let folder = tempfile::tempdir().expect("a folder for the units");
    let [service, socket] = ["bearward.service", "bearward.socket"].map(|name| folder.path().join(name));
    fs::write(&service, unit.replace(installed, &built)).expect("the unit can be written");
    fs::write(&socket, source::read("deploy/bearward.socket")).expect("the unit can be written");

    // Faults of other units on this machine do not count.
    let [service, socket] = [&service, &socket].map(|path| path.to_str().expect("a UTF-8 path"));
    let output = systemd_analyze(&["verify", "--man=no", "--recursive-errors=no", service, socket]);
    let printed = text(&output);
    assert!(output.status.success() && !printed.contains("bearward"), "systemd-analyze verify: {printed}");
}

#[test]
fn the_exposure_of_the_unit_is_low() {
    let path = source::root().join("deploy/bearward.service");
    let output = systemd_analyze(&["security", "--offline=true", "--no-pager", path.to_str().expect("a UTF-8 path")]);
    let printed = text(&output);
    let exposure = printed
        .lines()
        .find_map(|line| line.split_once("Overall exposure level for bearward.service: "))
        .and_then(|(_, level)| level.split(' ').next()?.parse::<f64>().ok());
    let exposure = exposure.unwrap_or_else(|| panic!("systemd-analyze security prints no exposure:\n{printed}"));
    assert!(exposure < MAX_EXPOSURE, "exposure {exposure}:\n{printed}");
}

/// The unit allows writes only to the state and log folders.
#[test]
fn the_installed_configuration_writes_only_to_its_state_folder() {
    let page = source::read("deploy/install.md");
    let block = pages::blocks(&page, "toml").remove(0);
    let [etc, state] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let state_path = state.path().to_str().expect("a UTF-8 path");
    let text = block.replace("/var/lib/bearward", state_path).replace("0.0.0.0:8443", "127.0.0.1:0");
    let text = text.replace("[admin]", "[admin]\naddress = \"127.0.0.1:0\"");
    fs::write(etc.path().join("gateway.toml"), text).expect("written");
    let tls = etc.path().join("tls");
    write_certificates(&Authority::new(), &tls);
    let before = names(&tls);
    let served = GatewayProcess::wait_for(Program::start(etc.path(), &["serve"]), state.path());
    assert_eq!(served.addresses.len(), 1);
    drop(served);
    assert_eq!(names(etc.path()), ["gateway.toml", "tls"]);
    assert_eq!(names(&tls), before);
    assert!(names(state.path()).contains(&"bearward.secret".to_owned()));
}

/// The certificates that the pages and examples name: the gateway's own, a client certificate, and the CA of both.
pub(crate) fn write_certificates(authority: &Authority, folder: &Path) {
    fs::create_dir_all(folder).expect("created");
    authority.sign("gateway.example").write(folder, "own");
    for (made, named) in [("own.pem", "fullchain.pem"), ("own.key", "key.pem")] {
        fs::rename(folder.join(made), folder.join(named)).expect("renamed");
    }
    authority.sign("client.example").write(folder, "client");
    fs::write(folder.join("ca.pem"), authority.pem()).expect("written");
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

fn systemd_analyze(arguments: &[&str]) -> Output {
    let output = Command::new("systemd-analyze").args(arguments).env("LC_ALL", "C.UTF-8").output();
    output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; tests/run installs it"))
}

pub(crate) fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}
