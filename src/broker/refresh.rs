//! `POST /user/refresh`: an exchange of a refresh token for a new pair.
//!
//! The order of checks: the body's shape, the Bearer, the refresh token's syntax, that both are of one family, and then one
//! store transaction that decides by the rotation table (`family::rotation`). Nothing touches the store that has not passed
//! a signature; a stolen refresh token alone is not enough.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde::Deserialize;

use super::{Broker, TokenPair};
use crate::authenticate::{Asker, Authenticator};
use crate::clock::UnixTime;
use crate::family::refresh_token::PresentedToken;
use crate::family::rotation::{Rotation, rotate};
use crate::ids::TokenId;
use crate::reject::{Reason, Reject};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RefreshRequest {
    refresh_token: String,
}

impl Broker {
    /// `on_family` is told which family it is about, as soon as that is known: for the log.
    pub async fn refresh(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        authenticator: &Authenticator,
        asker: Asker<'_>,
        now: UnixTime,
        on_family: impl FnOnce(TokenId),
    ) -> Result<TokenPair, Reject> {
        check_content_type(headers)?;
        let request: RefreshRequest = serde_json::from_slice(&body).map_err(|_| Reason::BadBody)?;
        let bearer = authenticator.authenticate_refresh(headers, self.settings.lifetimes.idle, asker, now)?;
        let presented = PresentedToken::parse(&request.refresh_token).ok_or(Reason::GrantMalformed)?;
        on_family(presented.token_id);
        if bearer.family != Some(presented.token_id) {
            // Not revoked: account switching inside one application does this too.
            tracing::warn!(target: "audit", event = "refresh.binding_mismatch", token_id = %presented.token_id);
            return Err(Reason::GrantMismatch.into());
        }
        let token_id = presented.token_id;
        let rotation = self.rotate(presented, bearer.subject, now).await?;
        self.answer(rotation, token_id, now)
    }

    async fn rotate(&self, presented: PresentedToken, subject: String, now: UnixTime) -> Result<Rotation, Reject> {
        // A confirmation on its way counts: it is queued before the rotation, so the store sees it first.
        if let Some(generation) = self.confirmations.take(presented.token_id) {
            drop(self.store.confirm(vec![(presented.token_id, generation)]));
        }
        let (roots, lifetimes) = (self.roots.clone(), self.settings.lifetimes);
        let decide = move |family: Option<&crate::family::Family>, watermark, presented: &PresentedToken| match family {
            Some(family) if family.subject != subject => Rotation::Refused(Reason::GrantMismatch),
            _ => rotate(family, watermark, presented, &roots, &lifetimes, now),
        };
        Ok(self.store.rotate(presented, Box::new(decide)).await?)
    }

    fn answer(&self, rotation: Rotation, token_id: TokenId, now: UnixTime) -> Result<TokenPair, Reject> {
        let (event, family) = match rotation {
            Rotation::Rotated(family) => ("token.refreshed", family),
            Rotation::Replayed(family) => ("refresh.replayed", family),
            Rotation::Recovered(family) => ("refresh.recovered", family),
            Rotation::Reused(family) => {
                let subject = family.subject;
                tracing::warn!(target: "audit", event = "refresh.reuse_detected", %token_id, subject);
                return Err(Reject::new(Reason::GrantReused, "a spent token came back; its family is revoked"));
            }
            Rotation::Refused(reason) => {
                if reason == Reason::GrantAhead {
                    tracing::error!(target: "audit", event = "store.rollback_suspected", %token_id,
                        "a genuine refresh token is newer than the store: was a backup restored?");
                }
                tracing::info!(target: "audit", event = "refresh.denied", reason = reason.code(), %token_id);
                return Err(reason.into());
            }
        };
        tracing::info!(target: "audit", event, %token_id, subject = family.subject, generation = family.generation);
        self.pair(&family, now)
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Reject> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = value.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Reject::new(Reason::UnsupportedMediaType, format!("Content-Type is {value:?}")))
}
