//! Reads files that the operator names, such as keys and certificates.
//!
//! To open or read a named pipe can take for ever (fifo(7)), and the gateway would neither start, reload nor end.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file to read it. Fails if it is a folder, a pipe, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(flags()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    match name(kind) {
        None => Ok(file),
        Some(name) => Err(io::Error::other(format!("this is {name}; use a regular file"))),
    }
}

/// For `open`: a pipe does not block before its type is known. For a regular file, this has no effect.
pub(super) fn flags() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

/// For `open`: fails if the file is a symbolic link.
pub fn no_link() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

/// Reads a whole file that [`open`] opens.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// As [`read`], for a file of text.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error()))
}

fn name(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        return None;
    }
    Some(if kind.is_fifo() { "a named pipe" } else { "a device" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_and_links_to_them_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, link, folder_path] = ["file", "link", ""].map(|name| folder.path().join(name));
        std::fs::write(&file, "text").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert_eq!(read(&file).expect("readable"), b"text");
        assert_eq!(read_to_string(&link).expect("readable"), "text");
        assert_eq!(read(&folder_path).expect_err("a folder").kind(), ErrorKind::IsADirectory);
        let endless = read(Path::new("/dev/zero")).expect_err("a device");
        assert_eq!(endless.to_string(), "this is a device; use a regular file");
        std::fs::write(&file, [0xff]).expect("written");
        assert_eq!(read_to_string(&file).expect_err("not UTF-8").kind(), ErrorKind::InvalidData);
    }
}
