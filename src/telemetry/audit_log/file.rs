//! The audit file: one line an event, each event once.
//!
//! It is opened for each delivery, so that it may be moved away at any time. Its own end says how far the last delivery
//! came: a torn line is cut off, and events up to the last whole line, if that is one of those to be written, are there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::tokens::audit_event::{LINE_PREFIX, Recorded};

/// Longer than any line: names in an event have some kilobytes at most.
const TAIL: u64 = 64 * 1024;

pub(super) fn append(path: &Path, events: &[Recorded]) -> io::Result<()> {
    // It holds subjects and addresses: readable by the group at most.
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(path)?;
    let length = file.metadata()?.len();
    if length == 0 {
        // Its name is the folder's to keep.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
    }
    let tail = read_tail(&mut file, length)?;
    let (whole, torn) = tail.split_at(tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    if !torn.is_empty() {
        if whole.is_empty() && length > TAIL || !begins_a_line(torn) {
            return Err(io::Error::other("the file does not end with an audit event; move it away"));
        }
        file.set_len(length - torn.len() as u64)?;
    }
    let last = whole.strip_suffix(b"\n").unwrap_or_default().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let lines: Vec<String> = events.iter().map(Recorded::line).collect();
    let there = lines.iter().position(|line| line.as_bytes() == last).map_or(0, |place| place + 1);
    let mut page = String::new();
    for line in &lines[there..] {
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

/// What somebody else wrote is not ours to cut off.
fn begins_a_line(torn: &[u8]) -> bool {
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

    /// Whatever a crash left of a delivery, the next one makes it whole.
    #[test]
    fn each_event_is_there_once_wherever_the_delivery_before_was_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let (earlier, now) = (text(&events(1..=3)), events(4..=6));
        let whole = earlier.clone() + &text(&now);
        for cut in earlier.len()..=whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            append(&path, &now).expect("it can be written");
            assert_eq!(fs::read_to_string(&path).expect("read"), whole, "cut at {cut}");
        }
        append(&path, &events(4..=8)).expect("it can be written");
        assert_eq!(fs::read_to_string(&path).expect("read"), text(&events(1..=8)), "more had come meanwhile");
    }

    #[test]
    fn a_file_that_was_moved_away_begins_anew_and_a_store_that_went_back_loses_nothing() {
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
    fn what_somebody_else_wrote_is_not_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        for foreign in ["somebody's notes", "{\"seq", &format!("{LINE_PREFIX}{}", "x".repeat(TAIL as usize))] {
            fs::write(&path, foreign).expect("written");
            let appended = append(&path, &events(1..=1));
            let ours = foreign == "{\"seq";
            assert_eq!(appended.is_ok(), ours, "{:.20}", foreign);
            let expected = if ours { text(&events(1..=1)) } else { foreign.to_owned() };
            assert_eq!(fs::read_to_string(&path).expect("read"), expected);
        }
        fs::write(&path, "a line of somebody's\n").expect("written");
        append(&path, &events(1..=1)).expect("it can be written");
        assert_eq!(
            fs::read_to_string(&path).expect("read"),
            "a line of somebody's\n".to_owned() + &text(&events(1..=1))
        );
    }
}
