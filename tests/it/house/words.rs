//! Holds everything that people read free of the old style, and at one width.
//!
//! The old style inverted its sentences and left the actor out: "whoever asks", "nobody is told". The list has the
//! words that marked it. `.github/CONTRIBUTING.md` says how we write instead.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::source;

/// Each has a plainer word: name the client, the operator, the backend or the gateway.
const OLD_STYLE: &[&str] = &[
    "whoever",
    "whomever",
    "whom",
    "whose",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "whatsoever",
    "in vain",
    "has to be said",
    "so many",
    "of its own making",
    "of one's own",
    "is told",
    "are told",
    "was told",
    "turned away",
    "turns away",
    "sent away",
    "sends away",
    "to its end",
    "at one go",
    "meanwhile nobody",
];

/// The most characters of a line, in code and in prose.
const WIDTH: usize = 120;

/// The files that people read: code, tests, benches, documents, configuration, scripts.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .current_dir(source::root())
        .output()
        .expect("git is missing: tests/run installs it");
    let listed = if output.status.success() {
        String::from_utf8(output.stdout).expect("names are UTF-8")
    } else {
        // Sources from an archive have no index.
        unlisted()
    };
    let read_by_people = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let generated_in = ["/corpus/", "/completions/"].iter().any(|folder| path.contains(folder));
        let is_generated = matches!(name, "Cargo.lock" | "LICENSE") || generated_in;
        !is_generated
            && (matches!(ending, "rs" | "md" | "toml" | "sql" | "py" | "yml" | "txt" | "service" | "socket")
                || !name.contains('.'))
    };
    listed.split_terminator('\0').filter(read_by_people).map(str::to_owned).collect()
}

fn unlisted() -> String {
    let output = Command::new("find")
        .args([".", "-type", "f", "-not", "-path", "./target/*", "-printf", "%P\\0"])
        .current_dir(source::root())
        .output();
    String::from_utf8(output.expect("find is missing").stdout).expect("names are UTF-8")
}

/// Returns the old words in a line, whatever their case. `somebody` is found, `somebodys` is not.
fn old_words(line: &str) -> Vec<&'static str> {
    let line = line.to_lowercase();
    let is_letter = |c: char| c.is_alphanumeric();
    let stands_alone = |word: &str| {
        line.match_indices(word)
            .any(|(at, _)| !line[..at].ends_with(is_letter) && !line[at + word.len()..].starts_with(is_letter))
    };
    OLD_STYLE.iter().copied().filter(|word| stands_alone(word)).collect()
}

#[test]
fn no_file_uses_words_of_the_old_style() {
    let files = files();
    assert!(files.len() > 400, "found only {} files", files.len());
    let own = "tests/it/house/words.rs";
    let mut found = BTreeSet::new();
    for path in files.iter().filter(|path| *path != own && Path::new(source::root()).join(path).is_file()) {
        for (number, line) in (1..).zip(source::read(path).lines()) {
            for word in old_words(&line.replace('_', " ")) {
                found.insert(format!("{path}:{number}: {word}"));
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn no_line_is_wider_than_the_page() {
    let mut wide = Vec::new();
    for path in files().iter().filter(|path| !path.ends_with(".txt") && Path::new(source::root()).join(path).is_file())
    {
        for (number, line) in (1..).zip(source::read(path).lines()) {
            // A table row of Markdown, a link or a literal cannot be wrapped.
            let cannot_wrap = line.trim_start().trim_start_matches("//!").trim_start().starts_with('|')
                || line.contains("://")
                || line.contains('"')
                || !line.trim().contains(' ');
            if line.chars().count() > WIDTH && !cannot_wrap {
                wide.push(format!("{path}:{number}: {} characters", line.chars().count()));
            }
        }
    }
    assert!(wide.is_empty(), "wider than {WIDTH} characters:\n{}", wide.join("\n"));
}

/// With an ellipsis, the one segment of a call reads as everything below it, which is that of routes.
#[test]
fn pages_name_the_segment_of_a_call() {
    let pages: Vec<_> = files().into_iter().filter(|path| path.ends_with(".md") || path == "gateway.toml").collect();
    assert!(pages.len() > 20, "found only {pages:?}");
    for path in pages {
        let text = source::read(&path);
        let line = text.lines().find(|line| line.contains("/token/…") || line.contains("/token/..."));
        assert_eq!(line, None, "{path}: write /token/{{tokenId}}");
    }
}

#[test]
fn old_words_are_found_as_words() {
    assert_eq!(old_words("/// Whoever asks, NOBODY answers"), ["whoever", "nobody"]);
    assert_eq!(old_words("`fn nobody()`"), ["nobody"]);
    assert!(old_words("the whole body of some bodies").is_empty());
    assert_eq!(old_words("it has to be said, so many times"), ["has to be said", "so many"]);
}
