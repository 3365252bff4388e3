//! "Did you mean": the most similar of a few names.

use std::fmt::Display;

use strsim::osa_distance;

/// The name that `text` was probably meant to be, if at most a third of its letters differ. Otherwise the first name
/// that starts or ends with `text` (`secret` for `secret_file`).
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let names: Vec<&str> = names.into_iter().collect();
    let lower = text.to_lowercase();
    let limit = text.chars().count().max(3) / 3;
    // Each letter more or less is a difference.
    let can_be_near = |name: &&&str| name.chars().count().abs_diff(lower.chars().count()) <= limit;
    let distance = |name: &&'a str| (osa_distance(&lower, &name.to_lowercase()), *name);
    if let Some((_, near)) = names.iter().filter(can_be_near).map(distance).min().filter(|(near, _)| *near <= limit) {
        return Some(near);
    }
    names.into_iter().find(|name| text.len() >= 3 && (name.starts_with(text) || name.ends_with(text)))
}

/// The names in one line: some, and how many others there are.
pub(crate) fn list(names: impl ExactSizeIterator<Item: Display>) -> String {
    const LISTED: usize = 20;
    let others = names.len().saturating_sub(LISTED);
    let listed = names.take(LISTED).map(|name| name.to_string()).collect::<Vec<_>>().join(", ");
    if others == 0 { listed } else { format!("{listed} and {others} others") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_the_name_and_another_word_does_not() {
        let names = ["access_lifetime", "audience", "secret_env", "secret_file"];
        assert_eq!(nearest("acess_lifetime", names), Some("access_lifetime"));
        assert_eq!(nearest("AUDIENCE", names), Some("audience"));
        assert_eq!(nearest("audeince", names), Some("audience"));
        assert_eq!(nearest("secret", names), Some("secret_env"));
        assert_eq!(nearest("lifetime", names), Some("access_lifetime"));
        assert_eq!(nearest("workers", names), None);
        assert_eq!(nearest("", names), None);
    }
}
