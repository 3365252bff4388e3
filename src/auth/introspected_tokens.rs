//! The validity of an introspection result for the streams that were opened with its token.
//!
//! A stream outlives the answer that let it begin. While it is open, the gateway asks again, and the stream ends when
//! the token is not active any more, when it has lost a right that the route needs, or when nothing was heard for too
//! long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::tokens::jwt::VerifiedToken;
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;

/// Entries without a token are removed when there are twice as many as the last time, and at least this many.
const MIN_SWEEP: usize = 1_024;

/// Shared by all workers. Outlives a reload, as streams do.
#[derive(Default)]
pub struct IntrospectedTokens {
    by_token: Mutex<ByToken>,
    /// The number of tokens that ended early.
    ended: AtomicU64,
    /// How often an answer gave a token other rights.
    changes: AtomicU64,
}

#[derive(Default)]
struct ByToken {
    tokens: HashMap<u128, Weak<IntrospectedToken>, RandomState>,
    sweep_at: usize,
}

/// What is known of one token now.
pub struct IntrospectedToken {
    pub(in crate::auth) token: u128,
    pub(in crate::auth) text: Arc<str>,
    /// Milliseconds. 0: the token is not good any more.
    until: AtomicU64,
    /// When to ask again, in milliseconds.
    due: AtomicU64,
    streams: AtomicUsize,
    /// A question for the streams is on its way.
    is_asked: AtomicBool,
    newest: Mutex<Answer>,
    /// How often an answer had other rights than the one before.
    changes: AtomicU64,
}

/// What the issuer of a token says about it.
#[derive(Clone)]
pub(in crate::auth) struct Answer {
    pub(in crate::auth) token: Arc<VerifiedToken>,
    /// When the question began: an answer that was long on its way does not replace a newer one.
    pub(in crate::auth) asked: Instant,
    pub(in crate::auth) due: UnixTime,
}

impl IntrospectedTokens {
    /// What is known of this token, which all of its streams share. A token with another subject than before is another
    /// token: what was opened with it ends.
    pub(in crate::auth) fn record(&self, token: u128, text: &Arc<str>, answer: Answer) -> Arc<IntrospectedToken> {
        let mut by_token = self.by_token.lock();
        let current = by_token.tokens.get(&token).and_then(Weak::upgrade).filter(|introspected| introspected.is_live());
        if let Some(introspected) = current {
            if introspected.newest.lock().token.subject == answer.token.subject {
                if introspected.extend(answer) {
                    self.changes.fetch_add(1, Ordering::AcqRel);
                }
                return introspected;
            }
            self.end_token(&introspected);
        }
        let introspected = Arc::new(IntrospectedToken {
            token,
            text: text.clone(),
            until: AtomicU64::new(answer.token.expires.as_millis()),
            due: AtomicU64::new(answer.due.as_millis()),
            streams: AtomicUsize::new(0),
            is_asked: AtomicBool::new(false),
            newest: Mutex::new(answer),
            changes: AtomicU64::new(0),
        });
        by_token.sweep();
        by_token.tokens.insert(token, Arc::downgrade(&introspected));
        introspected
    }

    /// The token is not good any more: its streams end.
    pub(in crate::auth) fn end(&self, token: u128) {
        if let Some(introspected) = self.by_token.lock().tokens.remove(&token).and_then(|known| known.upgrade()) {
            self.end_token(&introspected);
        }
    }

