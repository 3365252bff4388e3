//! A credential that may be a guess: an address may make few of them. A guess counts as a bad signature.

use crate::auth::context::AuthContext;
use crate::types::reject::Reject;

/// A possible guess. Dropping it, because the client gives its request up, leaves the count as it is.
pub(super) struct Guess<'g> {
    context: &'g AuthContext<'g>,
    state: GuessState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GuessState {
    /// It counts if it is confirmed.
    Open,
    /// It counts unless it is refuted.
    Counted,
    /// Nothing is left to do.
    Settled,
}

impl<'g> Guess<'g> {
    /// Takes a credential that was good a moment ago, and is no guess.
    pub(super) fn none(context: &'g AuthContext<'g>) -> Self {
        Guess { context, state: GuessState::Settled }
    }

    /// Takes a credential that counts once it is confirmed.
    ///
    /// # Errors
    /// If this client has no guess left.
    pub(super) fn open(context: &'g AuthContext<'g>) -> Result<Self, Reject> {
        context.payer.check(context.clock.uptime())?;
        Ok(Guess { context, state: GuessState::Open })
    }

    /// Takes a credential that counts until it is refuted, so that no client has more guesses in flight than it may
    /// make.
    ///
    /// # Errors
    /// If this client has no guess left.
    pub(super) fn counted(context: &'g AuthContext<'g>) -> Result<Self, Reject> {
        context.payer.reserve(context.clock.uptime())?;
        Ok(Guess { context, state: GuessState::Counted })
    }

    /// Counts it: the credential is unknown or forged.
    pub(super) fn confirm(&mut self) {
        if self.state == GuessState::Open {
            self.context.payer.count(self.context.clock.uptime());
        }
        self.state = GuessState::Settled;
    }

    /// Does not count it: the client has not guessed, or nothing is known about the credential.
    pub(super) fn refute(&mut self) {
        if self.state == GuessState::Counted {
            self.context.payer.give_back();
        }
        self.state = GuessState::Settled;
    }
}
