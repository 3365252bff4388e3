//! The sessions of operators, in memory: a restart ends them.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::operators::Operator;
use crate::types::clock::Uptime;
use crate::types::ids::to_base62;
use crate::types::secret::{self, Secret};

/// Maximum sessions of one operator. A further one ends the oldest.
const MAX_PER_OPERATOR: usize = 64;

/// The caller of the admin API.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) operator: Operator,
    /// `None` for the token of the operator, and on the Unix socket.
    pub(crate) session: Option<CurrentSession>,
}

#[derive(Clone, Copy)]
pub(crate) struct CurrentSession {
    digest: [u8; 32],
    /// How long until it ends.
    pub(crate) left: Duration,
}

pub struct Sessions {
    /// `admin.session_lifetime`
    pub(crate) lifetime: Duration,
    /// The oldest first.
    live: Mutex<VecDeque<Session>>,
}

struct Session {
    digest: Secret,
    operator: Operator,
    ends: Uptime,
}

impl Sessions {
    pub fn new(lifetime: Duration) -> Self {
        Sessions { lifetime, live: Mutex::default() }
    }

    /// Returns the token.
    pub(crate) fn begin(&self, operator: &Operator, now: Uptime) -> String {
        let token = to_base62(&secret::random::<32>(), 43);
        let digest = Secret::new(secret::digest(&[token.as_bytes()]).to_vec());
        let mut live = self.live(now);
        let own = live.iter().filter(|session| session.operator == *operator).count();
        if own >= MAX_PER_OPERATOR
            && let Some(oldest) = live.iter().position(|session| session.operator == *operator)
        {
            live.remove(oldest);
        }
        live.push_back(Session { digest, operator: operator.clone(), ends: now + self.lifetime });
        token
    }

    /// The caller with this session token.
    pub(crate) fn find(&self, token: &[u8], now: Uptime) -> Option<Caller> {
        let digest = secret::digest(&[token]);
        let live = self.live(now);
        let session = live.iter().find(|session| session.digest.matches(&digest))?;
        let current = CurrentSession { digest, left: session.ends.since(now) };
        Some(Caller { operator: session.operator.clone(), session: Some(current) })
    }

    pub(crate) fn is_live(&self, current: &CurrentSession, now: Uptime) -> bool {
        self.live(now).iter().any(|session| session.digest.matches(&current.digest))
    }

    pub(crate) fn end(&self, current: &CurrentSession, now: Uptime) {
        self.live(now).retain(|session| !session.digest.matches(&current.digest));
    }

    /// Those that have not ended.
    fn live(&self, now: Uptime) -> MutexGuard<'_, VecDeque<Session>> {
        let mut live = self.live.lock();
        live.retain(|session| session.ends > now);
        live
    }
}

#[cfg(test)]
mod tests {
    use super::super::operators::Role;
    use super::*;

    const NOW: Uptime = Uptime::from_secs(1_000);

    fn operator(name: &str) -> Operator {
        Operator { name: name.into(), role: Role::View }
    }

    #[test]
    fn a_session_lives_for_its_time_or_until_it_is_ended() {
        let sessions = Sessions::new(Duration::from_secs(60));
        let [one, two] = [(); 2].map(|()| sessions.begin(&operator("alice"), NOW));
        let name = |token: &str, after| {
            let found = sessions.find(token.as_bytes(), NOW + Duration::from_secs(after));
            found.map(|caller| caller.operator.name.to_string())
        };
        assert_eq!(name(&one, 59).as_deref(), Some("alice"));
        assert_eq!(name("x", 0), None);
        let current = sessions.find(one.as_bytes(), NOW).and_then(|caller| caller.session).expect("it lives");
        assert_eq!(current.left, Duration::from_secs(60));
        sessions.end(&current, NOW);
        assert_eq!((name(&one, 0), name(&two, 59).is_some(), name(&two, 60)), (None, true, None));
    }

    #[test]
    fn an_operator_displaces_only_the_oldest_of_its_own_sessions() {
        let sessions = Sessions::new(Duration::from_secs(60));
        let other = sessions.begin(&operator("bob"), NOW);
        let tokens: Vec<String> = (0..=MAX_PER_OPERATOR).map(|_| sessions.begin(&operator("alice"), NOW)).collect();
        let lives = |token: &String| sessions.find(token.as_bytes(), NOW).is_some();
        assert!(lives(&other) && !lives(&tokens[0]) && tokens[1..].iter().all(lives));
    }
}
