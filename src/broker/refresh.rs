//! `POST /user/refresh`: an exchange of a refresh token for a new pair. The token endpoint of `oauth/` ends here as well.
//!
//! The order of checks: the body's shape, the Bearer, the refresh token's syntax, that both are of one family, and then one
//! store transaction that decides by the rotation table (`family::rotation`). Nothing touches the store that has not passed
//! a signature; a stolen refresh token alone is not enough.

use std::net::IpAddr;

use http::HeaderMap;

use super::{Broker, TokenPair};
use crate::protocols::http::media_type;
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::rotation::{Rotation, rotate};
use crate::tokens::jwt::{VerifiedToken, json};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::Reason::{self, GrantForged, GrantMismatch, GrantUnknown};
use crate::types::reject::Reject;

/// A body of the right shape. It has no `Debug`: the token must not reach a log.
pub struct RefreshRequest {
    refresh_token: String,
}

impl RefreshRequest {
    /// Strict about what it reads: two members of one name could be read in two ways.
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Reject> {
        check_content_type(headers)?;
        let mut object = json::object(body).map_err(|error| Reject::new(Reason::BadBody, error.to_string()))?;
        match object.remove("refreshToken") {
            Some(serde_json::Value::String(refresh_token)) => Ok(RefreshRequest { refresh_token }),
            Some(_) => Err(Reject::new(Reason::BadBody, "refreshToken is not a string")),
            None => Err(Reject::new(Reason::BadBody, "refreshToken is missing")),
        }
    }
}

/// Who shows a refresh token.
enum RefreshCaller {
    /// The subject of an access token that came along.
    Subject(String),
    /// What a client calls itself. Its word: it is public.
    Client(Option<String>),
}

impl RefreshCaller {
    fn may_hold(&self, family: &Family) -> bool {
        match self {
            RefreshCaller::Subject(subject) => family.subject == *subject,
            // RFC 6749 section 6: the token is bound to the client that it was issued to, where that is known.
            RefreshCaller::Client(id) => family.client_id.is_empty() || id.as_deref() == Some(&*family.client_id),
        }
    }
}

impl Broker {
    /// `bearer`: what [`crate::auth::authenticate::Authenticator::authenticate_refresh`] let through.
    pub async fn refresh(
        &self,
        request: RefreshRequest,
        bearer: &VerifiedToken,
        occasion: EventContext,
    ) -> Result<TokenPair, Reject> {
        let presented = PresentedToken::parse(&request.refresh_token).ok_or(Reason::GrantMalformed)?;
        let token_id = presented.token_id;
        let occasion = EventContext { caller: Some(bearer.subject.clone()), ..occasion };
        if bearer.family != Some(token_id) {
            // Not revoked: account switching inside one application does this too.
            let event = Event { token_id: Some(token_id), ..Event::new("refresh.binding_mismatch") };
            self.in_time(self.store.record(event, occasion)).await?;
            return Err(Reject::new(Reason::GrantMismatch, format!("the refresh token is of {token_id}")));
        }
        let now = occasion.at;
        let rotation = self.rotate(presented, RefreshCaller::Subject(bearer.subject.clone()), occasion).await?;
        self.answer(rotation, token_id, now)
    }

    /// For a client that shows a refresh token alone.
    pub async fn refresh_for_client(
        &self,
        presented: PresentedToken,
        client_id: Option<&str>,
        occasion: EventContext,
    ) -> Result<TokenPair, Reject> {
        let (token_id, now) = (presented.token_id, occasion.at);
        let rotation = self.rotate(presented, RefreshCaller::Client(client_id.map(str::to_owned)), occasion).await?;
        self.answer(rotation, token_id, now)
    }

    async fn rotate(
        &self,
        presented: PresentedToken,
        holder: RefreshCaller,
        occasion: EventContext,
    ) -> Result<Rotation, Reject> {
        let (token_id, now, client) = (presented.token_id, occasion.at, occasion.client);
        self.throttle.refresh(token_id, now)?;
        // A confirmation on its way counts: it is queued before the rotation, so the store sees it first.
        if let Some(generation) = self.seen_generations.take(presented.token_id) {
            drop(self.store.confirm(vec![(presented.token_id, generation)]));
        }
        let (roots, lifetimes) = (self.roots.clone(), self.settings.lifetimes);
        let decide = move |family: Option<&Family>, watermark, presented: &PresentedToken| match family {
            Some(family) if !holder.may_hold(family) => Rotation::Rejected(Reason::GrantMismatch),
            _ => used_from(client, rotate(family, watermark, presented, &roots, &lifetimes, now)),
        };
        let rotation = self.in_time(self.store.rotate(presented, Box::new(decide), occasion)).await?;
        // Whoever knows no more than the name of a login must not use up its refreshes.
        if !matches!(rotation, Rotation::Rejected(GrantUnknown | GrantForged | GrantMismatch)) {
            self.throttle.refreshed(token_id, now);
        }
        Ok(rotation)
    }

    fn answer(&self, rotation: Rotation, token_id: TokenId, now: UnixTime) -> Result<TokenPair, Reject> {
        let family = match rotation {
            Rotation::Rotated(family) | Rotation::Replayed(family) | Rotation::Recovered(family) => family,
            Rotation::Reused(_) => {
                return Err(Reject::new(Reason::GrantReused, "a spent token came back; its family is revoked"));
            }
            Rotation::Rejected(reason) => {
                if reason == Reason::GrantAhead {
                    tracing::error!(%token_id, "a genuine refresh token is newer than the store: was a backup restored?");
                }
                return Err(reason.into());
            }
        };
        self.pair(&family, now)
    }
}

/// Where the family was used last is where its new generation goes.
fn used_from(client: Option<IpAddr>, rotation: Rotation) -> Rotation {
    match rotation {
        Rotation::Rotated(family) => Rotation::Rotated(Family { address: client.or(family.address), ..family }),
        other => other,
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Reject> {
    let kind = media_type::of(headers).unwrap_or_default();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(Reject::new(Reason::UnsupportedMediaType, format!("Content-Type is {kind:?}"))),
    }
}
