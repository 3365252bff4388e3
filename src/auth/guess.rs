//! A credential that may be a guess. It counts as a bad signature until its look-up shows that it is none.

use crate::auth::context::AuthContext;
use crate::types::reject::Reject;

/// A possible guess, which counts as a bad signature. It goes on to count if the client gives its request up.
pub(super) struct Guess<'g> {
    /// `None` if it does not count.
    counted: Option<&'g AuthContext<'g>>,
}

impl<'g> Guess<'g> {
    /// Of a credential that was good a moment ago.
    pub(super) fn none() -> Self {
        Guess { counted: None }
    }

    /// # Errors
    /// If this client has no guess left.
    pub(super) fn count(context: &'g AuthContext<'g>) -> Result<Self, Reject> {
        context.payer.reserve(context.clock.uptime())?;
        Ok(Guess { counted: Some(context) })
    }

    /// The client may have guessed.
    pub(super) fn confirm(&mut self) {
        self.counted = None;
    }

    /// The client has not guessed, or nothing is known about it.
    pub(super) fn refute(&mut self) {
        if let Some(context) = self.counted.take() {
            context.payer.give_back();
        }
    }
}
