//! A model of a session: the knowledge of its clients, and what must be true because of it.

use bearward::broker::TokenPair;
use bearward::types::ids::TokenId;
use bearward::types::reject::{Reason, Reject};

/// The number of a step in an order.
pub(super) type Step = usize;

#[derive(Clone)]
pub(super) struct Tokens {
    pub(super) access: String,
    pub(super) refresh: String,
}

/// What all clients together know about a session.
pub(super) struct LoginModel {
    pub(super) id: TokenId,
    /// All tokens of all responses by generation, from 0. A generation has one refresh token and can have several
    /// access tokens.
    pub(super) generations: Vec<Vec<Tokens>>,
    /// If true, a revocation of this session has started and may have taken effect.
    pub(super) may_be_revoked: bool,
    /// The generations that refreshes without a response have presented. The client may have disconnected.
    pub(super) open_refreshes: Vec<usize>,
    /// The step at which a client knew that the session is revoked.
    pub(super) revoked_since: Option<Step>,
}

impl LoginModel {
    pub(super) fn new(pair: &TokenPair) -> LoginModel {
        let id = pair.token_id.expect("extra_fields is on");
        LoginModel {
            id,
            generations: vec![vec![tokens(pair)]],
            may_be_revoked: false,
            open_refreshes: Vec::new(),
            revoked_since: None,
        }
    }

    pub(super) fn newest(&self) -> &Tokens {
        let newest = self.generations.last().and_then(|generation| generation.last());
        newest.expect("there is at least one")
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Tokens> {
        self.generations.iter().flatten()
    }

    pub(super) fn mark_revoked(&mut self, now: Step) {
        self.may_be_revoked = true;
        self.revoked_since.get_or_insert(now);
    }

    /// Returns true if a revocation, or the reuse of a refresh token, can have ended the session.
    pub(super) fn can_be_revoked(&self) -> bool {
        self.may_be_revoked || self.open_refreshes.iter().any(|presented| self.is_used(*presented))
    }

    fn is_used(&self, presented: usize) -> bool {
        presented + 1 < self.generations.len()
    }

    fn was_revoked(&self, at: Step) -> bool {
        self.revoked_since.is_some_and(|since| since < at)
    }

    /// Checks the outcome of a refresh with the token of generation `presented`, from step `started` to `now`.
    pub(super) fn refreshed(
        &mut self,
        presented: usize,
        started: Step,
        now: Step,
        response: Result<TokenPair, Reject>,
    ) {
        let is_revoked = response.as_ref().is_err_and(|reject| reject.reason == Reason::GrantRevoked);
        assert!(!is_revoked || self.can_be_revoked(), "a live session was rejected");
        let index = self.open_refreshes.iter().position(|open| *open == presented).expect("the refresh was open");
        self.open_refreshes.swap_remove(index);
        match response {
            Ok(pair) => {
                assert!(!self.was_revoked(started), "a revoked session was refreshed");
                match self.generations.get_mut(presented + 1) {
                    Some(successor) => {
                        assert_eq!(successor[0].refresh, pair.refresh_token, "a refresh token has two successors");
                        successor.push(tokens(&pair));
                    }
                    None => {
                        assert_eq!(self.generations.len(), presented + 1, "the successor of an unknown token");
                        let others = self.generations.iter().flatten();
                        assert!(
                            others.clone().all(|other| other.refresh != pair.refresh_token),
                            "two generations have the same refresh token"
                        );
                        self.generations.push(vec![tokens(&pair)]);
                    }
                }
            }
            Err(reject) => match reject.reason {
                Reason::GrantReused => {
                    assert!(self.is_used(presented), "the newest refresh token was taken for a used one");
                    self.mark_revoked(now);
                }
                Reason::GrantRevoked => {}
                Reason::RefreshConflict => {
                    assert!(self.is_used(presented), "the newest refresh token was taken for a used one");
                }
                other => panic!("{other:?}: {}", reject.detail),
            },
        }
    }
}

/// A mass revocation. `completed` is set when it cannot take effect any more.
pub(super) struct Watermark {
    pub(super) started: Step,
    pub(super) completed: Option<Step>,
}

fn tokens(pair: &TokenPair) -> Tokens {
    Tokens { access: pair.access_token.clone(), refresh: pair.refresh_token.clone() }
}
