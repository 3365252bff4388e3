//! The manifests for the filter ExternalAuth of the Gateway API. There is no cluster here: they are checked against the
//! types of the API, and their headers against what the gateway sends.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::source;

const MANIFESTS: [&str; 2] = ["deploy/beside/gateway-api.yaml", "deploy/beside/gateway-api-http.yaml"];
const TO_JSON: &str = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.stdin))))";

/// Runs a program with this input. Returns what it printed, and whether it succeeded.
fn run(command: &mut Command, input: &str) -> (String, bool) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("tests/run installs it");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    (String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(), output.status.success())
}

/// The resources of a manifest.
pub(super) fn resources(manifest: &str) -> Vec<Value> {
    let converted = run(Command::new("/usr/bin/python3").args(["-c", TO_JSON]), manifest);
    assert!(converted.1, "{}", converted.0);
    serde_json::from_str(&converted.0).expect("JSON")
}

/// The names of the valid routes in a manifest, or why one is not valid.
pub(super) fn check(manifest: &str) -> (String, bool) {
    let (json, valid) = run(Command::new("/usr/bin/python3").args(["-c", TO_JSON]), manifest);
    assert!(valid, "{json}");
    let installed = source::root().join("target/gateway-api");
    assert!(installed.exists(), "the types of the Gateway API are missing: run tests/run");
    let script = source::read("tests/it/deploy/gateway_api/check.mjs");
    run(Command::new("node").args(["--input-type=module", "--eval", &script]).current_dir(installed), &json)
}

#[test]
fn the_routes_follow_the_gateway_api() {
    for manifest in MANIFESTS {
        assert_eq!(check(&source::read(manifest)), ("HTTPRoute orders\n".into(), true), "{manifest}");
    }
}

/// Otherwise the test above could not fail.
#[test]
fn a_field_that_the_gateway_api_does_not_have_is_found() {
    for (manifest, right, wrong) in [
        (0, "protocol: GRPC", "protocol: gRPC"),
        (0, "protocol: GRPC", "protocol: HTTP"),
        (0, "grpc: {}", "http: {}"),
        (0, "grpc: {}", "grpc: {allowHeaders: [a]}"),
        (0, "grpc: {}", "grpc: {}\n            failOpen: true"),
        (0, "type: ExternalAuth", "type: ExtAuth"),
        (0, "backendRef: {name: bearward-auth, port: 8080}", "backendRef: {name: bearward-auth}"),
        (0, "backendRef: {name: bearward-auth, port: 8080}", "backendRef: {name: bearward-auth, port: \"8080\"}"),
        (0, "backendRef: {name", "backendRefs: {name"),
        (0, "type: Exact", "type: Precise"),
        (0, "hostnames:", "hosts:"),
        (0, "requestHeaderModifier:", "headerModifier:"),
        (0, "remove: [client-cert, client-cert-chain]", "remove: client-cert"),
        (1, "path: /auth", "path: /auth?x"),
        (1, "allowedResponseHeaders:", "allowedUpstreamHeaders:"),
    ] {
        let text = source::read(MANIFESTS[manifest]);
        assert!(text.contains(right), "{right}");
        assert!(!check(&text.replacen(right, wrong, 1)).1, "{wrong}");
    }
}

/// `envoy.yaml` has a pattern in their place. The Gateway API has none.
#[test]
fn the_route_over_http_copies_every_identity_header() {
    let text = source::read(MANIFESTS[1]);
    let (asked, answered) = text.split_once("allowedResponseHeaders:").expect("both lists");
    let names = bearward::auth::identity::DEFAULT_NAMES.iter().map(http::HeaderName::as_str);
    for name in names.chain(["x-auth-observed"]) {
        assert!(answered.contains(&format!("- {name}\n")), "{name}");
        assert!(asked.contains(&format!("- {}\n", name.replace('-', "_"))), "{name}");
    }
    assert!(answered.contains("- authorization\n") && answered.contains("- x-request-id\n"));
}

/// Backends that read CGI variables take both spellings for one name.
#[test]
fn the_route_over_http_shows_the_gateway_each_rejected_header_with_underscores() {
    let text = source::read(MANIFESTS[1]);
    let (_, rejected) = text.split_once("# The gateway rejects a request with one of these.\n").expect("the comment");
    let (rejected, _) = rejected.split_once("allowedResponseHeaders:").expect("both lists");
    let others = rejected.lines().filter_map(|line| line.trim().strip_prefix("- ")).filter(|name| name.contains('-'));
    // The manifest removes these two in their own spelling.
    for name in others.chain(["client-cert", "client-cert-chain"]) {
        assert!(rejected.contains(&format!("- {}\n", name.replace('-', "_"))), "{name}");
    }
}
