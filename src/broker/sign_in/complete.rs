//! The end of a sign-in: the code becomes a family with a handle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::exchange::{Checked, Responded};
use super::provider::{SignInProvider, UnusedToken};
use crate::auth::provider::Metadata;
use crate::broker::service::Broker;
use crate::limits::throttle;
use crate::store::{ProviderLogin, RevokedBy};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::{Family, FamilyOrigin, handle, with_auth_time_of_provider};
use crate::tokens::login::Login;
use crate::tokens::sign_in::attempt::Attempt;
use crate::tokens::sign_in::id_token::IdToken;
use crate::tokens::sign_in::provider_tokens::{Place, ProviderTokens};
use crate::tokens::sign_in::rules::Denied;
use crate::types::clock::{Clock, UnixTime};
use crate::types::ids::TokenId;
use crate::types::reject::{Reason, Reject};

/// What the browser gets.
pub struct SignedIn {
    /// For its cookie.
    pub handle: String,
    pub family: Family,
}

/// What the browser brought back, and what it had before.
pub struct Returned {
    pub attempt: Attempt,
    pub code: String,
    /// The same as in the request to the provider.
    pub redirect_uri: String,
    /// The family of its old handle, which ends: a handle is never used again for another login.
    pub replaces: Option<TokenId>,
}

/// `[sign_in]`
#[derive(Clone, Copy, Debug)]
pub struct LoginLifetimes {
    pub absolute: Duration,
    pub idle: Duration,
}

impl Broker {
    /// Exchanges the code, and creates a family. It is durable when this returns. The caller has used the attempt up.
    ///
    /// `context.at` is when the browser came back. A mass revocation since then also ends this login.
    ///
    /// If the browser leaves meanwhile, the tokens that the provider issues are revoked there. `guess`: the code may be
    /// one. It counts until the provider has accepted the code, also if the browser leaves: it could leave each time.
    pub async fn sign_in(
        self: &Arc<Self>,
        with: &SignInProvider,
        returned: Returned,
        guess: Option<throttle::Attempt>,
        lifetimes: LoginLifetimes,
        clock: &Arc<dyn Clock>,
        context: EventContext,
    ) -> Result<SignedIn, Reject> {
        let (sender, receiver) = oneshot::channel();
        let broker = self.clone();
        let with = with.clone();
        let clock = clock.clone();
        // Not in the future of the request, which ends with its client.
        self.detached.begin(async move {
            let signed_in = broker.complete(&with, returned, lifetimes, &*clock, context).await;
            if let Some(guess) = guess {
                guess.end(signed_in.as_ref().is_err_and(|reject| reject.reason == Reason::SignInFailed));
            }
            if let Err(Ok((signed_in, unused))) = sender.send(signed_in) {
                broker.abandon(signed_in.family, &with, unused, &*clock).await;
            }
        });
        let no_result = |_| Err(Reject::new(Reason::Internal, "the sign-in ended without a result"));
        receiver.await.unwrap_or_else(no_result).map(|(signed_in, _)| signed_in)
    }

    async fn complete(
        &self,
        with: &SignInProvider,
        returned: Returned,
        lifetimes: LoginLifetimes,
        clock: &dyn Clock,
        context: EventContext,
    ) -> Result<(SignedIn, UnusedToken), Reject> {
        let metadata = with.metadata()?;
        let Returned { attempt, code, redirect_uri, .. } = &returned;
        let Responded { refresh_token, tokens } =
            with.exchange_code(&metadata, attempt, code, redirect_uri, clock).await;
        let response = match tokens {
            Ok(response) => response,
            Err(no_tokens) => {
                if let Some(unused) = refresh_token.map(UnusedToken::refresh) {
                    with.revoke_unused(&metadata, unused, clock.now());
                }
                return Err(no_tokens.reject());
            }
        };
        let unused = UnusedToken::of(&response);
        let checked = with.check_first(&metadata, response, &returned.attempt, clock).await;
        let signed_in = match checked {
            Ok(checked) => self.begin(with, &metadata, checked, returned, lifetimes, context).await,
            Err(no_tokens) => Err(no_tokens.reject()),
        };
        match signed_in {
            Ok(signed_in) => Ok((signed_in, unused)),
            Err(reject) => {
                // No session gets them, and they would live on at the provider.
                with.revoke_unused(&metadata, unused, clock.now());
                Err(reject)
            }
        }
    }

