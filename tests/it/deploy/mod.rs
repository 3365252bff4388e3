//! The files in `deploy/` and the README: units, pages and examples, as far as they run without systemd or Docker.

mod chart;
mod commands;
mod examples;
mod gateway_api;
pub mod pages;
mod recipes;
mod replicas;
mod runbooks;
mod stream_recipes;

use std::fs;
use std::process::{Command, Output};

use crate::support::certificates::Authority;
use crate::support::files::{blocks, names, output_text, write_certificates};
use crate::support::program::{GatewayProcess, Program};
use crate::support::source;

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
    let printed = output_text(&output);
    assert!(output.status.success() && !printed.contains("bearward"), "systemd-analyze verify: {printed}");
}

#[test]
fn the_exposure_of_the_unit_is_low() {
    let path = source::root().join("deploy/bearward.service");
    let output = systemd_analyze(&["security", "--offline=true", "--no-pager", path.to_str().expect("a UTF-8 path")]);
    let printed = output_text(&output);
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
    let block = blocks(&page, "toml").remove(0);
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

fn systemd_analyze(arguments: &[&str]) -> Output {
    let output = Command::new("systemd-analyze").args(arguments).env("LC_ALL", "C.UTF-8").output();
    output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; tests/run installs it"))
}
