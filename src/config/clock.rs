//! A warning about a clock that is wrong. Tokens would be valid too long, or not at all.
//!
//! No clock can be checked without another one, and a check sends nothing over the network. What is left are times that
//! this machine has written itself: when a file was changed. A clock that is ahead is not found.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::document::error::ConfigError;

/// The year of this release: a machine without a battery starts in 1970 or when its image was built.
const RELEASED: Duration = Duration::from_secs(1_767_225_600);

/// File servers have their own clocks.
const TOLERANCE: Duration = Duration::from_mins(5);

/// `files`: the configuration, and the database that a running gateway writes.
pub(super) fn warning(now: SystemTime, files: &[&Path]) -> Option<ConfigError> {
    let changed = files.iter().filter_map(|file| Some((*file, fs::metadata(file).ok()?.modified().ok()?)));
    let latest = changed.max_by_key(|(_, time)| *time);
    let message = match latest {
        Some((file, time)) if now + TOLERANCE < time => {
            let ahead = time.duration_since(now).unwrap_or_default().as_secs();
            format!("the clock is wrong: {} was changed {ahead} s from now", file.display())
        }
        _ if now < UNIX_EPOCH + RELEASED => "the clock is wrong: it is before the release of this version".to_owned(),
        _ => return None,
    };
    let help = "synchronize the clock, for example with chrony or systemd-timesyncd, before the gateway starts";
    Some(ConfigError::new(message, "expected the present time: tokens expire by it").help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_what_is_known_is_reported() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let now = SystemTime::now();
        let [path, missing] = [file.path(), Path::new("/no/such/file")];
        for (now, files, is_wrong) in [
            (now, &[path, missing][..], false),
            (now + Duration::from_hours(1), &[path], false),
            (now - Duration::from_mins(4), &[path], false),
            (now - Duration::from_mins(6), &[missing, path], true),
            (now - Duration::from_mins(6), &[missing], false),
            (UNIX_EPOCH, &[], true),
        ] {
            assert_eq!(warning(now, files).is_some(), is_wrong, "{now:?} {files:?}");
        }
    }
}