    /// Ends a session that no browser has got, and what it has at the provider.
    async fn abandon(&self, family: Family, with: &SignInProvider, unused: UnusedToken, clock: &dyn Clock) {
        let now = clock.now();
        let revoked = self.store.revoke_family(family.id, RevokedBy::Owner(family.subject), now.into());
        if let Err(error) = self.with_timeout(revoked).await {
            // It ends by itself when it was not used for five minutes.
            tracing::warn!(session = %family.id, %error, "cannot end a session that its browser left");
        }
        // The store knows the refresh token, and returns it to be revoked.
        if !unused.is_refresh_token()
            && let Ok(metadata) = with.metadata()
        {
            with.revoke_unused(&metadata, unused, now);
        }
    }

    async fn begin(
        &self,
        with: &SignInProvider,
        metadata: &Metadata,
        checked: Checked,
        returned: Returned,
        lifetimes: LoginLifetimes,
        context: EventContext,
    ) -> Result<SignedIn, Reject> {
        let family = self.family_of_login(with, &checked, lifetimes, context.at)?;
        // The tokens live from then on, at the earliest.
        let id_token = id_token(&checked)?;
        let now = context.at;
        let nonce = returned.attempt.nonce.clone();
        let mut tokens = ProviderTokens::new(id_token.subject.clone(), nonce, id_token.auth_time);
        tokens.renew_access(now, checked.lifetime);
        let due = if checked.response.refresh_token.is_some() { now + checked.fresh_for() } else { UnixTime::MAX };
        if due == UnixTime::MAX {
            with.without_refresh_token();
        }
        tokens.claims = checked.claims;
        tokens.refresh_token = checked.response.refresh_token;
        tokens.id_token = if metadata.end_session.is_some() { checked.response.id_token } else { None };
        let place = Place { family: family.id, issuer: &with.provider.issuer, version: 0 };
        let sealed = tokens.seal(place, &self.roots);
        let (root, sealed) = sealed.ok_or_else(|| Reject::new(Reason::Internal, "there is no root secret"))?;
        let provider = with.provider.name.to_string();
        let login = ProviderLogin { provider, root, sealed, version: 0, due, claimed: false };
        let max_live = self.settings.sessions_per_subject;
        let begun = self.store.begin_login(family, login, returned.replaces, max_live, context);
        let ended = || Reject::new(Reason::SignInFailed, "the session at the provider has ended meanwhile");
        let family = self.with_timeout(begun).await?.ok_or_else(ended)?;
        let handle = handle::of(&family, &self.roots);
        let handle =
            handle.ok_or_else(|| Reject::new(Reason::Internal, "the root secret of a new family is missing"))?;
        Ok(SignedIn { handle, family })
    }

    fn family_of_login(
        &self,
        with: &SignInProvider,
        checked: &Checked,
        lifetimes: LoginLifetimes,
        now: UnixTime,
    ) -> Result<Family, Reject> {
        let id_token = id_token(checked)?;
        let claims = checked.claims.as_ref().map(|known| with.settings.rules.admit(&known.claims()));
        let login = Login {
            subject: format!("{}{}", with.provider.subject_prefix, id_token.subject),
            prefix_len: with.provider.subject_prefix.len(),
            scope: checked.scope.clone(),
            claims: claims.transpose().map_err(denied)?.unwrap_or_default(),
            label: with.provider.name.to_string(),
            idle: Some(lifetimes.idle),
            absolute: Some(lifetimes.absolute),
            ..Login::default()
        };
        login.check().map_err(|error| Reject::new(Reason::SignInFailed, error.to_string()))?;
        // `limits.token_size` is the limit of tokens that clients send, and this browser gets a handle. Only backends
        // get an access token of this session, with `token = "replace"`.
        let family = self.first_generation(login, now);
        let origin = FamilyOrigin {
            issuer: with.provider.issuer.to_string(),
            subject: id_token.subject.clone(),
            session: id_token.session.clone(),
            dated: id_token.issued,
        };
        let family = match id_token.auth_time {
            Some(time) => with_auth_time_of_provider(family, time),
            None => family,
        };
        Ok(Family { origin: Some(origin), ..family })
    }
}

fn id_token(checked: &Checked) -> Result<&IdToken, Reject> {
    checked.id_token.as_ref().ok_or_else(|| Reject::new(Reason::SignInFailed, "the response has no id_token"))
}

pub(super) fn denied(denied: Denied) -> Reject {
    let reason = if denied == Denied::GroupsUnknown { Reason::GroupsUnknown } else { Reason::SignInDenied };
    Reject::new(reason, denied.detail())
}
