//! The files in `deploy/`, as far as they can be tried without systemd or a container.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::house::source;
use crate::support::certificates::Authority;
use crate::support::program::{Program, Served};

/// systemd 252 gives the unit 1.4 of 10. Later versions weigh and ask differently, so the bound is the next whole number.
const MOST_EXPOSURE: f64 = 2.0;

#[test]
fn systemd_accepts_the_units_without_a_word() {
    let unit = source::read("deploy/bearward.service");
    // verify asks whether the program is there; the one of this build stands in for the installed one.
    let installed = "=/usr/local/bin/bearward ";
    for command in ["ExecStart", "ExecReload"] {
        assert!(unit.contains(&format!("{command}{installed}")), "{command} is no longer /usr/local/bin/bearward");
    }
    let built = format!("={} ", env!("CARGO_BIN_EXE_bearward"));
    let folder = tempfile::tempdir().expect("a folder for the units");
    let [service, socket] = ["bearward.service", "bearward.socket"].map(|name| folder.path().join(name));
    fs::write(&service, unit.replace(installed, &built)).expect("the unit can be written");
    fs::write(&socket, source::read("deploy/bearward.socket")).expect("the unit can be written");

    // What other units of this machine get wrong is not ours.
    let [service, socket] = [&service, &socket].map(|path| path.to_str().expect("a UTF-8 path"));
    let output = systemd_analyze(&["verify", "--man=no", "--recursive-errors=no", service, socket]);
    let said = text(&output);
    assert!(output.status.success() && !said.contains("bearward"), "systemd-analyze verify: {said}");
}

#[test]
fn the_unit_exposes_little() {
    let path = source::root().join("deploy/bearward.service");
    let output = systemd_analyze(&["security", "--offline=true", "--no-pager", path.to_str().expect("a UTF-8 path")]);
    let said = text(&output);
    let exposure = said
        .lines()
        .find_map(|line| line.split_once("Overall exposure level for bearward.service: "))
        .and_then(|(_, level)| level.split(' ').next()?.parse::<f64>().ok());
    let exposure = exposure.unwrap_or_else(|| panic!("systemd-analyze security says no exposure:\n{said}"));
    assert!(exposure < MOST_EXPOSURE, "exposure {exposure}:\n{said}");
}

/// Where the service may not write, nothing is.
#[test]
fn the_configuration_of_the_operators_page_starts_and_leaves_its_folder_alone() {
    let page = source::read("deploy/README.md");
    let on_a_host = page.split_once("## On a host").expect("the heading").1;
    let block = on_a_host.split("```").find_map(|block| block.strip_prefix("toml\n")).expect("a configuration");
    let [etc, state] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let state_path = state.path().to_str().expect("a UTF-8 path");
    let text = block.replace("/var/lib/bearward", state_path).replace("0.0.0.0:8443", "127.0.0.1:0");
    let text = text.replace("[admin]", "[admin]\naddress = \"127.0.0.1:0\"");
    fs::write(etc.path().join("gateway.toml"), text).expect("written");
    let tls = etc.path().join("tls");
    fs::create_dir(&tls).expect("made");
    Authority::new().sign("gateway.example").write(&tls, "a");
    for (made, named) in [("a.pem", "fullchain.pem"), ("a.key", "key.pem")] {
        fs::rename(tls.join(made), tls.join(named)).expect("renamed");
    }
    let served = Served::of(Program::start(etc.path(), &["serve"]), state.path());
    assert_eq!(served.addresses.len(), 1);
    drop(served);
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        names
    };
    assert_eq!(names(etc.path()), ["gateway.toml", "tls"]);
    assert_eq!(names(&tls), ["fullchain.pem", "key.pem"]);
    assert!(names(state.path()).contains(&"bearward.secret".to_owned()));
}

fn systemd_analyze(arguments: &[&str]) -> Output {
    let output = Command::new("systemd-analyze").args(arguments).env("LC_ALL", "C.UTF-8").output();
    output.unwrap_or_else(|error| panic!("systemd-analyze: {error}; tests/run installs it"))
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}
