//! The history of ended sessions and tokens, for operators. No I/O, and the same for every store.
//!
//! The list has the entries of the log of revocations under their sequence, and keeps them longer: for the longest
//! lifetime of a session. No decision rests on it.

use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, RevokeReason};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Entries that one page looks at.
pub(super) const MAX_SCANNED: usize = 2_000;

/// Who revoked something that is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoker {
    /// The operator with this name.
    Operator(String),
    /// A caller with the scope `token:revoke`, by the subject of its token.
    Caller(String),
    /// The identity provider or event stream with this name, which reported that it ended.
    Provider(String),
    /// The user, by the new grant with this tokenId.
    Grant(String),
}

/// One entry of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// That of the log.
    pub sequence: u64,
    pub what: Revoked,
    pub at: UnixTime,
    pub reason: RevokeReason,
    /// `None` if the owner or the gateway ended it, or a version that did not record it.
    pub by: Option<Revoker>,
    /// The entry can be deleted after this.
    pub until: UnixTime,
}

/// Which entries to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndingSearch {
    /// `None`: any.
    pub reason: Option<RevokeReason>,
    /// Whether the reason is shown by another name than its own: [`BY_PROVIDER`] for [`RevokeReason::Admin`],
    /// [`BY_GRANT`] for [`RevokeReason::Reuse`]. `None`: any.
    pub is_renamed: Option<bool>,
    /// Only entries before this one. `None`: from the newest on.
    pub before: Option<u64>,
    /// Maximum number of entries in the page.
    pub limit: usize,
}

/// A page of the list, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundEndings {
    /// With the session, if one session was ended, and is still in the store.
    pub endings: Vec<(Ending, Option<Family>)>,
    /// Where the next page begins. `None` after the last page.
    pub next: Option<u64>,
}

impl Revoker {
    /// Who causes a revocation for this reason.
    pub(super) fn of(reason: RevokeReason, context: &EventContext) -> Option<Self> {
        if reason == RevokeReason::Reuse {
            return context.grant.map(|id| Revoker::Grant(id.to_string()));
        }
        if reason != RevokeReason::Admin {
            return None;
        }
        let operator = context.operator.as_ref().map(|name| Revoker::Operator(name.to_string()));
        let caller = || context.caller.clone().map(Revoker::Caller);
        let provider = || context.provider.as_ref().map(|name| Revoker::Provider(name.to_string()));
        operator.or_else(caller).or_else(provider)
    }

    /// As a column contains it.
    pub(super) fn to_text(&self) -> String {
        match self {
            Revoker::Operator(name) => format!("operator:{name}"),
            Revoker::Caller(subject) => format!("caller:{subject}"),
            Revoker::Provider(name) => format!("provider:{name}"),
            Revoker::Grant(id) => format!("grant:{id}"),
        }
    }

    /// `None` for the text of a newer version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let operator = text.strip_prefix("operator:").map(|name| Revoker::Operator(name.to_owned()));
        let caller = || text.strip_prefix("caller:").map(|subject| Revoker::Caller(subject.to_owned()));
        let provider = || text.strip_prefix("provider:").map(|name| Revoker::Provider(name.to_owned()));
        let grant = || text.strip_prefix("grant:").map(|id| Revoker::Grant(id.to_owned()));
        operator.or_else(caller).or_else(provider).or_else(grant)
    }
}

/// The reason [`RevokeReason::Admin`] of what a provider reported. It is not stored, so that gateways of earlier
/// versions can read what this one writes: [`Revoker::Provider`] is.
pub const BY_PROVIDER: &str = "provider";

/// In the same way, the reason [`RevokeReason::Reuse`] of a session that a new grant of the user ended, because a spent
/// token of it had come back: [`Revoker::Grant`].
pub const BY_GRANT: &str = "superseded";

/// Why something ended, for operators and in audit events.
pub fn shown_reason(reason: RevokeReason, by: Option<&Revoker>) -> &'static str {
    match (reason, by) {
        (RevokeReason::Admin, Some(Revoker::Provider(_))) => BY_PROVIDER,
        (RevokeReason::Reuse, Some(Revoker::Grant(_))) => BY_GRANT,
        _ => reason.as_str(),
    }
}

impl EndingSearch {
    pub(super) fn wants(&self, ending: &Ending) -> bool {
        let is_renamed = matches!(ending.by, Some(Revoker::Provider(_) | Revoker::Grant(_)));
        self.reason.is_none_or(|wanted| wanted == ending.reason)
            && self.is_renamed.is_none_or(|wanted| wanted == is_renamed)
    }
}

impl FoundEndings {
    /// `found` has one entry more than the page if there are more. `scanned`: the last entry that was looked at, if the
    /// search stopped there.
    pub(super) fn page(mut found: Vec<(Ending, Option<Family>)>, limit: usize, scanned: Option<u64>) -> Self {
        let next = if found.len() > limit {
            found.truncate(limit);
            found.last().map(|(ending, _)| ending.sequence)
        } else {
            scanned
        };
        FoundEndings { endings: found, next }
    }
}

/// The ids of the sessions for which the list may know who or what revoked them, one by one.
pub fn revoked_by_others(families: &[Family]) -> Vec<TokenId> {
    let by_others = |family: &&Family| {
        family.revoked.is_some_and(|revoked| matches!(revoked.reason, RevokeReason::Admin | RevokeReason::Reuse))
    };
    families.iter().filter(by_others).map(|family| family.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoker_comes_back_and_cannot_take_the_name_of_another() {
        let context = |operator: Option<&str>, caller: Option<&str>| EventContext {
            operator: operator.map(Into::into),
            caller: caller.map(Into::into),
            ..EventContext::from(UnixTime::from_secs(1))
        };
        for (context, expected) in [
            (context(Some("dana"), None), Some(Revoker::Operator("dana".into()))),
            (context(None, Some("operator:dana")), Some(Revoker::Caller("operator:dana".into()))),
            (
                EventContext { provider: Some("corp".into()), ..context(None, None) },
                Some(Revoker::Provider("corp".into())),
            ),
            (context(None, None), None),
        ] {
            let revoker = Revoker::of(RevokeReason::Admin, &context);
            assert_eq!(revoker, expected);
            assert_eq!(revoker.and_then(|revoker| Revoker::parse(&revoker.to_text())), expected);
            for reason in [RevokeReason::Logout, RevokeReason::Reuse, RevokeReason::Limit] {
                assert_eq!(Revoker::of(reason, &context), None);
            }
        }
        let id = TokenId::from_bytes([7; 16]);
        let by_grant = Revoker::of(RevokeReason::Reuse, &context(None, Some("alice")).by_grant(id));
        assert_eq!(by_grant, Some(Revoker::Grant(id.to_string())));
        assert_eq!(by_grant.as_ref().and_then(|by| Revoker::parse(&by.to_text())), by_grant);
        assert_eq!(shown_reason(RevokeReason::Reuse, by_grant.as_ref()), "superseded");
        assert_eq!(shown_reason(RevokeReason::Reuse, None), "reuse");
        assert_eq!(Revoker::parse("robot:7"), None);
    }
}
