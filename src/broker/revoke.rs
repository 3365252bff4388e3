//! `DELETE /token/{tokenId}`: revokes one family.
//!
//! Its owner may do this from any device, and every caller with the scope `token:revoke`. An unknown family and the
//! family of another owner get the same response. Success for a mistyped id would leave a stolen family alive, and
//! different responses would reveal which ids exist.

use std::time::Duration;

use super::client::check_client_id;
use super::service::Broker;
use crate::auth::authenticate::Caller;
use crate::store::{RevokeOutcome, RevokedBy};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, has_client_auth};
use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// The resolution of dates.
const MILLISECOND: Duration = Duration::from_millis(1);

/// Maximum wait for the time of a watermark. It is longer only if the clock was set back meanwhile.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A caller with this scope may revoke every family.
pub const REVOKE_SCOPE: &str = "token:revoke";

/// The family that the path names, by its id or by one of its refresh tokens.
pub fn named_family(parameter: &str) -> Option<TokenId> {
    TokenId::parse(parameter).or_else(|| PresentedToken::parse(parameter).map(|token| token.token_id))
}

/// In which role a caller revokes a family that it names. The store decides whether such a family exists.
pub fn right_of(caller: &Caller, family: Option<TokenId>) -> Result<(TokenId, RevokedBy), Reject> {
    let token = caller.token();
    // A subject of another issuer is another person, also if the names are equal.
    if !token.own {
        return Err(Reason::TokenNotFound.into());
    }
    let family = family.ok_or(Reason::TokenNotFound)?;
    if token.has_scope(REVOKE_SCOPE) {
        Ok((family, RevokedBy::Admin))
    } else {
        Ok((family, RevokedBy::Owner(token.subject.clone())))
    }
}

/// The session of a caller that wants to end another one of the same user: [`check_other`] decides. `None`: it ends its
/// own, or may end all.
pub fn session_of_other(caller: &VerifiedToken, family: TokenId, by: &RevokedBy) -> Option<TokenId> {
    let of_caller = caller.family.filter(|of_caller| *of_caller != family)?;
    matches!(by, RevokedBy::Owner(_)).then_some(of_caller)
}

/// A client that a user has let in ends its own session alone: the user has agreed to no more. `of_caller`: the session
/// of the caller. If it is not known, nothing is ended.
pub fn check_other(of_caller: Option<&Family>) -> Result<(), Reject> {
    match of_caller {
        Some(family) if family.grant.is_none() => Ok(()),
        _ => Err(Reason::TokenNotFound.into()),
    }
}

impl Broker {
    /// Revokes the family of a live access token, for its owner. If the store does not know the family, the token stays
    /// valid, so this fails.
    pub async fn revoke_login_of(&self, token: &VerifiedToken, context: EventContext) -> Result<(), Reject> {
        let family = token
            .family
            .ok_or_else(|| Reject::new(Reason::Internal, "an access token of the gateway has no family"))?;
        let owner = RevokedBy::Owner(token.subject.clone());
        self.revoke_family(family, owner, context).await.map_err(|reject| match reject.reason {
            Reason::TokenNotFound => {
                let lost = "the store does not know the family of a live token: was an old backup restored?";
                Reject::new(Reason::StoreUnavailable, lost)
            }
            _ => reject,
        })
    }

    /// Revokes the family of a refresh token, also of a used one. Does nothing if it belongs to none. `client_id`: the
    /// client that presents it.
    pub async fn revoke_presented(
        &self,
        presented: &PresentedToken,
        client_id: Option<&str>,
        is_authenticated: bool,
        context: EventContext,
    ) -> Result<(), Reject> {
        let Some(family) = self.family_of(presented).await? else { return Ok(()) };
        check_client_id(&family.client_id, client_id)?;
        if has_client_auth(&family.claims) && !is_authenticated {
            return Err(Reason::ClientNotAuthenticated.into());
        }
        let owner = RevokedBy::Owner(family.subject);
        or_swept(self.revoke_family(family.id, owner, context).await)
    }

    /// When this returns `Ok`, the family is revoked durably, and on every worker of this process. `by` decides whether
    /// it may be revoked.
    pub async fn revoke_family(&self, family: TokenId, by: RevokedBy, context: EventContext) -> Result<(), Reject> {
        match self.with_timeout(self.store.revoke_family(family, by, context)).await? {
            RevokeOutcome::Revoked | RevokeOutcome::AlreadyEnded => Ok(()),
            RevokeOutcome::NotFound => Err(Reason::TokenNotFound.into()),
        }
    }

