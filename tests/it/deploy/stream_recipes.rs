//! The recipes of `deploy/streams.md`: the code of the page runs in Node, with the libraries that it names.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use bytes::Bytes;
use http::Method;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::recipes::{Server, routes, section};
use crate::support::files::blocks;
use crate::support::source;
use crate::support::wire::TIMEOUT;
use crate::support::{Client, Gateway, Upstream};

const PAGE: &str = "deploy/streams.md";
const HEADING: &str = "## Libraries in browsers";
const SERVER: &str = include_str!("streams_server.mjs");

/// What a page has: its address, and a function that gets a token. Here, the tokens are given, and each call is
/// printed. The pauses of the page and of the libraries are as short as they may be.
const BEFORE: &str = r#"
globalThis.location = new URL(process.env.GATEWAY);
globalThis.WebSocket = (await import("ws")).WebSocket;
Math.random = () => 0;
const tokens = process.env.TOKENS.split(",");
let calls = 0;
const accessToken = async () => {
  console.log(`token ${++calls}`);
  return tokens[calls - 1];
};
"#;
const AFTER_SOCKET_IO: &str = r#"
socket.on("subject", (subject) => console.log(`socket of ${subject}`));
"#;
const AFTER_GRAPHQL: &str = r#"
for await (const result of client.iterate({ query: "{ subject }" })) console.log(`query of ${result.data.subject}`);
"#;

/// A program in Node, and the lines that it prints.
struct Script {
    _process: Server,
    _folder: TempDir,
    lines: UnboundedReceiver<String>,
}

impl Script {
    fn start(code: &str, variables: &[(&str, &str)]) -> Script {
        let libraries = source::root().join("target/browser/node_modules");
        assert!(libraries.join("socket.io").is_dir(), "{} is incomplete; tests/run installs it", libraries.display());
        let folder = TempDir::new().expect("a folder");
        symlink(libraries, folder.path().join("node_modules")).expect("a link");
        std::fs::write(folder.path().join("script.mjs"), code).expect("written");
        let mut command = Command::new("node");
        command.arg("script.mjs").current_dir(folder.path()).envs(variables.iter().copied());
        let mut process = command.stdout(Stdio::piped()).spawn().expect("node is there");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (sender, lines) = unbounded_channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Script { _process: Server(process), _folder: folder, lines }
    }

    async fn next_line(&mut self) -> String {
        let line = tokio::time::timeout(TIMEOUT, self.lines.recv()).await.expect("it prints another line");
        line.expect("it runs")
    }

    async fn assert_next_lines(&mut self, expected: &[&str]) {
        for line in expected {
            assert_eq!(self.next_line().await, *line);
        }
    }
}

/// The block of code in the page that has this in it.
fn code(library: &str) -> String {
    let blocks = blocks(&section(PAGE, HEADING), "js");
    blocks.into_iter().find(|code| code.contains(library)).expect("it is in the page")
}

async fn backend_and_gateway() -> (Script, Gateway) {
    let mut backend = Script::start(SERVER, &[]);
    let address = format!("127.0.0.1:{}", backend.next_line().await);
    let gateway = Gateway::from_text(Gateway::config_text(&address, &routes(PAGE, HEADING)));
    (backend, gateway)
}

#[tokio::test]
async fn socket_io_reconnects_with_the_newest_token() {
    let (_backend, gateway) = backend_and_gateway().await;
    let [first, second] = [gateway.issue("alice", "").await, gateway.issue("alice", "").await];
    let url = format!("http://{}", gateway.address());
    let tokens = format!("expired,{},{}", first.access, second.access);
    let program = [BEFORE, &code("socket.io-client"), AFTER_SOCKET_IO].concat();
    let mut page = Script::start(&program, &[("GATEWAY", &url), ("TOKENS", &tokens)]);
    page.assert_next_lines(&["token 1", "token 2", "socket of alice"]).await;
    let logout = gateway.client().bearer(&first.access).delete(&format!("/token/{}", first.token_id)).await;
    assert_eq!(logout.status, 200);
    page.assert_next_lines(&["token 3", "socket of alice"]).await;
}

#[tokio::test]
async fn graphql_ws_tries_again_with_the_newest_token() {
    let (_backend, gateway) = backend_and_gateway().await;
    let tokens = format!("expired,{}", gateway.issue("alice", "").await.access);
    let url = format!("http://{}", gateway.address());
    let shown = code("graphql-ws");
    let local = shown.replace("wss://app.example/", &format!("ws://{}/", gateway.address()));
    assert_ne!(local, shown, "the page has an address of its own");
    let program = [BEFORE, &local, AFTER_GRAPHQL].concat();
    let mut page = Script::start(&program, &[("GATEWAY", &url), ("TOKENS", &tokens)]);
    page.assert_next_lines(&["token 1", "token 2", "query of alice"]).await;
}

#[tokio::test]
async fn the_long_polling_of_socket_io_has_its_token_in_a_header() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &routes(PAGE, HEADING));
    let token = gateway.issue("alice", "").await.access;
    let polling = Client::http1(gateway.address()).bearer(&token);
    assert_eq!(polling.send(Method::GET, "/socket.io/?EIO=4&transport=polling", Bytes::new()).await.status, 200);
    Client::http1(gateway.address()).get("/socket.io/?EIO=4").await.assert_rejected(401, "unauthorized");
}