    fn end_token(&self, introspected: &IntrospectedToken) {
        introspected.until.store(0, Ordering::Release);
        // Last, so that a reader that sees the new number finds the end.
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Grows when a token ends early.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Grows when an answer gives a token other rights.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The tokens with open streams about which it is time to ask. Each is returned once until its question is dropped.
    pub(in crate::auth) fn due(&self, now: UnixTime) -> Vec<StreamQuestion> {
        let by_token = self.by_token.lock();
        let live = by_token.tokens.values().filter_map(Weak::upgrade);
        let is_due = |introspected: &Arc<IntrospectedToken>| {
            introspected.streams.load(Ordering::Acquire) > 0
                && introspected.is_live()
                && now.as_millis() >= introspected.due.load(Ordering::Acquire)
                && !introspected.is_asked.swap(true, Ordering::AcqRel)
        };
        live.filter(is_due).map(StreamQuestion).collect()
    }
}

impl ByToken {
    fn sweep(&mut self) {
        if self.tokens.len() >= self.sweep_at.max(MIN_SWEEP) {
            self.tokens.retain(|_, introspected| introspected.strong_count() > 0);
            self.sweep_at = 2 * self.tokens.len();
        }
    }
}

impl IntrospectedToken {
    /// When a stream ends if nothing is heard until then.
    pub fn until(&self) -> UnixTime {
        UnixTime::from_millis(self.until.load(Ordering::Acquire))
    }

    /// Returns why a stream must end, if it must.
    pub fn check(&self, now: UnixTime) -> Result<(), Reason> {
        match self.until() {
            until if now < until => Ok(()),
            _ if !self.is_live() => Err(Reason::TokenInactive),
            _ => Err(Reason::Expired),
        }
    }

    /// Keeps the token as one of an open stream.
    pub fn held_by_stream(self: &Arc<Self>) -> StreamHold {
        self.streams.fetch_add(1, Ordering::AcqRel);
        StreamHold(self.clone())
    }

    /// Asks again later, after a failure.
    pub(in crate::auth) fn postpone(&self, due: UnixTime) {
        self.due.store(due.as_millis(), Ordering::Release);
    }

    /// Returns false if the token is known to be good no more.
    pub fn is_live(&self) -> bool {
        self.until.load(Ordering::Acquire) > 0
    }

    /// The newest answer counts, also if it ends earlier. Returns true if it has other rights.
    fn extend(&self, answer: Answer) -> bool {
        let mut newest = self.newest.lock();
        if answer.asked < newest.asked {
            return false;
        }
        self.due.store(answer.due.as_millis(), Ordering::Release);
        self.until.store(answer.token.expires.as_millis(), Ordering::Release);
        let has_changed = !answer.token.has_rights_of(&newest.token);
        *newest = answer;
        if has_changed {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        has_changed
    }

    /// What the newest answer says.
    pub fn newest_token(&self) -> Arc<VerifiedToken> {
        self.newest.lock().token.clone()
    }

    /// How often the rights of the token have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// [`IntrospectedToken::changes`] at the time of an answer. `None` if a newer one has other rights.
    pub fn changes_until(&self, answer: &VerifiedToken) -> Option<u64> {
        let newest = self.newest.lock();
        answer.has_rights_of(&newest.token).then(|| self.changes())
    }
}

/// A question about a token with open streams.
pub(in crate::auth) struct StreamQuestion(Arc<IntrospectedToken>);

impl std::ops::Deref for StreamQuestion {
    type Target = IntrospectedToken;
    fn deref(&self) -> &IntrospectedToken {
        &self.0
    }
}

impl Drop for StreamQuestion {
    fn drop(&mut self) {
        self.0.is_asked.store(false, Ordering::Release);
    }
}

/// The hold of one stream on a token.
pub struct StreamHold(Arc<IntrospectedToken>);

impl std::ops::Deref for StreamHold {
    type Target = IntrospectedToken;
    fn deref(&self) -> &IntrospectedToken {
        &self.0
    }
}

impl Drop for StreamHold {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000);
    const MINUTE: Duration = Duration::from_mins(1);

    fn answer(subject: &str, scope: &str, asked: Instant, minutes: u32) -> Answer {
        let mut token = VerifiedToken::with_subject(subject.to_owned());
        token.scope = vec![scope.to_owned()];
        token.expires = NOW + 2 * minutes * MINUTE;
        Answer { token: Arc::new(token), asked, due: NOW + minutes * MINUTE }
    }

