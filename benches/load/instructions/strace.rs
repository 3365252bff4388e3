//! The system calls of a process that runs under strace.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;

use crate::Outcome;

const FILE: &str = "strace.out";

/// `strace PROGRAM`, with all its threads. A line for each call goes to a file in the folder. The process is the
/// program, and strace is its grandchild, so that it ends with it.
pub fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["--daemonize", "--follow-forks", "--string-limit=0", "--output"]).arg(folder.join(FILE)).arg(program);
    command
}

/// The end of the file.
pub fn position(folder: &Path) -> Outcome<u64> {
    Ok(folder.join(FILE).metadata()?.len())
}

/// The calls since this position.
pub fn calls_since(position: u64, folder: &Path) -> Outcome<f64> {
    let mut file = File::open(folder.join(FILE))?;
    file.seek(SeekFrom::Start(position))?;
    let mut calls = 0.0;
    for line in BufReader::new(file).lines() {
        // A call that another thread's call interrupts has two lines.
        if !line?.contains(" resumed>") {
            calls += 1.0;
        }
    }
    Ok(calls)
}
