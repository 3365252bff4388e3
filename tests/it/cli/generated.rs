//! The man pages and completions in `deploy/` are those of the arguments. To write them after a change:
//! `BEARWARD_WRITE=1 cargo test --test programs cli::generated`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use crate::support::source;

/// The end of the page of the program itself, in roff.
const END_OF_THE_FIRST_PAGE: &str = r#".SH "EXIT STATUS"
0 for success, 1 for a failure or a negative result, 2 for an invalid configuration or argument, 3 for a result that is
not known.
.SH ENVIRONMENT
.TP
\fBBEARWARD_LOG\fR
Levels of the messages, such as \fBdebug\fR or \fBbearward::upstream=trace\fR.
.SH FILES
.TP
\fI/etc/bearward/gateway.toml\fR
The configuration of the service.
.TP
\fI/var/lib/bearward\fR
The database, the root secret and the admin token.
"#;

/// Files by their path below the folder of the sources.
type Files = BTreeMap<PathBuf, Vec<u8>>;

#[test]
fn the_man_pages_describe_every_command() {
    let mut pages = Files::new();
    let mut command = bearward::cli::command();
    // Gives each subcommand its full name, and --help.
    command.build();
    man_pages(&command, &mut pages);
    let names: Vec<_> = pages.keys().filter_map(|path| path.file_name()?.to_str()).collect();
    assert!(names.contains(&"bearward.1") && names.contains(&"bearward-token-issue.1"), "{names:?}");
    agree("deploy/man", &pages);
}

#[test]
fn the_completions_know_every_command() {
    // The names that the shells look for.
    let names = [
        (Shell::Bash, "deploy/completions/bearward.bash"),
        (Shell::Zsh, "deploy/completions/_bearward"),
        (Shell::Fish, "deploy/completions/bearward.fish"),
    ];
    let completions = names.map(|(shell, path)| {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut bearward::cli::command(), "bearward", &mut script);
        (PathBuf::from(path), script)
    });
    agree("deploy/completions", &Files::from(completions));
}

/// One page for a command and for each command below it.
fn man_pages(command: &clap::Command, pages: &mut Files) {
    let program = concat!("bearward ", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone()).source(program).manual("bearward");
    let mut text = Vec::new();
    page.render(&mut text).expect("a page is rendered into memory");
    if command.get_name() == "bearward" {
        text.extend(END_OF_THE_FIRST_PAGE.as_bytes());
    }
    pages.insert(Path::new("deploy/man").join(page.get_filename()), text);
    command.get_subcommands().for_each(|command| man_pages(command, pages));
}

/// The folder has these files and no other, with this text. With `BEARWARD_WRITE=1`, writes them first.
fn agree(folder: &str, expected: &Files) {
    let at = source::root().join(folder);
    let present = fs::read_dir(&at).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut present: Vec<_> = present.map(|name| Path::new(folder).join(name)).collect();
    if std::env::var_os("BEARWARD_WRITE").is_some_and(|value| value == "1") {
        for stale in present.iter().filter(|path| !expected.contains_key(*path)) {
            fs::remove_file(source::root().join(stale)).expect("a stale file is removed");
        }
        for (path, text) in expected {
            fs::write(source::root().join(path), text).expect("written");
        }
        present = expected.keys().cloned().collect();
    }
    present.retain(|path| !expected.contains_key(path));
    let differs =
        |(path, text): &(&PathBuf, &Vec<u8>)| fs::read(source::root().join(path)).ok().as_ref() != Some(*text);
    let differing: Vec<_> = expected.iter().filter(differs).map(|(path, _)| path).collect();
    assert!(
        differing.is_empty() && present.is_empty(),
        "not as the arguments say: {differing:?}, of no command: {present:?}. \
         Run `BEARWARD_WRITE=1 cargo test --test programs cli::generated`, and commit the files"
    );
}
