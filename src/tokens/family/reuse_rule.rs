//! What a spent refresh token does that a client presents without a proof: `oauth.reuse`.
//!
//! R is the time at which the current generation c was made, and the last three columns are about the sender of the
//! spent token p, with p < c:
//!
//! | `oauth.reuse` | family | c | time | address | outcome |
//! |---|---|---|---|---|---|
//! | `"same_address"` | a grant | confirmed | at most `reuse_window` after R | that of the call that made c | superseded |
//! | the same, after ten such calls in `reuse_window` | | | | | reuse |
//! | all else | | | | | reuse |
//!
//! Superseded means: the client gets an error and no token, and the family goes on. It ends when the user grants this
//! client the same resource again, for the client that came late has to ask its user. So two processes with copies of
//! one store do not log each other out. A thief at another address ends the family, as without the rule; so does the
//! owner, if the thief has made c. A thief at the address of the owner keeps the family until the owner grants again.
//!
//! Two IPv6 addresses are the same if they have the same /64: a device changes the rest. An unknown address is that of
//! no call.

use std::net::IpAddr;
use std::time::Duration;

use super::grant::Grant;
use super::record::Family;
use super::rotation::Rotation;
use crate::types::clock::{TransactionTime, UnixTime};

/// `oauth.reuse`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseRule {
    /// A spent token ends its family.
    #[default]
    End,
    /// Unless it comes from the address of the last refresh, within this time after it (`oauth.reuse_window`).
    SameAddress(Duration),
}

impl ReuseRule {
    /// The grant after this spent token. `None` if it ends the family.
    fn tolerates(self, family: &Family, sender: Option<IpAddr>, now: UnixTime) -> Option<Grant> {
        let ReuseRule::SameAddress(window) = self else { return None };
        let grant = family.grant?;
        let made = family.last_rotation()?;
        // If it lies ahead, the clock was set back while no gateway ran: there is no window then, as there is no grace.
        let is_in_window = made <= now && now.since(made) <= window;
        let is_confirmed = family.confirmed >= family.generation;
        if !is_in_window || !is_confirmed || !is_same_address(family.address?, sender?) {
            return None;
        }
        grant.after_late_refresh(window, now)
    }
}

impl Rotation {
    /// The outcome at the token endpoint for a client that has proved nothing. `sender`: its address.
    pub fn for_unproven_sender(
        self,
        family: &Family,
        sender: Option<IpAddr>,
        rule: ReuseRule,
        time: TransactionTime,
    ) -> Rotation {
        if !matches!(self, Rotation::Reused(_)) {
            return self;
        }
        match rule.tolerates(family, sender, time.steady) {
            Some(grant) => Rotation::Superseded(Family { grant: Some(grant), ..family.clone() }),
            None => self,
        }
    }
}

impl Family {
    /// Returns true if this new grant ends it: a spent token of it came back, and the client has now asked its user
    /// again. A resource in common is enough.
    pub fn is_superseded_by(&self, new: &Family) -> bool {
        let is_superseded = self.grant.is_some_and(|grant| grant.superseded.is_some());
        let is_of_client = self.subject == new.subject && self.client_id == new.client_id;
        let shares_resource = self.audience.iter().any(|resource| new.audience.contains(resource));
        is_superseded && is_of_client && self.id != new.id && new.grant.is_some() && shares_resource
    }
}

