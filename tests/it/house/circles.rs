//! Finds circles that imports do not show: the files of one type call each other through its methods.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{self, Imports};
use crate::support::source::{self, SourceFile};

/// The methods of one type in one file, and those that it calls on itself.
#[derive(Debug, Default, PartialEq)]
struct Part {
    methods: BTreeSet<String>,
    calls: BTreeSet<String>,
}

/// The types that have an `impl` in a file, each with all of them there. Types of the same name in one file are one.
fn parts(words: &[String]) -> BTreeMap<String, Part> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    for at in (0..words.len()).filter(|at| words[*at] == "impl") {
        let Some((name, open)) = head(words, at + 1) else { continue };
        let body = &words[open..end_of_block(words, open)];
        let part = parts.entry(name).or_default();
        for (at, word) in body.iter().enumerate() {
            let next = |distance: usize| body.get(at + distance).map(String::as_str);
            if word == "fn" {
                part.methods.extend(body.get(at + 1).cloned());
            } else if word == "self" && next(1) == Some(".") && next(3) == Some("(")
                || word == "Self" && next(1) == Some("::") && next(3) == Some("(")
            {
                part.calls.extend(body.get(at + 2).cloned());
            }
        }
    }
    parts
}

/// The name of the type that the block of an `impl` is for, and where the block begins. `at`: after `impl`. `None`: an
/// `impl` in the place of a type.
fn head(words: &[String], at: usize) -> Option<(String, usize)> {
    let begins = at < 2 || matches!(words[at - 2].as_str(), "}" | ";" | "]" | "unsafe");
    if !begins {
        return None;
    }
    let open = (at..words.len()).find(|at| words[*at] == "{")?;
    let mut named = None;
    let mut depth = 0;
    for word in &words[at..open] {
        match word.as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            "where" => break,
            "for" if depth == 0 => named = None,
            name if depth == 0 && name.starts_with(char::is_uppercase) => named = Some(name.to_owned()),
            _ => {}
        }
    }
    Some((named?, open))
}

fn end_of_block(words: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(open) {
        match word.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return at,
            "}" => depth -= 1,
            _ => {}
        }
    }
    words.len()
}

/// The file that defines a type: `file` itself, or one that it imports, also through a `mod.rs`.
fn home<'f>(name: &str, file: &str, files: &'f [SourceFile], imports: &Imports) -> Option<&'f str> {
    let of = |file: &str| imports.get(file).into_iter().flatten().map(String::as_str);
    let through = of(file).filter(|path| path.ends_with("mod.rs")).flat_map(of);
    let reached: BTreeSet<&str> = [file].into_iter().chain(of(file)).chain(through).collect();
    let defines = |words: &[String]| {
        words.windows(2).any(|pair| matches!(pair[0].as_str(), "struct" | "enum") && pair[1] == name)
    };
    let found = files.iter().find(|other| reached.contains(&*other.path) && defines(&other.words));
    found.map(|file| &*file.path)
}

/// The calls of methods that a type has in another file, as imports of that file.
fn calls(files: &[SourceFile], imports: &Imports) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for file in files {
        for (name, part) in parts(&file.words) {
            if let Some(home) = home(&name, &file.path, files, imports) {
                all.push((name, home, &file.path, part));
            }
        }
    }
    let mut found = Vec::new();
    for (name, home, from, part) in &all {
        for (_, _, to, other) in all.iter().filter(|other| (&other.0, other.1) == (name, home) && other.2 != *from) {
            if part.calls.iter().any(|call| other.methods.contains(call) && !part.methods.contains(call)) {
                found.push(((*from).clone(), (*to).clone()));
            }
        }
    }
    found
}

fn circles_with_calls(files: &[SourceFile], mut imports: Imports) -> Vec<Vec<String>> {
    for (from, to) in calls(files, &imports) {
        imports.entry(from).or_default().insert(to);
    }
    imports::circles(&imports)
}

#[test]
fn no_files_call_each_other_through_a_type_in_a_circle() {
    let circles = circles_with_calls(&source::files(), imports::all());
    let names: Vec<String> = circles.iter().map(|circle| circle.join(" -> ")).collect();
    assert!(circles.is_empty(), "circles by methods of one type:\n{}", names.join("\n"));
}

fn file(path: &str, code: &str) -> SourceFile {
    let words = source::words(code).into_iter().map(str::to_owned).collect();
    SourceFile { path: path.into(), lines: 1, words }
}

#[test]
fn a_circle_by_methods_of_one_type_is_found() {
    let type_of = "pub struct Gate { open: bool } impl Gate { fn open(&self) { self.check(); } fn shut(&self) {} }";
    let imports = || -> Imports {
        let files = [("gate.rs", &[][..]), ("checks.rs", &["gate.rs"]), ("other.rs", &[])];
        files.map(|(file, to)| (file.to_owned(), to.iter().map(|to| (*to).to_owned()).collect())).into()
    };
    for (checks, is_circle) in [
        ("impl Gate { fn check(&self) { self.shut(); } }", true),
        ("impl<'g> Check for Gate { fn check(&self) {} }", true),
        ("impl Gate { fn look(&self) { self.shut(); } }", false),
        ("impl Lock { fn check(&self) {} }", false),
        ("pub fn check(gate: &Gate) { gate.shut(); }", false),
    ] {
        let files = [file("gate.rs", type_of), file("checks.rs", checks)];
        assert_eq!(!circles_with_calls(&files, imports()).is_empty(), is_circle, "{checks}");
        let elsewhere = [file("gate.rs", type_of), file("other.rs", checks)];
        assert!(circles_with_calls(&elsewhere, imports()).is_empty(), "another type of the same name: {checks}");
    }
}
