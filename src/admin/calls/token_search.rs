//! `GET /admin/v1/tokens`: searches sessions by their subject.

use http::{Response, StatusCode, Uri};
use serde::Serialize;

use super::query::Query;
use super::token_entry::{self, TokenEntry};
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{FoundFamilies, Position, Search, SearchState, Subjects};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

#[derive(Serialize)]
struct Page {
    tokens: Vec<TokenEntry>,
    /// `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(super) async fn handle(admin: &Admin, uri: &Uri, now: UnixTime) -> Result<Response<Body>, Reject> {
    let search = search(uri, now)?;
    let FoundFamilies { families, next } = admin.broker.with_timeout(admin.broker.store.search(search)).await?;
    let tokens = token_entry::of(admin, families, now).await?;
    Ok(respond::json(StatusCode::OK, &Page { tokens, next: next.as_ref().map(to_cursor) }))
}

fn search(uri: &Uri, now: UnixTime) -> Result<Search, Reject> {
    let mut query = Query::read(uri)?;
    let subjects = match (query.take("subject"), query.take("subjectPrefix")) {
        (Some(_), Some(_)) => Err("subject and subjectPrefix cannot be used together"),
        (Some(subject), None) => Ok(Subjects::One(subject)),
        (None, prefix) => Ok(Subjects::WithPrefix(prefix.unwrap_or_default())),
    };
    let state = match query.take("state").as_deref() {
        None | Some("live") => Ok(SearchState::Live),
        Some("ended") => Ok(SearchState::Ended),
        Some("all") => Ok(SearchState::All),
        Some(_) => Err("state: expected live, ended or all"),
    };
    let after = query.take("after");
    let limit = query.limit()?;
    query.finish()?;
    let invalid = |error| Reject::new(Reason::BadParameter, error);
    let (subjects, state) = (subjects.map_err(invalid)?, state.map_err(invalid)?);
    let position = |cursor: String| {
        let found = from_cursor(&cursor).filter(|position| subjects.contains(&position.subject));
        found.ok_or_else(|| invalid("after: expected `next` of a page of the same search"))
    };
    let after = after.map(position).transpose()?;
    Ok(Search { subjects, state, after, limit, now })
}

/// Has only characters that a query need not encode.
fn to_cursor(position: &Position) -> String {
    let subject: String = position.subject.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{subject}", position.id, position.created_at.as_millis())
}

fn from_cursor(cursor: &str) -> Option<Position> {
    let mut parts = cursor.splitn(3, '-');
    let (id, created_at, subject) = (parts.next()?, parts.next()?, parts.next()?);
    let byte = |pair: &[u8]| {
        let is_hex = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        is_hex.then(|| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).flatten()
    };
    let subject = subject.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
    Some(Position {
        subject: String::from_utf8(subject).ok()?,
        created_at: UnixTime::from_millis(created_at.parse().ok()?),
        id: TokenId::parse(id)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_the_position() {
        for subject in ["", "alice", "a-b&c=%", "é\0\u{10FFFF}"] {
            let id = TokenId::from_bytes([7; 16]);
            for created_at in [UnixTime::from_millis(1_700_000_000_500), UnixTime::MAX] {
                let position = Position { subject: subject.into(), created_at, id };
                let cursor = to_cursor(&position);
                assert!(cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{cursor}");
                assert_eq!(from_cursor(&cursor), Some(position));
            }
        }
        let id = TokenId::from_bytes([7; 16]).to_string();
        for wrong in ["", "x", "x-1-", &id, &format!("{id}-1"), &format!("{id}--61"), &format!("{id}-1-6")]
            .into_iter()
            .chain([&*format!("{id}-1-+6"), &format!("{id}-1-ff"), &format!("{id}-1-61-61")])
        {
            assert_eq!(from_cursor(wrong), None, "{wrong:?}");
        }
    }
}
