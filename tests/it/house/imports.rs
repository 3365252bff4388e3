//! Finds which file of `src` imports which other file.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::source::{self, SourceFile};

/// Files by path, each with the files that it imports.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports between all files of `src`, except `lib.rs`, which only lists the modules.
pub fn all() -> Imports {
    let files: Vec<SourceFile> = source::files().into_iter().filter(|file| file.path != "lib.rs").collect();
    let modules: BTreeMap<Vec<String>, String> = files.iter().map(|file| (file.module(), file.path.clone())).collect();
    files.iter().map(|file| (file.path.clone(), imported_files(file, &modules))).collect()
}

fn imported_files(file: &SourceFile, modules: &BTreeMap<Vec<String>, String>) -> BTreeSet<String> {
    let own = file.module();
    let children: BTreeSet<&str> =
        modules.keys().filter(|path| is_child(path, &own)).filter_map(|path| path.last()).map(String::as_str).collect();
    let paths = paths(file).into_iter().filter_map(|path| absolute(path, &own, &children));
    paths.filter_map(|path| file_of(&path, modules)).filter(|path| *path != file.path).collect()
}

fn is_child(path: &[String], parent: &[String]) -> bool {
    path.len() == parent.len() + 1 && path.starts_with(parent)
}

/// The path from the root of the crate, if it is a path within the crate.
fn absolute(path: Vec<String>, own: &[String], children: &BTreeSet<&str>) -> Option<Vec<String>> {
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    let (base, rest) = match path[0].as_str() {
        "crate" | "bearward" => (&[][..], &path[1..]),
        "super" => (own.get(..own.len().checked_sub(supers)?)?, &path[supers..]),
        "self" => (own, &path[1..]),
        first if children.contains(first) => (own, &path[..]),
        _ => return None,
    };
    Some(base.iter().chain(rest).cloned().collect())
}

/// The file of the longest module that the path begins with.
fn file_of(path: &[String], modules: &BTreeMap<Vec<String>, String>) -> Option<String> {
    (1..=path.len()).rev().find_map(|length| modules.get(&path[..length])).cloned()
}

/// Every path in the code of a file: those of `use` with their groups, and those that stand in expressions.
fn paths(file: &SourceFile) -> Vec<Vec<String>> {
    let words: Vec<&str> = file.words.iter().map(String::as_str).collect();
    let mut paths = Vec::new();
    for at in 0..words.len() {
        let begins = at == 0 || words[at - 1] != "::";
        let goes_on = words.get(at + 1) == Some(&"::");
        if begins && goes_on && is_name(words[at]) {
            collect(&words[at..], &mut Vec::new(), &mut paths);
        }
    }
    paths
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Reads one path, or a group of paths, and returns how many words it has.
fn collect(words: &[&str], prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    let mut at = 0;
    while words.get(at).is_some_and(|word| is_name(word)) {
        if words[at] != "self" || depth == 0 {
            prefix.push(words[at].to_owned());
        }
        at += 1;
        if words.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    if words.get(at) == Some(&"{") {
        at += 1;
        while at < words.len() && words[at] != "}" {
            at += collect(&words[at..], prefix, paths).max(1);
        }
        at += 1;
    } else if prefix.len() > depth || depth > 0 && at > 0 {
        paths.push(prefix.clone());
    }
    prefix.truncate(depth);
    at
}

/// The circles among the files: sets of files that import each other, directly or through others.
pub fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (file.as_str(), reachable(file, imports))).collect();
    let mut circles: Vec<Vec<String>> = Vec::new();
    for (file, reached) in reachable.iter().filter(|(file, reached)| reached.contains(*file)) {
        let back = |other: &&&str| reachable[**other].contains(file);
        let circle: Vec<String> = reached.iter().filter(back).map(|file| (*file).to_owned()).collect();
        if !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reachable<'i>(from: &str, imports: &'i Imports) -> BTreeSet<&'i str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(file) = open.pop() {
        for next in imports.get(&file).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn imports_are_found_in_every_form() {
    let file = |path: &str, words: &str| SourceFile {
        path: path.into(),
        lines: 1,
        words: words.split_whitespace().map(str::to_owned).collect(),
    };
    let modules: BTreeMap<Vec<String>, String> =
        ["a/mod.rs", "a/x.rs", "a/y.rs", "b.rs", "c/mod.rs", "c/d.rs", "main.rs"]
            .map(|path| (file(path, "").module(), path.to_owned()))
            .into();
    let rows = [
        ("a/x.rs", "use crate :: b :: C ;", vec!["b.rs"]),
        (
            "a/x.rs",
            "use crate :: { b , c :: { self , d :: E } , a :: y as g } ;",
            vec!["a/y.rs", "b.rs", "c/d.rs", "c/mod.rs"],
        ),
        ("a/x.rs", "let x = crate :: c :: d :: f ( ) ;", vec!["c/d.rs"]),
        ("a/x.rs", "super :: y :: f ( ) ; super :: Z", vec!["a/mod.rs", "a/y.rs"]),
        ("a/x.rs", "use super :: super :: b :: C ;", vec!["b.rs"]),
        ("a/mod.rs", "mod x ; pub use x :: X ; use self :: y :: { Y , Z } ;", vec!["a/x.rs", "a/y.rs"]),
        ("main.rs", "bearward :: c :: run ( )", vec!["c/mod.rs"]),
        ("b.rs", "other :: c :: d ( ) ; std :: a :: x", vec![]),
    ];
    for (path, words, expected) in rows {
        let found: Vec<String> = imported_files(&file(path, words), &modules).into_iter().collect();
        assert_eq!(found, expected, "{path}: {words}");
    }
}

#[test]
fn circles_are_found_also_through_other_files() {
    let imports = |rows: &[(&str, &[&str])]| -> Imports {
        rows.iter().map(|(file, to)| ((*file).to_owned(), to.iter().map(|to| (*to).to_owned()).collect())).collect()
    };
    assert!(circles(&imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    assert_eq!(circles(&imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])])), [["b", "c"]]);
    assert_eq!(circles(&imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"])])), [["a", "b", "c"]]);
}