    /// Revokes a single token, a subject, an issuer or everything. When this returns `Ok`, it is in force as in
    /// [`Broker::revoke_family`], and a login that begins then is not affected.
    pub async fn revoke_named(&self, what: Revoked, context: EventContext) -> Result<(), Reject> {
        let uncertainty = self.clock.uncertainty();
        // Other issuers date their tokens by clocks such as that of this machine.
        let ahead = if self.concerns_others(&what) { self.clock.machine_ahead() } else { Duration::ZERO };
        let what = by_every_clock(what, context.at, uncertainty + ahead);
        let mark = what.not_after();
        self.with_timeout(self.store.revoke(what, context)).await?;
        if let Some(mark) = mark {
            wait_until_after(mark, uncertainty, self.clock.read().now).await;
        }
        Ok(())
    }

    /// Returns true for a watermark of tokens of other issuers.
    fn concerns_others(&self, what: &Revoked) -> bool {
        match what {
            Revoked::Subject { issuer, .. } | Revoked::Issuer { issuer, .. } => *issuer != self.settings.issuer,
            Revoked::Everything { .. } => true,
            Revoked::Family(_) | Revoked::Token { .. } | Revoked::Session { .. } | Revoked::Client { .. } => false,
        }
    }
}

/// A watermark of now is one of now also by the clock of a gateway that is ahead of this one.
fn by_every_clock(what: Revoked, now: UnixTime, uncertainty: Duration) -> Revoked {
    match what.not_after() {
        Some(mark) if mark >= now => what.with_not_after(mark + uncertainty),
        _ => what,
    }
}

/// Waits until a login that begins is dated after `mark`, at every gateway: a millisecond, if `mark` is the time of the
/// request and this gateway is alone.
async fn wait_until_after(mark: UnixTime, uncertainty: Duration, now: UnixTime) {
    let wait = wait_after(mark, uncertainty, now);
    // Even a sleep of no time takes a tick of a millisecond.
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

fn wait_after(mark: UnixTime, uncertainty: Duration, now: UnixTime) -> Duration {
    (mark + uncertainty + MILLISECOND).since(now).min(MAX_WAIT)
}

/// A family that was swept after it was found needs no revocation.
fn or_swept(outcome: Result<(), Reject>) -> Result<(), Reject> {
    match outcome {
        Err(reject) if reject.reason == Reason::TokenNotFound => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_swept_family_counts_as_revoked() {
        assert!(or_swept(Ok(())).is_ok());
        assert!(or_swept(Err(Reason::TokenNotFound.into())).is_ok());
        let failed = or_swept(Err(Reason::StoreUnavailable.into()));
        assert!(failed.is_err_and(|reject| reject.reason == Reason::StoreUnavailable));
    }

    #[tokio::test]
    async fn a_watermark_is_waited_for() {
        let now = UnixTime::from_secs(1_000);
        let begun = tokio::time::Instant::now();
        wait_until_after(now + 9 * MILLISECOND, 10 * MILLISECOND, now).await;
        assert!(begun.elapsed() >= 20 * MILLISECOND);
    }

    #[test]
    fn a_watermark_of_now_is_one_by_every_clock() {
        let now = UnixTime::from_secs(1_000);
        let apart = Duration::from_millis(5);
        let everything = |not_after| Revoked::Everything { not_after };
        for (mark, expected) in
            [(now - MILLISECOND, now - MILLISECOND), (now, now + apart), (now + MILLISECOND, now + MILLISECOND + apart)]
        {
            assert_eq!(by_every_clock(everything(mark), now, apart), everything(expected));
        }
        let family = Revoked::Family(TokenId::from_bytes([7; 16]));
        assert_eq!(by_every_clock(family.clone(), now, apart), family);
        let waits = [now - 7 * MILLISECOND, now - 6 * MILLISECOND, now - 5 * MILLISECOND, now + MAX_WAIT]
            .map(|mark| wait_after(mark, apart, now));
        assert_eq!(waits, [Duration::ZERO, Duration::ZERO, MILLISECOND, MAX_WAIT]);
    }
}
