//! The standard output of a command.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// As `println!`, but a reader that has seen enough, such as `head`, is no reason to panic: the command goes on, and
/// its exit status stays that of its result.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::output::write(format_args!("{}\n", format_args!($($text)*))) };
}

pub(super) use say;

pub(super) fn write(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) else { return };
    if error.kind() != ErrorKind::BrokenPipe {
        // A script must not take a part for the whole, as on a full disk.
        eprintln!("error: cannot write to standard output: {error}");
        process::exit(1);
    }
}
