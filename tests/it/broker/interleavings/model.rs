//! What clients were told, and what must be true because of it.

use bearward::broker::TokenPair;
use bearward::types::ids::TokenId;
use bearward::types::reject::{Reason, Reject};

/// A moment in an interleaving: the number of its step.
pub(super) type Moment = usize;

#[derive(Clone)]
pub(super) struct Tokens {
    pub(super) access: String,
    pub(super) refresh: String,
}

/// A login, as all that have to do with it know it together.
pub(super) struct CachedToken {
    pub(super) id: TokenId,
    /// Everything that was answered, by generation: the first has number 0. A refresh token has one child, and a child may
    /// have several access tokens.
    pub(super) generations: Vec<Vec<Tokens>>,
    /// A revocation that concerns it was begun: it may be dead.
    pub(super) doomed: bool,
    /// What was presented, by refreshes that were not answered, or not yet.
    pub(super) unheard: Vec<usize>,
    /// It was answered: it is dead.
    pub(super) dead_since: Option<Moment>,
}

impl CachedToken {
    pub(super) fn new(pair: &TokenPair) -> CachedToken {
        let id = pair.token_id.expect("is shown");
        CachedToken { id, generations: vec![vec![tokens(pair)]], doomed: false, unheard: Vec::new(), dead_since: None }
    }

    pub(super) fn newest(&self) -> &Tokens {
        let newest = self.generations.last().and_then(|generation| generation.last());
        newest.expect("it started with one")
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Tokens> {
        self.generations.iter().flatten()
    }

    pub(super) fn dies(&mut self, now: Moment) {
        self.doomed = true;
        self.dead_since.get_or_insert(now);
    }

    /// By a revocation, or as a spent token came back. Nobody need have heard of it.
    pub(super) fn may_be_dead(&self) -> bool {
        self.doomed || self.unheard.iter().any(|presented| self.is_spent(*presented))
    }

    fn is_spent(&self, presented: usize) -> bool {
        presented + 1 < self.generations.len()
    }

    fn was_dead(&self, at: Moment) -> bool {
        self.dead_since.is_some_and(|since| since < at)
    }

    /// A refresh with the token of `presented` (0 for the first generation) that began at `began` was answered at `now`.
    pub(super) fn refreshed(
        &mut self,
        presented: usize,
        started: Moment,
        now: Moment,
        response: Result<TokenPair, Reject>,
    ) {
        let is_revoked = response.as_ref().is_err_and(|reject| reject.reason == Reason::GrantRevoked);
        assert!(!is_revoked || self.may_be_dead(), "a living login was refused");
        let heard = self.unheard.iter().position(|unheard| *unheard == presented).expect("it was asked");
        self.unheard.swap_remove(heard);
        match response {
            Ok(pair) => {
                assert!(!self.was_dead(started), "a dead login was refreshed");
                match self.generations.get_mut(presented + 1) {
                    Some(child) => {
                        assert_eq!(child[0].refresh, pair.refresh_token, "one parent has two children");
                        child.push(tokens(&pair));
                    }
                    None => {
                        assert_eq!(self.generations.len(), presented + 1, "the child of an unknown token");
                        let others = self.generations.iter().flatten();
                        assert!(others.clone().all(|other| other.refresh != pair.refresh_token), "a token came twice");
                        self.generations.push(vec![tokens(&pair)]);
                    }
                }
            }
            Err(reject) => match reject.reason {
                Reason::GrantReused => {
                    assert!(self.is_spent(presented), "the newest token was taken for a spent one");
                    self.dies(now);
                }
                Reason::GrantRevoked => {}
                Reason::RefreshConflict => {
                    assert!(self.is_spent(presented), "the newest token was taken for a spent one");
                }
                other => panic!("{other:?}: {}", reject.detail),
            },
        }
    }
}

fn tokens(pair: &TokenPair) -> Tokens {
    Tokens { access: pair.access_token.clone(), refresh: pair.refresh_token.clone() }
}
