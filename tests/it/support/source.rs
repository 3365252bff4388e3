//! Reads the gateway's own source for the tests beside this file: files, words of code, tables in doc comments.
//!
//! It reads just enough Rust to tell code from comments, strings and tests. It does not see names that a macro makes.

use std::fs;
use std::path::{Path, PathBuf};

/// One file below `src`.
pub struct SourceFile {
    /// Relative to `src`: `token/verify.rs`.
    pub path: String,
    pub lines: usize,
    /// Identifiers, `::` and single characters of punctuation, without comments, literals and what only tests compile.
    pub words: Vec<String>,
}

impl SourceFile {
    /// The module path: `["tokens", "jwt", "verify"]` for `tokens/jwt/verify.rs`, `["tokens"]` for `tokens/mod.rs`.
    pub fn module(&self) -> Vec<String> {
        let mut path: Vec<String> = self.path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "mod") {
            path.pop();
        }
        path
    }

    /// The folder of `src` that the file belongs to. `main` and `lib` stand for themselves.
    pub fn folder(&self) -> String {
        self.module().swap_remove(0)
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All of `src` in the order of its paths, without files that only tests compile: `tests.rs` by name.
pub fn files() -> Vec<SourceFile> {
    let source = root().join("src");
    let mut paths = Vec::new();
    collect(&source, &mut paths);
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = read(path);
            let path = path.strip_prefix(&source).expect("collected below src").to_string_lossy().into_owned();
            let words = without_tests(words(&text)).into_iter().map(str::to_owned).collect();
            SourceFile { path, lines: text.lines().count(), words }
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src can be listed") {
        let path = entry.expect("src can be listed").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            paths.push(path);
        }
    }
}

/// The rows of the first table under `heading` in the doc comment of `src/lib.rs`, without its head, backticks removed.
pub fn table(heading: &str) -> Vec<Vec<String>> {
    let text = read("src/lib.rs");
    let doc = text.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim);
    let rows: Vec<Vec<String>> = doc
        .skip_while(|line| *line != heading)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|row| row.trim_matches('|').split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "src/lib.rs has no table under {heading:?}");
    rows
}

pub fn words(source: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let (length, is_code) = if let Some(length) = comment(rest).or_else(|| literal(rest)) {
            (length, false)
        } else if first.is_alphanumeric() || first == '_' {
            (rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()), true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), !first.is_whitespace())
        };
        let (word, after) = rest.split_at(length);
        if is_code {
            words.push(word);
        }
        rest = after;
    }
    words
}

/// The length of the comment that `rest` begins with.
fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.strip_prefix("/*").map(|inside| inside.find("*/").map_or(rest.len(), |end| end + 4))
}

/// The length of the string or character literal that `rest` begins with. A lifetime is not one.
fn literal(rest: &str) -> Option<usize> {
    if let Some(inside) = rest.strip_prefix('\'') {
        let mut characters = inside.chars();
        let (first, second) = (characters.next()?, characters.next()?);
        return match (first, second) {
            ('\\', _) => inside.get(2..)?.find('\'').map(|end| end + 4),
            (_, '\'') => Some(first.len_utf8() + 2),
            _ => None,
        };
    }
    let quoted = ["br", "cr", "r", "b", "c"].iter().find_map(|prefix| {
        let after = rest.strip_prefix(prefix)?;
        after.starts_with(['"', '#']).then_some((after, prefix.contains('r')))
    });
    let (after, raw) = quoted.unwrap_or((rest, false));
    let hashes = if raw { after.len() - after.trim_start_matches('#').len() } else { 0 };
    let inside = after.get(hashes..)?.strip_prefix('"')?;
    let start = rest.len() - inside.len();
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return inside.find(&end).map(|at| start + at + end.len());
    }
    let mut escaped = false;
    let end = inside.find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map(|end| start + end + 1)
}

/// Leaves out each item under `#[cfg(test)]`: from the attribute to the end of its block, or to its semicolon.
pub fn without_tests(words: Vec<&str>) -> Vec<&str> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        if words[at..].starts_with(&ATTRIBUTE) {
            at += item_length(&words[at..]);
        } else {
            kept.push(words[at]);
            at += 1;
        }
    }
    kept
}

fn item_length(words: &[&str]) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "{" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    words.len()
}
