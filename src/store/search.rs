//! A search of families by their subject, page by page. No I/O, and the same for every store.
//!
//! The order is that of the subjects, byte by byte, and for one subject that of the logins, the newest first. Neither
//! changes while a family lives, so that no page misses or repeats one. The order of the last use would change with
//! each refresh, and a refresh would have to write an index.
//!
//! A page begins after a [`Position`]: first with the rest of its subject, then with the subjects after it. Both are
//! ranges of one index. At most [`MAX_SCANNED`] rows of each range are looked at, so that a page is fast even if none
//! of them is wanted.

use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Rows that one page looks at in a range.
pub(super) const MAX_SCANNED: usize = 2_000;

/// What to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    pub subjects: Subjects,
    pub state: SearchState,
    /// Only the families of this client.
    pub client_id: Option<String>,
    /// Only the families with this value in their audience. It does not begin with a comma.
    pub resource: Option<String>,
    /// `None` for the first page.
    pub after: Option<Position>,
    /// Maximum number of families in the page.
    pub limit: usize,
    pub now: UnixTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subjects {
    One(String),
    /// Those that begin with this text; all of them if it is empty.
    WithPrefix(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchState {
    Live,
    /// Expired or revoked.
    Ended,
    All,
}

/// Which API keys to list, live and ended, in the order of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySearch {
    /// `None`: those of all subjects.
    pub subject: Option<String>,
    /// `None` for the first page.
    pub after: Option<Position>,
    /// Maximum number of keys in the page.
    pub limit: usize,
}

/// A client, and how many of its sessions are live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveClient {
    pub client_id: String,
    pub live: u64,
}

/// One family in the order of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub subject: String,
    pub created_at: UnixTime,
    pub id: TokenId,
}

/// A page of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundFamilies {
    pub families: Vec<Family>,
    /// Where the next page begins. `None` after the last page.
    pub next: Option<Position>,
}

impl Position {
    pub(super) fn of(family: &Family) -> Self {
        Position { subject: family.subject.clone(), created_at: family.created_at, id: family.id }
    }
}

impl Subjects {
    pub fn contains(&self, subject: &str) -> bool {
        match self {
            Subjects::One(one) => one == subject,
            Subjects::WithPrefix(prefix) => subject.starts_with(prefix),
        }
    }

    /// The first subject that can be among them.
    pub(super) fn first(&self) -> &str {
        let (Subjects::One(text) | Subjects::WithPrefix(text)) = self;
        text
    }
}

impl FoundFamilies {
    /// `found` has one family more than the page if there are more. `scanned`: the last row that was looked at, if the
    /// search stopped there.
    pub(super) fn page(mut found: Vec<Family>, limit: usize, scanned: Option<Position>) -> Self {
        let next = if found.len() > limit {
            found.truncate(limit);
            found.last().map(Position::of)
        } else {
            scanned
        };
        FoundFamilies { families: found, next }
    }
}

/// The first text after all that begin with `prefix`, in the order of code points, which is that of the bytes. `None`
/// if there is none.
pub(super) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // No text contains the code points between these two.
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            end.push(next);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_first_text_after_it() {
        for (prefix, end) in [
            ("", None),
            ("a", Some("b")),
            ("al%_", Some("al%`")),
            ("Ä", Some("Å")),
            ("a\u{7F}", Some("a\u{80}")),
            ("\u{D7FF}", Some("\u{E000}")),
            ("\u{FFFF}", Some("\u{10000}")),
            ("a\u{10FFFF}", Some("b")),
            ("\u{10FFFF}\u{10FFFF}", None),
        ] {
            assert_eq!(end_of_prefix(prefix).as_deref(), end, "{prefix:?}");
            for more in ["", "\0", "z", "\u{10FFFF}\u{10FFFF}"] {
                let subject = format!("{prefix}{more}");
                assert!(end.is_none_or(|end| *subject < *end), "{subject:?}");
            }
        }
    }

    #[test]
    fn a_page_says_where_the_next_one_begins() {
        let families: Vec<Family> = (0..3)
            .map(|number| Family { id: TokenId::from_bytes([number; 16]), ..Family::sample(UnixTime::from_secs(9)) })
            .collect();
        let scanned = Position { subject: "bob".into(), ..Position::of(&families[0]) };
        let page = |count: usize, scanned: Option<&Position>| {
            let found = FoundFamilies::page(families[..count].to_vec(), 2, scanned.cloned());
            (found.families.len(), found.next)
        };
        assert_eq!(page(2, None), (2, None));
        assert_eq!(page(3, None), (2, Some(Position::of(&families[1]))));
        assert_eq!(page(0, Some(&scanned)), (0, Some(scanned.clone())));
        assert_eq!(page(3, Some(&scanned)), (2, Some(Position::of(&families[1]))));
    }
}