/// As limits count addresses: an IPv4 address, or an IPv6 /64.
fn is_same_address(one: IpAddr, other: IpAddr) -> bool {
    match (one.to_canonical(), other.to_canonical()) {
        (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits() >> 64 == other.to_bits() >> 64,
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::family::grant::Superseded;
    use crate::tokens::family::{RevokeReason, RevokedAt};
    use crate::types::reject::Reason;

    const MADE: UnixTime = UnixTime::from_secs(1_000_000);
    const HOUR: Duration = Duration::from_hours(1);
    const RULE: ReuseRule = ReuseRule::SameAddress(HOUR);
    const MILLISECOND: Duration = Duration::from_millis(1);

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    fn grant() -> Family {
        Family {
            generation: 3,
            confirmed: 3,
            client_id: "cli".into(),
            audience: vec!["https://a.example".into(), "https://b.example".into()],
            address: address("192.0.2.7"),
            grant: Some(Grant::default()),
            ..Family::sample(MADE)
        }
    }

    fn reused(family: &Family) -> Rotation {
        let revoked = Some(RevokedAt { at: MADE, reason: RevokeReason::Reuse });
        Rotation::Reused(Family { revoked, ..family.clone() })
    }

    fn outcome(family: &Family, sender: Option<IpAddr>, rule: ReuseRule, now: UnixTime) -> Rotation {
        reused(family).for_unproven_sender(family, sender, rule, now.into())
    }

    fn superseded(at: UnixTime, count: u32) -> Family {
        Family { grant: Some(Grant { superseded: Some(Superseded { at, count }) }), ..grant() }
    }

    #[test]
    fn a_spent_token_from_the_address_of_the_last_refresh_ends_nothing() {
        for now in [MADE, MADE + HOUR] {
            let expected = Rotation::Superseded(superseded(now, 1));
            assert_eq!(outcome(&grant(), address("192.0.2.7"), RULE, now), expected);
        }
        let again = outcome(&superseded(MADE, 9), address("192.0.2.7"), RULE, MADE + HOUR);
        assert_eq!(again, Rotation::Superseded(superseded(MADE, 10)));
    }

    #[test]
    fn each_condition_is_needed() {
        let family = grant();
        let sender = address("192.0.2.7");
        for (why, family, sender, rule, now) in [
            ("oauth.reuse", family.clone(), sender, ReuseRule::End, MADE),
            ("no grant", Family { grant: None, ..family.clone() }, sender, RULE, MADE),
            ("not confirmed", Family { confirmed: 2, ..family.clone() }, sender, RULE, MADE),
            ("after the window", family.clone(), sender, RULE, MADE + HOUR + MILLISECOND),
            ("a clock that was set back", family.clone(), sender, RULE, MADE - MILLISECOND),
            ("another address", family.clone(), address("192.0.2.8"), RULE, MADE),
            ("an unknown address", family.clone(), None, RULE, MADE),
            ("a call of an unknown address", Family { address: None, ..family.clone() }, sender, RULE, MADE),
            ("two unknown addresses", Family { address: None, ..family }, None, RULE, MADE),
            ("the eleventh", superseded(MADE, 10), sender, RULE, MADE),
        ] {
            assert_eq!(outcome(&family, sender, rule, now), reused(&family), "{why}");
        }
    }

    #[test]
    fn the_window_is_measured_by_the_steady_clock() {
        let time = |now, steady| TransactionTime { now, steady };
        let sender = address("192.0.2.7");
        let in_time = reused(&grant()).for_unproven_sender(&grant(), sender, RULE, time(MADE - HOUR, MADE));
        assert!(matches!(in_time, Rotation::Superseded(_)));
        let late = reused(&grant()).for_unproven_sender(&grant(), sender, RULE, time(MADE, MADE + HOUR + MILLISECOND));
        assert!(matches!(late, Rotation::Reused(_)));
    }

    #[test]
    fn only_reuse_is_judged_by_the_address() {
        let family = grant();
        for rotation in [
            Rotation::Rotated(family.clone()),
            Rotation::Replayed(family.clone()),
            Rotation::Recovered(family.clone()),
            Rotation::Rejected(Reason::GrantRevoked),
            Rotation::Rejected(Reason::RefreshConflict),
            Rotation::Rejected(Reason::GrantForged),
        ] {
            let judged = rotation.clone().for_unproven_sender(&family, family.address, RULE, MADE.into());
            assert_eq!(judged, rotation);
        }
    }

    #[test]
    fn a_device_keeps_its_network_and_no_other_has_it() {
        for (one, other, expected) in [
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("192.0.2.7", "::ffff:192.0.2.7", true),
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::1", "127.0.0.1", false),
            ("::192.0.2.7", "192.0.2.7", false),
        ] {
            let [first, second] = [one, other].map(|text| text.parse().expect("an address"));
            assert_eq!(is_same_address(first, second), expected, "{one} {other}");
            assert_eq!(is_same_address(second, first), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_grant_ends_the_superseded_ones_of_its_client_and_resource() {
        let old = superseded(MADE, 1);
        let new = Family { id: crate::types::ids::TokenId::from_bytes([9; 16]), ..grant() };
        let of = |audience: &[&str]| audience.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (why, old, new, expected) in [
            ("the same", old.clone(), new.clone(), true),
            ("one of its resources", old.clone(), Family { audience: of(&["https://b.example"]), ..new.clone() }, true),
            ("another one", old.clone(), Family { audience: of(&["https://c.example"]), ..new.clone() }, false),
            ("no late refresh", grant(), new.clone(), false),
            ("another client", old.clone(), Family { client_id: "spa".into(), ..new.clone() }, false),
            ("another user", old.clone(), Family { subject: "bob".into(), ..new.clone() }, false),
            ("no grant", old.clone(), Family { grant: None, ..new.clone() }, false),
            ("itself", old.clone(), old, false),
        ] {
            assert_eq!(old.is_superseded_by(&new), expected, "{why}");
        }
    }
}
