//! Redeems authorization codes: a code becomes a family, once.
//!
//! The family has the id that the code names, so that the store itself rejects a second use, at whatever gateway it
//! comes. Before the first use, nothing is stored.

use super::issue::begun;
use super::service::Broker;
use super::token_pair::TokenPair;
use crate::store::{IssuedOnce, RevokedBy, Search, SearchState, Subjects};
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::authorization::code::{self, AuthorizationCode};
use crate::tokens::authorization::grant::GrantedFamily;
use crate::tokens::authorization::pending::PendingRequest;
use crate::tokens::bound::Bound;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::{Family, Grant, with_auth_time, with_client_auth};
use crate::tokens::login::Login;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// Live sessions of clients that are read at once.
const GRANT_PAGE: usize = 100;
/// Each looks at 2,000 rows of the subject at most.
const GRANT_PAGES: usize = 50;

/// A code that has passed all other checks.
pub struct RedeemedCode<'c> {
    pub text: &'c str,
    pub code: &'c AuthorizationCode,
    /// The session of the user who agreed.
    pub session: Family,
    /// How the client has authenticated. `None`: it has not.
    pub client_auth: Option<&'static str>,
    /// `oauth.sessions_per_client`
    pub max_of_client: usize,
}

impl Broker {
    /// The live sessions of clients that act for this subject, the newest first. It looks at [`GRANT_PAGES`] pages of
    /// the store at most: ended sessions stay there until they would have expired.
    pub async fn grants_of(&self, subject: &str, now: UnixTime) -> Result<Vec<Family>, Reject> {
        let mut grants = Vec::new();
        let mut after = None;
        for _ in 0..GRANT_PAGES {
            let search = Search {
                subjects: Subjects::One(subject.to_owned()),
                state: SearchState::Live,
                client_id: None,
                resource: None,
                after,
                limit: GRANT_PAGE,
                now,
            };
            let found = self.with_timeout(self.store.search(search)).await?;
            grants.extend(found.families.into_iter().filter(|family| !family.client_id.is_empty()));
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        Ok(grants)
    }

    /// The live session with this id, if a client acts in it for this subject.
    pub async fn grant(&self, id: TokenId, subject: &str, now: UnixTime) -> Result<Option<Family>, Reject> {
        let found = self.with_timeout(self.store.family(id)).await?;
        let is_grant = |family: &Family| family.subject == subject && !family.client_id.is_empty();
        Ok(found.filter(|family| is_grant(family) && family.is_live(now)))
    }

    /// The session of this refresh token, if it is live and the token is its newest one.
    pub async fn session_of_token(&self, presented: &PresentedToken, now: UnixTime) -> Result<Option<Family>, Reject> {
        let found = self.with_timeout(self.store.family(presented.token_id)).await?;
        let is_newest =
            |family: &Family| presented.is_genuine(family, &self.roots) && presented.generation == family.generation;
        Ok(found.filter(|family| is_newest(family) && family.is_live(now)))
    }

    /// The session in which the user agreed, if it is live.
    pub async fn session_of_code(&self, code: &AuthorizationCode, context: &EventContext) -> Result<Family, Reject> {
        let found = self.with_timeout(self.store.family(code.session)).await?;
        let live = found.filter(|family| family.is_live(context.at));
        live.ok_or_else(|| Reject::new(Reason::CodeSessionEnded, "the session of the user has ended"))
    }

    /// Records that a user has declined the request of a client. The client must not learn of it before.
    pub async fn record_denial(
        &self,
        pending: &PendingRequest,
        user: &Family,
        context: EventContext,
    ) -> Result<(), Reject> {
        let request = &pending.request;
        let event = Event {
            subject: Some(user.subject.clone()),
            client_id: Some(pending.client_id.clone()),
            redirect_host: Some(request.redirect_uri.goes_to().to_owned()),
            resource: request.resources.clone(),
            scope: Some(request.scopes.join(" ")).filter(|scope| !scope.is_empty()),
            ..Event::new("authorization.denied")
        };
        Ok(self.with_timeout(self.store.record(event, context)).await?)
    }

    /// Creates the family of a code, and its first pair of tokens. `bind`: what the first access token alone is bound
    /// to.
    ///
    /// A second use of the same code ends the family of the first (RFC 6749 section 4.1.2). Another code of the same
    /// request, which the user has sent twice, is only rejected.
    pub async fn redeem_code(
        &self,
        redeemed: RedeemedCode<'_>,
        login: Login,
        bind: Bound,
        context: EventContext,
    ) -> Result<TokenPair, Reject> {
        let RedeemedCode { text, code, session, client_auth, max_of_client } = redeemed;
        let now = context.at;
        let new = self.first_generation(login, now);
        let new = with_client_auth(with_auth_time(new, &session), client_auth);
        let grant = Some(Grant::default());
        // A revocation of the client that comes between the consent and this call ends what the user has granted.
        let created_at = begun(code.granted_at(now), self.clock.uncertainty());
        let salt = code::salt(text);
        let family = Family { id: code.id, salt, origin: session.origin, created_at, grant, ..new };
        self.check_usable(&family, now)?;
        let max_live = self.settings.sessions_per_subject;
        let grant = GrantedFamily { family, redirect_host: code.redirect_host.clone(), max_live: max_of_client };
        match self.with_timeout(self.store.issue_once(grant, max_live, context.clone())).await? {
            IssuedOnce::Written(family) => self.pair(&family, bind, now),
            IssuedOnce::Void => Err(Reject::new(
                Reason::CodeSessionEnded,
                "the client, the subject or its session was revoked meanwhile",
            )),
            IssuedOnce::Taken(family) if code::is_salt_of(&family.salt, text) => {
                self.revoke_family(family.id, RevokedBy::Reuse, context).await?;
                Err(Reject::new(Reason::CodeReused, "the code was used before; its session ends"))
            }
            IssuedOnce::Taken(_) => {
                Err(Reject::new(Reason::CodeSuperseded, "another code of the same request was used before"))
            }
        }
    }
}