    fn record(tokens: &IntrospectedTokens, token: u128, subject: &str, minutes: u32) -> Arc<IntrospectedToken> {
        tokens.record(token, &Arc::from("text"), answer(subject, "read", Instant::now(), minutes))
    }

    #[test]
    fn all_streams_of_a_token_share_the_newest_answer() {
        let tokens = IntrospectedTokens::default();
        let introspected = record(&tokens, 1, "alice", 1);
        let stream = introspected.held_by_stream();
        assert_eq!((stream.check(NOW + MINUTE), stream.check(NOW + 2 * MINUTE)), (Ok(()), Err(Reason::Expired)));
        assert!(Arc::ptr_eq(&introspected, &record(&tokens, 1, "alice", 2)));
        assert_eq!((stream.check(NOW + 2 * MINUTE), stream.until()), (Ok(()), NOW + 4 * MINUTE));
        tokens.end(1);
        assert_eq!((stream.check(NOW), tokens.ended()), (Err(Reason::TokenInactive), 1));
        // The token is good again: what was opened with it has ended all the same.
        assert!(record(&tokens, 1, "alice", 1).check(NOW).is_ok() && stream.check(NOW).is_err());
    }

    #[test]
    fn a_token_that_changes_its_subject_ends_its_streams() {
        let tokens = IntrospectedTokens::default();
        let stream = record(&tokens, 1, "alice", 1).held_by_stream();
        assert!(record(&tokens, 1, "mallory", 1).check(NOW).is_ok());
        assert_eq!((stream.check(NOW), tokens.ended()), (Err(Reason::TokenInactive), 1));
    }

    #[test]
    fn the_rights_of_a_token_are_those_of_the_question_that_began_last() {
        let tokens = IntrospectedTokens::default();
        let begun = Instant::now();
        let record = |scope: &str, later: Duration| {
            tokens.record(1, &Arc::from("text"), answer("alice", scope, begun + later, 1))
        };
        let introspected = record("write", MINUTE);
        let before = introspected.newest_token();
        for (scope, later, expected, changes) in
            [("write", MINUTE, "write", 0), ("read", 2 * MINUTE, "read", 1), ("write", MINUTE, "read", 1)]
        {
            record(scope, later);
            assert_eq!((&*introspected.newest_token().scope, tokens.changes()), (&[expected.to_owned()][..], changes));
        }
        assert_eq!(introspected.changes_until(&before), None);
        assert_eq!(introspected.changes_until(&introspected.newest_token()), Some(1));
    }

    #[test]
    fn only_tokens_with_streams_are_asked_about() {
        let tokens = IntrospectedTokens::default();
        let [with, _without] = [1, 2].map(|token| record(&tokens, token, "alice", 1));
        let stream = with.held_by_stream();
        let due = |now| tokens.due(now).iter().map(|introspected| introspected.token).collect::<Vec<_>>();
        assert_eq!((due(NOW), due(NOW + MINUTE)), (vec![], vec![1]));
        let asked = tokens.due(NOW + MINUTE);
        assert_eq!((asked.len(), due(NOW + MINUTE)), (1, vec![]), "one question at a time");
        drop(asked);
        with.postpone(NOW + 2 * MINUTE);
        assert_eq!((due(NOW + MINUTE), due(NOW + 2 * MINUTE)), (vec![], vec![1]));
        drop(stream);
        assert_eq!(due(NOW + 2 * MINUTE), []);
    }

    #[test]
    fn tokens_that_are_gone_are_forgotten() {
        let tokens = IntrospectedTokens::default();
        let kept = record(&tokens, 0, "alice", 1);
        (1..=2 * MIN_SWEEP as u128).for_each(|token| drop(record(&tokens, token, "alice", 1)));
        assert!(tokens.by_token.lock().tokens.len() <= MIN_SWEEP + 1, "{}", tokens.by_token.lock().tokens.len());
        assert!(Arc::ptr_eq(&kept, &record(&tokens, 0, "alice", 1)));
    }
}
