//! The pages for operators, folders, and what a program has printed.

use std::fs;
use std::path::Path;
use std::process::Output;

use super::certificates::Authority;
use super::source;

/// README.md and the pages in `deploy/`: the path of each, and its text.
pub fn pages() -> Vec<(String, String)> {
    let names = names(&source::root().join("deploy"));
    let in_deploy = names.into_iter().filter(|name| name.ends_with(".md")).map(|name| format!("deploy/{name}"));
    let pages: Vec<_> = ["README.md".to_owned()].into_iter().chain(in_deploy).collect();
    assert!(pages.len() > 10, "the pages are gone: {pages:?}");
    pages.into_iter().map(|path| (path.clone(), source::read(path))).collect()
}

/// The code blocks of this language, without their indentation.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some((indent, opened)) = line.split_once("```") else { continue };
        let body = lines.by_ref().take_while(|line| line.trim() != "```");
        let body: Vec<&str> = body.map(|line| line.strip_prefix(indent).unwrap_or(line)).collect();
        if opened == language {
            blocks.push(format!("{}\n", body.join("\n")));
        }
    }
    blocks
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// What a program has printed to both outputs.
pub fn output_text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}

/// The certificates that the pages and examples name: the gateway's own, a client certificate, and the CA of both.
pub fn write_certificates(authority: &Authority, folder: &Path) {
    fs::create_dir_all(folder).expect("created");
    authority.sign("gateway.example").write(folder, "own");
    for (made, named) in [("own.pem", "fullchain.pem"), ("own.key", "key.pem")] {
        fs::rename(folder.join(made), folder.join(named)).expect("renamed");
    }
    authority.sign("client.example").write(folder, "client");
    fs::write(folder.join("ca.pem"), authority.pem()).expect("written");
}
