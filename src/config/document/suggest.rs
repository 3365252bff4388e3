//! "Did you mean": the nearest of a few names.

/// The name that `text` was probably meant to be: at most a third of its letters away, or else the first that begins or
/// ends with it (`secret` for `secret_file`).
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let names: Vec<&str> = names.into_iter().collect();
    let near = names.iter().map(|name| (distance(text, name), *name)).min()?;
    if near.0 <= text.chars().count().max(3) / 3 {
        return Some(near.1);
    }
    names.into_iter().find(|name| text.len() >= 3 && (name.starts_with(text) || name.ends_with(text)))
}

/// Letters to insert, delete, replace or swap with their neighbour to make one text of the other, whatever their case.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_another_word_is_not() {
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
