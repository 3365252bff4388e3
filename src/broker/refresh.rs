//! `POST /user/refresh`: exchanges a refresh token for a new pair. The OAuth token endpoint (`gateway/oauth`) uses it
//! as well.
//!
//! The order of checks: the syntax of the body, the bearer token, the syntax of the refresh token, that both are of one
//! family, and then one store transaction that decides by the rotation rules (`tokens::family::rotation`). A request
//! without a valid signature never reaches the store, and a stolen refresh token alone is not enough.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::Value;

use super::client::check_client_id;
use super::refresh_turns::RefreshTurn;
use super::service::Broker;
use super::token_pair::TokenPair;
use crate::protocols::http::media_type;
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::authorization::narrowing::{Narrowed, Narrowing};
use crate::tokens::bound::{Bound, ProvedClient};
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::rotation::{Rotation, rotate, rotate_late};
use crate::tokens::family::{Family, ReuseRule, has_client_auth};
use crate::tokens::jwt::{VerifiedToken, json};
use crate::types::ids::TokenId;
use crate::types::reject::Reason::{
    self, ClientNotAuthenticated, GrantCertificate, GrantForged, GrantMismatch, GrantUnknown, ProofRejected,
};
use crate::types::reject::Reject;

/// A valid request body. It has no `Debug`: the token must not reach a log.
pub struct RefreshRequest {
    refresh_token: String,
    client_id: Option<String>,
}

impl RefreshRequest {
    /// The refresh token of a browser, from its cookie. Its family belongs to no OAuth client.
    pub fn of_cookie(refresh_token: &str) -> Self {
        RefreshRequest { refresh_token: refresh_token.to_owned(), client_id: None }
    }

    /// The client that the request names.
    pub fn client_id(&self) -> Option<&str> {
        self.client_id.as_deref()
    }

    /// Rejects duplicate members, because two parsers could read two different tokens.
    pub fn read(headers: &HeaderMap, body: &[u8]) -> Result<Self, Reject> {
        check_content_type(headers)?;
        let bad = |detail: String| Reject::new(Reason::BadBody, detail);
        let mut object = json::object(body).map_err(|error| bad(error.to_string()))?;
        let mut text = |name: &str| match object.remove(name) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(bad(format!("{name} is not a string"))),
            None => Ok(None),
        };
        let refresh_token = text("refreshToken")?.ok_or_else(|| bad("refreshToken is missing".into()))?;
        Ok(RefreshRequest { refresh_token, client_id: text("clientId")? })
    }
}

/// A client that presents a refresh token at the token endpoint.
pub struct RefreshingClient<'c> {
    pub client_id: Option<&'c str>,
    pub proved: ProvedClient,
    /// `oauth.reuse`
    pub reuse: ReuseRule,
    /// What the access token shall be for.
    pub narrowing: Narrowing,
}

/// Who presents a refresh token.
struct RefreshCaller {
    /// The subject of the bearer token of the same request. `None` if it needs none.
    subject: Option<String>,
    /// The client that the request names.
    client_id: Option<String>,
    /// What it has proved.
    proved: Bound,
    /// It is a registered client, and has authenticated.
    is_authenticated: bool,
    /// What a spent token of a grant does that comes without a proof.
    reuse: ReuseRule,
    narrowing: Arc<Narrowing>,
}

impl RefreshCaller {
    /// Why the family must not be touched. The family of a client that has authenticated needs that again, also if the
    /// operator has removed the client since. One that is bound to a key needs a proof of this key, and one that is
    /// bound to a certificate needs this certificate (RFC 8705 section 4). It is checked before the rotation, so that a
    /// stolen refresh token alone can neither rotate nor revoke the family (doorkeeper 1794 revoked first).
    fn lacks_proof(&self, family: &Family) -> Option<Reason> {
        if has_client_auth(&family.claims) && !self.is_authenticated {
            return Some(ClientNotAuthenticated);
        }
        let bound = family.bound_to();
        if bound.certificate.is_some() && bound.certificate != self.proved.certificate {
            return Some(GrantCertificate);
        }
        if bound.key.is_some() && bound.key != self.proved.key { Some(ProofRejected) } else { None }
    }

