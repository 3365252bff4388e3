//! Checks every file of `src` against the tables of floors, doors and limits in `src/lib.rs`.

use std::collections::{BTreeMap, BTreeSet};

use bearward::config;

use super::imports;
use crate::support::source::{self, SourceFile};

/// Folders of `src`, and files at its root, that may exist at most.
const MOST_ENTRIES: usize = 17;

/// Floors by folder, from rows such as `| 5 | auth/, upstream/ | … |`.
fn floors() -> BTreeMap<String, u32> {
    let mut floors = BTreeMap::new();
    for row in source::table("# Floors") {
        let floor: u32 = row[0].parse().unwrap_or_else(|_| panic!("{:?} is not the number of a floor", row[0]));
        for folder in row[1].split(',').map(|folder| folder.trim().trim_end_matches('/').to_owned()) {
            assert!(floors.insert(folder.clone(), floor).is_none(), "{folder} is twice in the table of floors");
        }
    }
    floors
}

fn folder_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

#[test]
fn a_file_imports_only_its_own_folder_and_lower_floors() {
    let floors = floors();
    let imports = imports::all();
    let count: usize = imports.values().map(BTreeSet::len).sum();
    assert!(imports.len() > 200 && count > 1000, "found only {} files with {count} imports", imports.len());
    let mut errors = Vec::new();
    for (file, imported) in &imports {
        let Some(own) = floors.get(folder_of(file)) else {
            errors.push(format!("src/{file}: `{}` is not in the table of floors", folder_of(file)));
            continue;
        };
        for other in imported.iter().filter(|other| folder_of(other) != folder_of(file)) {
            match floors.get(folder_of(other)) {
                Some(floor) if floor < own => {}
                floor => errors.push(format!("src/{file} (floor {own}) imports src/{other} (floor {floor:?})")),
            }
        }
    }
    assert!(errors.is_empty(), "the floors in src/lib.rs do not hold:\n{}", errors.join("\n"));
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let imports = imports::all();
    let circles = imports::circles(&imports);
    let names: Vec<String> = circles.iter().map(|circle| circle.join(" -> ")).collect();
    assert!(circles.is_empty(), "import circles:\n{}", names.join("\n"));
}

