//! The tables of floors and doors in `src/lib.rs` are the rule; this holds every file in `src` to them, and the table of limits
//! to the configuration.

use std::collections::{BTreeSet, HashMap};

use bearward::config;

use crate::source::{self, SourceFile};

/// Where a unit stands. Compared as a pair: a lower floor first, then an earlier step of the same floor.
type Place = (u32, usize);

struct Floors(HashMap<String, (String, Place)>);

impl Floors {
    /// From rows such as `| 5 | a → b → c/, d | … |`: arrows part the steps of a floor, commas what stands side by side.
    fn read() -> Floors {
        let mut places = HashMap::new();
        for row in source::table("# Floors") {
            let floor: u32 = row[0].parse().unwrap_or_else(|_| panic!("{:?} is not the number of a floor", row[0]));
            for (step, units) in row[1].split('→').enumerate() {
                for unit in units.split(',').map(str::trim) {
                    let name = unit.trim_end_matches('/').to_owned();
                    let twice = places.insert(name, (unit.to_owned(), (floor, step)));
                    assert!(twice.is_none(), "{unit} stands twice in the table of floors");
                }
            }
        }
        Floors(places)
    }

    /// The place of a unit, by the bare name that an import uses.
    fn place(&self, name: &str) -> Option<Place> {
        self.0.get(name).map(|(_, place)| *place)
    }

    /// The place of a file's unit, which also has to be a file or a folder as the table says.
    fn place_of(&self, unit: &str) -> Option<Place> {
        let (spelling, place) = self.0.get(unit.trim_end_matches('/'))?;
        (spelling == unit).then_some(*place)
    }
}

#[test]
fn every_file_imports_only_floors_below_its_own() {
    let floors = Floors::read();
    let mut faults = Vec::new();
    // lib.rs lists the modules and belongs to no floor.
    for file in source::files().iter().filter(|file| file.path != "lib.rs") {
        let unit = file.unit();
        let Some(own) = floors.place_of(&unit) else {
            faults.push(format!("src/{}: `{unit}` is not in the table of floors", file.path));
            continue;
        };
        for name in imports(file) {
            match floors.place(&name) {
                None => faults.push(format!("src/{}: `{name}` is not in the table of floors", file.path)),
                Some(_) if name == unit.trim_end_matches('/') => {}
                Some(place) if place < own => {}
                Some((floor, _)) => faults.push(format!(
                    "src/{} (floor {}) imports `{name}` (floor {floor}), which is not below it",
                    file.path, own.0
                )),
            }
        }
    }
    assert!(faults.is_empty(), "the floors in src/lib.rs are not kept:\n{}", faults.join("\n"));
}

#[test]
fn a_foreign_crate_is_named_only_at_its_door() {
    let floors = Floors::read();
    let manifest = source::read("Cargo.toml");
    let mut faults = Vec::new();
    let files = source::files();
    for row in source::table("# Doors") {
        let (foreign, doors) = (row[0].as_str(), row[1].split(',').map(str::trim).collect::<Vec<_>>());
        let listed = manifest.lines().any(|line| line.split_whitespace().next() == Some(&foreign.replace('_', "-")));
        if !listed && !manifest.contains(&format!("\n{foreign} = ")) {
            faults.push(format!("`{foreign}` has a door but is no dependency"));
        }
        for door in doors.iter().filter(|door| floors.place_of(door).is_none()) {
            faults.push(format!("`{door}`, a door of `{foreign}`, is not in the table of floors"));
        }
        for file in files.iter().filter(|file| names_crate(file, foreign) && !doors.contains(&file.unit().as_str())) {
            faults.push(format!("src/{} names `{foreign}`, whose door is {}", file.path, row[1]));
        }
    }
    assert!(faults.is_empty(), "the doors in src/lib.rs are not kept:\n{}", faults.join("\n"));
}

/// Every limit that can be set has a row, and a row names files that there are.
#[test]
fn the_table_of_limits_has_each_and_says_where_it_is_enforced() {
    let is_limit = |key: &String| key == "rate" || key.starts_with("limits.") || key.starts_with("throttle.");
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

/// The modules at the root of this crate that a file names: `crate::a::B`, `crate::{a, b::C}`; `bearward::a` in main.rs. A
/// file that lies in `src` itself could also say `super`.
fn imports(file: &SourceFile) -> BTreeSet<String> {
    let words: Vec<&str> = file.words.iter().map(String::as_str).collect();
    let in_root = !file.path.contains('/');
    let mut names = BTreeSet::new();
    for at in 0..words.len() {
        let is_root = matches!(words[at], "crate" | "bearward") || (in_root && words[at] == "super");
        let begins_path = at == 0 || words[at - 1] != "::";
        if is_root && begins_path && words.get(at + 1) == Some(&"::") {
            names.extend(first_segments(&words[at + 2..]));
        }
    }
    names
}

/// `a :: B` gives a; `{ a :: { B , C } , d }` gives a and d.
fn first_segments(words: &[&str]) -> Vec<String> {
    let Some(("{", group)) = words.split_first().map(|(first, rest)| (*first, rest)) else {
        return words.first().map(|name| (*name).to_owned()).into_iter().collect();
    };
    let mut names = Vec::new();
    let mut depth = 1;
    let mut expected = true;
    for word in group {
        match *word {
            "{" => depth += 1,
            "}" if depth == 1 => break,
            "}" => depth -= 1,
            "," if depth == 1 => expected = true,
            name if expected => {
                names.push(name.to_owned());
                expected = false;
            }
            _ => {}
        }
    }
    names
}

/// Does the file name the crate: as the start of a path, or bare in a `use`? A module or variable of the same name is
/// something else.
fn names_crate(file: &SourceFile, foreign: &str) -> bool {
    let words = &file.words;
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).map(|at| words[at].as_str());
        let starts_path = words.get(at + 1).is_some_and(|next| next == "::") && before != Some("::");
        word == foreign && (starts_path || before == Some("use"))
    })
}

#[test]
fn imports_are_found_in_every_form() {
    let file = |path: &str, words: &str| SourceFile {
        path: path.into(),
        lines: 1,
        words: words.split_whitespace().map(str::to_owned).collect(),
    };
    let rows = [
        ("a.rs", "use crate :: b :: C ;", vec!["b"]),
        ("a.rs", "use crate :: { b , c :: { D , E } , f as g } ;", vec!["b", "c", "f"]),
        ("a.rs", "let x = crate :: b :: c ( ) ;", vec!["b"]),
        ("main.rs", "bearward :: cli :: run ( )", vec!["cli"]),
        ("a.rs", "super :: b :: c ( )", vec!["b"]),
        ("a/mod.rs", "pub ( crate ) use self :: b ; other :: crate :: c", vec![]),
    ];
    for (path, words, expected) in rows {
        let found: Vec<String> = imports(&file(path, words)).into_iter().collect();
        assert_eq!(found, expected, "{path}: {words}");
    }
    assert!(names_crate(&file("a.rs", "use moka ;"), "moka"));
    assert!(names_crate(&file("a.rs", "moka :: sync :: Cache"), "moka"));
    assert!(!names_crate(&file("a.rs", "let toml = read ( ) ; rustls :: crypto :: aws_lc_rs :: p ( )"), "toml"));
    assert!(!names_crate(&file("a.rs", "rustls :: crypto :: aws_lc_rs :: p ( )"), "aws_lc_rs"));
}