    /// Returns true at the token endpoint if a thief of a refresh token could not have sent this. `family` has passed
    /// [`RefreshCaller::may_refresh`] and [`RefreshCaller::lacks_proof`].
    fn is_proven(&self, family: &Family) -> bool {
        // `POST /user/refresh` alone takes a bearer token.
        if self.subject.is_some() {
            return false;
        }
        let is_bound = family.bound_to() != Bound::default();
        let is_owner = self.is_authenticated && self.client_id.as_deref() == Some(&*family.client_id);
        is_bound || is_owner
    }

    /// Rejects a call that would get a token, and asks for more than was granted. Nothing is used up.
    fn check_wanted(&self, rotation: Rotation) -> Rotation {
        match &rotation {
            Rotation::Rotated(family)
            | Rotation::Replayed(family)
            | Rotation::Recovered(family)
            | Rotation::Repeated(family) => match self.narrowing.of_family(family) {
                Ok(_) => rotation,
                Err(reason) => Rotation::Rejected(reason),
            },
            Rotation::Reused(_) | Rotation::Superseded(_) | Rotation::Rejected(_) => rotation,
        }
    }

    fn may_refresh(&self, family: &Family) -> bool {
        self.subject.as_ref().is_none_or(|subject| family.subject == *subject)
            && check_client_id(&family.client_id, self.client_id.as_deref()).is_ok()
    }
}

impl Broker {
    /// `bearer`: a token that [`crate::auth::authenticate::Authenticator::authenticate_refresh`] accepted, and what the
    /// client has proved beside it.
    pub async fn refresh(
        &self,
        request: RefreshRequest,
        bearer: &VerifiedToken,
        proved: Bound,
        context: EventContext,
    ) -> Result<TokenPair, Reject> {
        let presented = PresentedToken::parse(&request.refresh_token).ok_or(Reason::GrantMalformed)?;
        let token_id = presented.token_id;
        let context = EventContext { caller: Some(bearer.subject.clone()), ..context };
        if bearer.family != Some(token_id) {
            // The family is not revoked: an application that switches accounts also sends this.
            let event = Event { token_id: Some(token_id), ..Event::new("refresh.binding_mismatch") };
            self.with_timeout(self.store.record(event, context)).await?;
            return Err(Reject::new(
                Reason::GrantMismatch,
                format!("the refresh token belongs to {token_id}, the bearer token to another family"),
            ));
        }
        let now = context.at;
        let caller = RefreshCaller {
            subject: Some(bearer.subject.clone()),
            client_id: request.client_id,
            proved,
            is_authenticated: false,
            // The rule is for clients of the token endpoint.
            reuse: ReuseRule::End,
            narrowing: Arc::default(),
        };
        let rotation = self.rotate(presented, caller, context, None).await?;
        let family = refreshed(rotation, token_id)?;
        self.pair(&family, proved.with_certificate_if(self.settings.certificate_bound), now)
    }

    /// For a client that presents a refresh token without a bearer token. Waits for a refresh of the same family that
    /// runs here.
    pub async fn refresh_for_client(
        &self,
        presented: PresentedToken,
        by: RefreshingClient<'_>,
        context: EventContext,
    ) -> Result<TokenPair, Reject> {
        let token_id = presented.token_id;
        let now = context.at;
        let narrowing = Arc::new(by.narrowing);
        let caller = RefreshCaller {
            subject: None,
            client_id: by.client_id.map(str::to_owned),
            proved: by.proved.proved,
            is_authenticated: by.proved.is_authenticated,
            reuse: by.reuse,
            narrowing: narrowing.clone(),
        };
        let mut turn = self.refresh_turns.take(token_id, self.settings.store_timeout).await;
        let rotation = match self.rotate(presented, caller, context, Some(&mut turn)).await? {
            // No retry helps, and one after the grace period would end the session of the client's other process.
            Rotation::Rejected(Reason::RefreshConflict) => Rotation::Rejected(Reason::GrantOutdated),
            rotation => rotation,
        };
        let family = refreshed(rotation, token_id)?;
        let Narrowed { scope, audience } = narrowing.of_family(&family)?;
        self.pair(&Family { scope, audience, ..family }, by.proved.bind, now)
    }

