//! The counters of a process that runs under callgrind.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// The functions of the C library that allocate.
const ALLOCATORS: [&str; 6] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];
/// Each dump is a file with this name and a number.
const FILE: &str = "callgrind.out";

#[derive(Debug, PartialEq)]
pub struct Counts {
    pub instructions: f64,
    /// How often each function has allocated, under its name.
    pub callers: HashMap<String, f64>,
}

/// `valgrind --tool=callgrind PROGRAM`. Dumps go to the folder.
pub fn command(program: &Path, folder: &Path) -> Command {
    let mut out = OsString::from("--callgrind-out-file=");
    out.push(folder.join(FILE));
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(out).arg(program);
    // Otherwise the processor's maker decides from which size on one instruction copies everything.
    command.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1048576");
    command
}

/// Sets the counters to zero.
pub fn zero(pid: u32) -> Outcome<()> {
    control("--zero", pid)
}

/// Reads the counters, and sets them to zero.
pub fn dump(pid: u32, folder: &Path) -> Outcome<Counts> {
    let before = dumps(folder)?;
    control("--dump", pid)?;
    let mut new = dumps(folder)?;
    new.retain(|file| !before.contains(file));
    let [file] = &*new else { return Err(format!("callgrind wrote {} files, expected one", new.len()).into()) };
    Counts::parse(&fs::read_to_string(file)?)
}

fn dumps(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let named = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FILE));
    Ok(files.iter().map(fs::DirEntry::path).filter(named).collect())
}

fn control(order: &str, pid: u32) -> Outcome<()> {
    let output = Command::new("callgrind_control").arg(order).arg(pid.to_string()).output()?;
    if !output.status.success() {
        return Err(format!("callgrind_control {order}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(())
}

impl Counts {
    /// Reads a dump (valgrind's manual, "Callgrind Format Specification").
    fn parse(text: &str) -> Outcome<Counts> {
        let mut lines = text.lines().rev();
        let total = lines.find_map(|line| line.strip_prefix("totals: ")).ok_or("a dump without totals")?;
        Ok(Counts { instructions: total.trim().parse()?, callers: callers(text) })
    }
}

/// Who calls [`ALLOCATORS`]. A name is written once, as `fn=(12) malloc`, and later as `fn=(12)`.
fn callers(text: &str) -> HashMap<String, f64> {
    let (mut names, mut callers) = (HashMap::new(), HashMap::new());
    let (mut caller, mut called) = ("", "");
    for line in text.lines() {
        let Some((kind, value)) = line.split_once('=') else { continue };
        match kind {
            "fn" | "cfn" => {
                let (id, name) = value.split_once(' ').map_or((value, None), |(id, name)| (id, Some(name)));
                if let Some(name) = name {
                    names.insert(id, name);
                }
                let name = names.get(id).copied().unwrap_or_default();
                (caller, called) = if kind == "fn" { (name, "") } else { (caller, name) };
            }
            "calls" if ALLOCATORS.contains(&called) => {
                let count = value.split(' ').next().and_then(|count| count.parse::<f64>().ok()).unwrap_or_default();
                *callers.entry(caller.to_owned()).or_default() += count;
            }
            _ => {}
        }
    }
    callers
}
