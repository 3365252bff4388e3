//! The target of lines: a file, a named pipe or standard output.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::settings::AccessLogTarget;

pub(super) struct Sink {
    /// Without a buffer, so that it is known which lines were written.
    file: File,
    /// `None` for standard output.
    path: Option<PathBuf>,
    /// If true, the last line is incomplete, and the next one must not continue it.
    is_torn: bool,
}

/// A write that failed.
pub(super) struct WriteFailure {
    pub(super) error: io::Error,
    /// How many lines were not written completely.
    pub(super) lost: u64,
}

impl Sink {
    /// `None` if the log is off.
    pub(super) fn open(target: &AccessLogTarget) -> io::Result<Option<Sink>> {
        let (file, path) = match target {
            AccessLogTarget::Off => return Ok(None),
            AccessLogTarget::Stdout => (File::from(io::stdout().as_fd().try_clone_to_owned()?), None),
            AccessLogTarget::File(path) => (open_file(path)?, Some(path.clone())),
        };
        let is_torn = path.as_deref().is_some_and(ends_within_line);
        Ok(Some(Sink { file, path, is_torn }))
    }

    /// Writes complete lines. Reopens the file if another one has its path now, so that log rotation needs no signal.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), WriteFailure> {
        let mut written = 0;
        self.write_counted(lines, &mut written).map_err(|error| {
            self.is_torn = match written {
                0 => self.is_torn,
                _ => lines[written - 1] != b'\n',
            };
            let lost = lines[written..].iter().filter(|byte| **byte == b'\n').count();
            WriteFailure { error, lost: lost as u64 }
        })
    }

    fn write_counted(&mut self, lines: &[u8], written: &mut usize) -> io::Result<()> {
        if let Some(path) = &self.path
            && !is_at(&self.file, path)?
        {
            self.file = open_file(path)?;
            self.is_torn = ends_within_line(path);
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        while *written < lines.len() {
            match self.file.write(&lines[*written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(some) => *written += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns true if the open file is the one at this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino())))
}

/// Log files have subjects and addresses in them, so only the owner and the group can read them.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640);
    if fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        // Opened only for writing, a pipe that no program reads would block the start (fifo(7)).
        options.read(true);
    }
    options.open(path)
}

/// Returns true if the last line of a file is incomplete: a process was killed, or the disk was full. A file that
/// cannot be read counts as complete.
fn ends_within_line(path: &Path) -> bool {
    let last_byte = || {
        // Not of a pipe or a device: there it would block, or take what another program waits for.
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
        let mut file = is_file.then(|| File::open(path).ok()).flatten()?;
        file.seek(SeekFrom::End(-1)).ok()?;
        let mut last = [0];
        file.read_exact(&mut last).ok()?;
        Some(last[0])
    };
    last_byte().is_some_and(|byte| byte != b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Sink {
        Sink::open(&AccessLogTarget::File(path.to_owned())).ok().flatten().expect("it can be opened")
    }

    #[test]
    fn a_line_never_continues_a_torn_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        fs::write(&path, "complete\ntor").expect("written");
        let mut sink = open(&path);
        sink.write(b"one\ntwo\n").ok().expect("it can be written");
        sink.is_torn = true;
        sink.write(b"three\n").ok().expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "complete\ntor\none\ntwo\n\nthree\n");
        fs::rename(&path, folder.path().join("access.log.1")).expect("renamed");
        sink.is_torn = true;
        sink.write(b"four\n").ok().expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "four\n", "a new file has no torn line");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let mut sink = open(Path::new("/dev/full"));
        let failure = sink.write(b"one\ntwo\nthree\n").expect_err("the device is full");
        assert_eq!((failure.lost, failure.error.kind()), (3, ErrorKind::StorageFull));
        assert!(!sink.is_torn, "nothing was written");
    }
}
