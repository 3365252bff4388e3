//! The audit file: one line for each event, each event once.
//!
//! It is opened for each delivery, so that the operator can move it away at any time. Its end shows how far the last
//! delivery came: an incomplete line is cut off, and if the last complete line is one of the events to write, that
//! event and those before it are not written again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::tokens::audit_event::{LINE_PREFIX, Recorded};

/// How many bytes at the end are read. More than the longest line: the names in an event have some kilobytes at most.
const TAIL: u64 = 64 * 1024;

/// Opens the file, and creates it. Leaves what it has unchanged: another gateway may be writing to it.
pub(super) fn open(path: &Path) -> io::Result<File> {
    // The file has subjects and addresses in it, so only the owner and the group can read it.
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        let message = "this is a named pipe, which does not confirm that an event was stored; use a file or a webhook";
        return Err(io::Error::other(message));
    }
    Ok(file)
}

pub(super) fn append(path: &Path, events: &[Recorded]) -> io::Result<()> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    if length == 0 {
        // A new file is durable only after a flush of its folder.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    let tail = read_tail(&mut file, length)?;
    let (complete, torn) = tail.split_at(tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    if !torn.is_empty() {
        if complete.is_empty() && length > TAIL || !is_start_of_event(torn) {
            return Err(io::Error::other("the file does not end with an audit event of this gateway; move it away"));
        }
        file.set_len(length - torn.len() as u64)?;
    }
    let last =
        complete.strip_suffix(b"\n").unwrap_or_default().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let lines: Vec<String> = events.iter().map(Recorded::line).collect();
    let written = lines.iter().position(|line| line.as_bytes() == last).map_or(0, |index| index + 1);
    let mut page = String::new();
    for line in &lines[written..] {
        page.push_str(line);
        page.push('\n');
    }
    file.write_all(page.as_bytes())?;
    file.sync_data()
}

fn read_tail(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(tail)
}

/// Returns true if the text is the beginning of an event. Anything else is from another program and is not cut off.
fn is_start_of_event(torn: &[u8]) -> bool {
    torn.iter().zip(LINE_PREFIX.as_bytes()).all(|(found, expected)| found == expected)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn events(sequences: impl IntoIterator<Item = u64>) -> Vec<Recorded> {
        let event = |sequence| Recorded { sequence, event: format!("{{\"event\":\"e{sequence}\"}}") };
        sequences.into_iter().map(event).collect()
    }

    fn text(events: &[Recorded]) -> String {
        events.iter().map(|event| event.line() + "\n").collect()
    }

    #[test]
    fn writes_each_event_once_after_a_crash_at_any_byte() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let earlier = text(&events(1..=3));
        let now = events(4..=6);
        let whole = earlier.clone() + &text(&now);
        for cut in earlier.len()..=whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            append(&path, &now).expect("it can be written");
            assert_eq!(fs::read_to_string(&path).expect("read"), whole, "cut at {cut}");
        }
        append(&path, &events(4..=8)).expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("read"), text(&events(1..=8)), "with more events than before");
    }

    #[test]
    fn handles_a_moved_file_and_a_restored_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        append(&path, &events(1..=3)).expect("it can be written");
        fs::rename(&path, folder.path().join("audit.jsonl.1")).expect("moved");
        append(&path, &events(4..=5)).expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("read"), text(&events(4..=5)));
        let other = vec![Recorded { sequence: 5, event: "{\"event\":\"another\"}".into() }];
        append(&path, &other).expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("read"), text(&events(4..=5)) + &text(&other));
    }

    #[test]
    fn leaves_foreign_text_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        for foreign in ["my notes", "{\"seq", &format!("{LINE_PREFIX}{}", "x".repeat(TAIL as usize))] {
            fs::write(&path, foreign).expect("written");
            let appended = append(&path, &events(1..=1));
            let ours = foreign == "{\"seq";
            assert_eq!(appended.is_ok(), ours, "{:.20}", foreign);
            let expected = if ours { text(&events(1..=1)) } else { foreign.to_owned() };
            assert_eq!(fs::read_to_string(&path).expect("read"), expected);
        }
        fs::write(&path, "a foreign line\n").expect("written");
        append(&path, &events(1..=1)).expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("read"), "a foreign line\n".to_owned() + &text(&events(1..=1)));
    }
}
