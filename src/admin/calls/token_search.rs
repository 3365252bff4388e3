//! `GET /admin/v1/tokens`: searches sessions by their subject, client and resource.

use http::{Response, StatusCode, Uri};
use serde::Serialize;

use super::cursor::{from_cursor, to_cursor};
use super::query::Query;
use super::token_entry::{self, TokenEntry};
use crate::admin::state::Admin;
use crate::protocols::http::body::Body;
use crate::protocols::http::respond;
use crate::store::{FoundFamilies, Search, SearchState, Subjects};
use crate::types::clock::UnixTime;
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
    let client_id = query.take("clientId");
    let resource = query.take("resource");
    let after = query.take("after");
    let limit = query.limit()?;
    query.finish()?;
    let invalid = |error| Reject::new(Reason::BadParameter, error);
    let subjects = subjects.map_err(invalid)?;
    let state = state.map_err(invalid)?;
    let is_url = |resource: &String| resource.starts_with("https://") || resource.starts_with("http://");
    if !resource.as_ref().is_none_or(is_url) {
        return Err(invalid("resource: expected a URL, as `resource` of a route"));
    }
    let position = |cursor: String| {
        let found = from_cursor(&cursor).filter(|position| subjects.contains(&position.subject));
        found.ok_or_else(|| invalid("after: expected `next` of a page of the same search"))
    };
    let after = after.map(position).transpose()?;
    Ok(Search { subjects, state, client_id, resource, after, limit, now })
}
