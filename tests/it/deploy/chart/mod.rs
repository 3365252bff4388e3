//! The chart in `deploy/chart`, rendered by Helm 3 and Helm 4.

mod commands;
mod examples;
pub mod pod;
mod rendered;
mod values;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use self::pod::of_kind;
use super::gateway_api::resources;
use crate::support::files::{blocks, output_text};
use crate::support::source;

/// `tests/run` takes them out of packages.
const PROGRAMS: [&str; 2] = ["helm-3", "helm-4"];
const CHART: &str = "deploy/chart";
const PAGE: &str = "deploy/kubernetes.md";

fn program(name: &str) -> PathBuf {
    let path = source::root().join("target/helm").join(name);
    assert!(path.exists(), "Helm is missing: run tests/run");
    path
}

/// Runs Helm. Returns what it printed, or its error.
fn run(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program(name)).args(arguments).current_dir(source::root()).output().expect("it runs");
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).expect("UTF-8"))
    } else {
        Err(output_text(&output))
    }
}

/// The files that kubernetes.md tells the operator to write: the configuration and the values.
struct Operator {
    folder: TempDir,
}

impl Operator {
    fn new() -> Operator {
        let folder = TempDir::new().expect("a folder");
        let page = source::read(PAGE);
        for (name, language) in [("gateway.toml", "toml"), ("values.yaml", "yaml")] {
            fs::write(folder.path().join(name), &blocks(&page, language)[0]).expect("written");
        }
        Operator { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Renders the chart with these files and more arguments.
    fn render(&self, name: &str, more: &[&str]) -> Result<String, String> {
        let config = format!("config={}", self.path("gateway.toml"));
        let values = self.path("values.yaml");
        let arguments = ["template", "bearward", CHART, "--values", &values, "--set-file", &config];
        run(name, &[&arguments, more].concat())
    }
}

/// Renders an example. The release has the name that the page gives it.
fn example(name: &str, example: &str) -> String {
    let release = if example == "gateway-api" { "bearward-auth" } else { "bearward" };
    let values = format!("{CHART}/examples/{example}.values.yaml");
    run(name, &["template", release, CHART, "--values", &values]).unwrap_or_else(|error| panic!("{example}: {error}"))
}

/// The specification of the pods in a rendered chart.
fn pods(rendered: &str) -> Value {
    of_kind(&resources(rendered), "Deployment")["spec"]["template"].clone()
}