    async fn rotate(
        &self,
        presented: PresentedToken,
        caller: RefreshCaller,
        context: EventContext,
        turn: Option<&mut RefreshTurn<'_>>,
    ) -> Result<Rotation, Reject> {
        let token_id = presented.token_id;
        let client = context.client;
        self.throttle.check_refreshes(token_id)?;
        let seen = self.seen_generations.newest(presented.token_id);
        if let Some(generation) = seen {
            drop(self.store.confirm(vec![(presented.token_id, generation)]));
        }
        let roots = self.roots.clone();
        let lifetimes = self.settings.lifetimes;
        let clock = self.clock.clone();
        let before = turn.as_ref().and_then(|turn| turn.before());
        let has_turn = turn.is_some();
        let found = Arc::new(Mutex::new(None));
        let found_here = found.clone();
        let decide = move |family: Option<&Family>, watermark, presented: &PresentedToken, of_store| {
            // Another connection to the store writes the confirmation, perhaps later than this one reads.
            let family = family.map(|family| with_confirmed(family, seen));
            let time = clock.read_with(of_store);
            let rotation = match (family.as_deref(), &before) {
                (Some(family), _) if !caller.may_refresh(family) => Rotation::Rejected(Reason::GrantMismatch),
                (Some(family), _) if let Some(reason) = caller.lacks_proof(family) => Rotation::Rejected(reason),
                (Some(family), Some(before)) => {
                    rotate_late(before, family, watermark, presented, &roots, &lifetimes, time)
                }
                (family, _) => rotate(family, watermark, presented, &roots, &lifetimes, time),
            };
            let rotation = match family.as_deref() {
                Some(family) if caller.is_proven(family) => rotation.for_proven_sender(family),
                Some(family) => rotation.for_unproven_sender(family, client, caller.reuse, time),
                None => rotation,
            };
            let rotation = caller.check_wanted(rotation);
            if has_turn && matches!(rotation, Rotation::Rotated(_)) {
                // The last one counts, as the decision does.
                *found_here.lock() = family.as_deref().cloned();
            }
            with_address(client, rotation)
        };
        let rotation = self.with_timeout(self.store.rotate(presented, Box::new(decide), context)).await?;
        self.refreshes.count(&rotation);
        if let (Rotation::Rotated(_), Some(turn)) = (&rotation, turn)
            && let Some(family) = found.lock().take()
        {
            turn.rotated(family);
        }
        // An attacker who knows only the id of a family must not use up its refreshes.
        let is_of_other = matches!(
            rotation,
            Rotation::Rejected(
                GrantUnknown | GrantForged | GrantMismatch | GrantCertificate | ProofRejected | ClientNotAuthenticated
            )
        );
        if !is_of_other {
            self.throttle.count_refresh(token_id);
        }
        Ok(rotation)
    }
}

/// The family that gets tokens.
fn refreshed(rotation: Rotation, token_id: TokenId) -> Result<Family, Reject> {
    match rotation {
        Rotation::Rotated(family)
        | Rotation::Replayed(family)
        | Rotation::Recovered(family)
        | Rotation::Repeated(family) => Ok(family),
        Rotation::Reused(_) => {
            Err(Reject::new(Reason::GrantReused, "the refresh token was already used; its family is revoked"))
        }
        Rotation::Superseded(_) => Err(Reject::new(
            Reason::GrantSuperseded,
            "the refresh token was already used, from the address of this client; its family goes on",
        )),
        Rotation::Rejected(reason) => {
            if reason == Reason::GrantAhead {
                tracing::error!(%token_id, "a refresh token is newer than the store: was an old backup restored?");
            }
            Err(reason.into())
        }
    }
}

/// The family, as after the confirmation of the generation that was seen in use.
fn with_confirmed(family: &Family, seen: Option<u64>) -> Cow<'_, Family> {
    match seen.map(|seen| seen.min(family.generation)).filter(|seen| *seen > family.confirmed) {
        Some(confirmed) => Cow::Owned(Family { confirmed, ..family.clone() }),
        None => Cow::Borrowed(family),
    }
}

/// Records the client's address with the new generation.
fn with_address(client: Option<IpAddr>, rotation: Rotation) -> Rotation {
    match rotation {
        Rotation::Rotated(family) => Rotation::Rotated(Family { address: client.or(family.address), ..family }),
        other => other,
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Reject> {
    let kind = media_type::of(headers).unwrap_or_default();
    if kind.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Reject::new(Reason::UnsupportedMediaType, format!("Content-Type is {kind:?}, expected application/json")))
    }
}
