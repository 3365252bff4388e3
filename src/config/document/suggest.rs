//! "Did you mean": the most similar of a few names.

use strsim::osa_distance;

/// The name that `text` was probably meant to be, if at most a third of its letters differ. Otherwise the first name
/// that starts or ends with `text` (`secret` for `secret_file`).
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let names: Vec<&str> = names.into_iter().collect();
    let lower = text.to_lowercase();
    let near = names.iter().map(|name| (osa_distance(&lower, &name.to_lowercase()), *name)).min()?;
    if near.0 <= text.chars().count().max(3) / 3 {
        return Some(near.1);
    }
    names.into_iter().find(|name| text.len() >= 3 && (name.starts_with(text) || name.ends_with(text)))
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