/// A `mod.rs` is the door of its folder: files of other folders import what it makes public, so that the rest can
/// change.
#[test]
fn no_file_imports_a_private_file_of_another_folder() {
    let files = source::files();
    let private: BTreeSet<String> = files.iter().flat_map(private_children).collect();
    assert!(private.len() > 50, "found only {} private files", private.len());
    let mut errors = Vec::new();
    for (file, imported) in imports::all() {
        for other in imported.iter().filter(|other| private.contains(*other)) {
            let home = other.trim_end_matches("/mod.rs").rsplit_once('/').map_or("", |(folder, _)| folder);
            if !file.starts_with(home) {
                errors.push(format!("src/{file} imports src/{other}, which is private to src/{home}"));
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// The files that `mod x;` without `pub` declares in a `mod.rs`.
fn private_children(file: &SourceFile) -> Vec<String> {
    let Some(folder) = file.path.strip_suffix("mod.rs") else { return Vec::new() };
    let words = &file.words;
    let declares = |at: &usize| words[*at] == "mod" && words.get(at + 2).is_some_and(|end| end == ";");
    let is_private = |at: &usize| *at == 0 || matches!(words[at - 1].as_str(), ";" | "}" | "]");
    let names = (0..words.len()).filter(declares).filter(is_private).map(|at| &words[at + 1]);
    names.flat_map(|name| [format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")]).collect()
}

#[test]
fn src_has_few_entries_and_each_has_a_floor() {
    let entries: BTreeSet<String> = source::files().iter().map(SourceFile::folder).collect();
    assert!(entries.len() <= MOST_ENTRIES, "src has {} entries: {entries:?}", entries.len());
    let listed: BTreeSet<String> = floors().into_keys().chain(["lib".to_owned()]).collect();
    assert_eq!(entries, listed, "the table of floors and the folders of src");
    let loose: Vec<String> =
        source::files().into_iter().map(|file| file.path).filter(|path| !path.contains('/')).collect();
    assert_eq!(loose, ["lib.rs", "main.rs"], "files at the root of src");
}

#[test]
fn a_foreign_crate_is_named_only_at_its_door() {
    let manifest = source::read("Cargo.toml");
    let files = source::files();
    let rows = source::table("# Doors");
    assert!(rows.len() > 10, "found only {} doors", rows.len());
    let mut errors = Vec::new();
    for row in rows {
        let (foreign, doors) = (row[0].as_str(), row[1].split(',').map(str::trim).collect::<Vec<_>>());
        let name = foreign.replace('_', "-");
        let is_listed = |name: &str| manifest.lines().any(|line| line.starts_with(&format!("{name} = ")));
        if !is_listed(&name) && !is_listed(foreign) {
            errors.push(format!("`{foreign}` has a door but is no dependency"));
        }
        for door in doors.iter().filter(|door| !files.iter().any(|file| is_behind(file, door))) {
            errors.push(format!("`{door}`, a door of `{foreign}`, does not exist"));
        }
        let named = files.iter().filter(|file| names_crate(file, foreign));
        for file in named.filter(|file| !doors.iter().any(|door| is_behind(file, door))) {
            errors.push(format!("src/{} names `{foreign}`; its doors are {}", file.path, row[1]));
        }
    }
    assert!(errors.is_empty(), "the doors in src/lib.rs do not hold:\n{}", errors.join("\n"));
}

/// Returns true if the file is the door (`protocols/tls`) or below it (`store/`).
fn is_behind(file: &SourceFile, door: &str) -> bool {
    if door.ends_with('/') {
        file.path.starts_with(door)
    } else {
        file.path == format!("{door}.rs") || file.path.starts_with(&format!("{door}/"))
    }
}

/// Returns true if the file names the crate, as the start of a path or alone in a `use`. A module or variable of the
/// same name does not count.
fn names_crate(file: &SourceFile, foreign: &str) -> bool {
    let words = &file.words;
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).map(|at| words[at].as_str());
        let starts_path = words.get(at + 1).is_some_and(|next| next == "::") && before != Some("::");
        word == foreign && (starts_path || before == Some("use"))
    })
}

#[test]
fn the_table_of_limits_names_every_limit_and_its_file() {
    let of_admin = [
        "admin.connections",
        "admin.connections_per_address",
        "admin.recent_rejections",
        "admin.streams",
        "admin.wrong_tokens",
    ];
    let others = [
        "trace.per_second",
        "trace.queue_size",
        "acme.names_per_listener",
        "acme.orders_per_hour",
        "oauth.sessions_per_client",
    ];
    let is_limit = |key: &String| {
        others.contains(&key.as_str())
            || key == "rate"
            || key.starts_with("limits.")
            || key.starts_with("throttle.")
            || of_admin.contains(&key.as_str())
    };
    let expected: BTreeSet<String> = config::keys().into_iter().filter(is_limit).collect();
    let mut listed = BTreeSet::new();
    for row in source::table("# Limits") {
        listed.extend(row[0].split(", ").map(str::to_owned));
        let files: Vec<&str> = row[1].split([' ', ',', ';']).filter(|word| word.ends_with(".rs")).collect();
        assert!(!files.is_empty(), "{row:?} names no file");
        for file in files {
            assert!(source::root().join("src").join(file).is_file(), "{file} of {row:?}");
        }
    }
    assert_eq!(listed, expected);
}

#[test]
fn a_module_of_the_same_name_is_no_crate() {
    let file = |words: &str| SourceFile {
        path: "a.rs".into(),
        lines: 1,
        words: words.split_whitespace().map(str::to_owned).collect(),
    };
    assert!(names_crate(&file("use moka ;"), "moka"));
    assert!(names_crate(&file("moka :: sync :: Cache"), "moka"));
    assert!(!names_crate(&file("let toml = read ( ) ; rustls :: crypto :: aws_lc_rs :: p ( )"), "toml"));
    assert!(!names_crate(&file("rustls :: crypto :: aws_lc_rs :: p ( )"), "aws_lc_rs"));
}
