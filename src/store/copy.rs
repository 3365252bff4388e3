//! The content of a store as records, so that it can be moved to another store. No I/O, and the same for every store.

use serde_json::{Value, json};

use crate::store::acme::AcmeEntry;
use crate::store::endings::{Ending, Revoker};
use crate::store::mark::StoredMark;
use crate::store::provider_login::{ProviderLogin, StoredLogin};
use crate::tokens::audit_event::Recorded;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{Family, FamilyOrigin, Superseded};
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::ids::to_base62;
use crate::types::secret;

/// What is copied, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Families,
    Revocations,
    Subjects,
    Clients,
    SigningKeys,
    Events,
    Endings,
    Marks,
    ProviderLogins,
    Acme,
}

impl Part {
    pub const ALL: [Part; 10] = [
        Part::Families,
        Part::Revocations,
        Part::Subjects,
        Part::Clients,
        Part::SigningKeys,
        Part::Events,
        Part::Endings,
        Part::Marks,
        Part::ProviderLogins,
        Part::Acme,
    ];

    /// For operators.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Families => "sessions",
            Part::Revocations => "revocations",
            Part::Subjects => "watermarks of subjects",
            Part::Clients => "watermarks of clients",
            Part::SigningKeys => "signing keys",
            Part::Events => "undelivered audit events",
            Part::Endings => "list of what was ended",
            Part::Marks => "marks of what was used once",
            Part::ProviderLogins => "logins at providers",
            Part::Acme => "accounts and certificates of ACME",
        }
    }
}

/// One row.
pub enum Record {
    Family(Box<Family>),
    Revocation(Revocation),
    Subject(SubjectMark),
    Client(ClientMark),
    SigningKey(StoredKey),
    Event(Recorded),
    Ending(Ending),
    Mark(StoredMark),
    /// Without its lease.
    ProviderLogin(Box<StoredLogin>),
    Acme(AcmeEntry),
}

/// The watermark of a subject of the gateway.
pub struct SubjectMark {
    pub subject: String,
    pub not_after: UnixTime,
    pub needed_until: UnixTime,
}

/// The watermark of a client.
pub struct ClientMark {
    pub client_id: String,
    /// Of this user alone; empty: of all users.
    pub subject: String,
    pub not_after: UnixTime,
    pub needed_until: UnixTime,
}

/// The values that are not rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Of the newest revocation, also if its row was deleted.
    pub revocation_sequence: u64,
    /// Of the newest event, also if it was delivered.
    pub event_sequence: u64,
    /// The watermark over everything, in milliseconds; 0: none.
    pub watermark: u64,
    pub longest_life: u64,
    pub longest_family: u64,
}

/// The number of records, and a hash of them that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    pub count: u64,
    hash: [u8; 32],
}

impl Checksum {
    pub fn add(&mut self, record: &Record) {
        self.count += 1;
        let digest = secret::digest(&[canonical(record).as_bytes()]);
        // A sum, and not an exclusive or: two equal records must not cancel each other out.
        let mut carry = 0;
        for (byte, added) in self.hash.iter_mut().zip(digest) {
            let sum = u16::from(*byte) + u16::from(added) + carry;
            carry = sum >> 8;
            *byte = sum.to_le_bytes()[0];
        }
    }

    /// For operators.
    pub fn hash(&self) -> String {
        to_base62(&self.hash, 43)
    }
}

/// The same text for the same record, from whatever store it was read.
fn canonical(record: &Record) -> String {
    let time = |time: UnixTime| time.as_millis();
    match record {
        Record::Family(family) => json!([
            family.id,
            family.subject,
            family.scope,
            family.audience,
            family.client_id,
            family.claims,
            family.label,
            to_base62(&family.salt, 43),
            family.generation,
            family.root,
            time(family.rotated_at),
            family.confirmed,
            time(family.created_at),
            time(family.last_used_at),
            family.address,
            family.idle.map(|idle| idle.as_millis() as u64),
            time(family.idle_expiry),
            time(family.absolute_expiry),
            family.revoked.map(|revoked| (time(revoked.at), revoked.reason.as_str())),
            family.key_hash.map(|hash| to_base62(&hash, 43)),
            family.key_rate.map(|rate| rate.to_string()),
            family.origin.as_ref().map(|FamilyOrigin { issuer, subject, session, dated }| json!([
                issuer,
                subject,
                session,
                time(*dated)
            ])),
            // A list, so that a grant without late refreshes differs from no grant.
            family.grant.map(|grant| [grant.superseded.map(|Superseded { at, count }| (time(at), count))]),
        ]),
        Record::Revocation(Revocation { sequence, what, at, until }) => {
            json!([sequence, canonical_target(what), time(*at), time(*until)])
        }
        Record::Subject(SubjectMark { subject, not_after, needed_until }) => {
            json!([subject, time(*not_after), time(*needed_until)])
        }
        Record::Client(ClientMark { client_id, subject, not_after, needed_until }) => {
            json!([client_id, subject, time(*not_after), time(*needed_until)])
        }
        Record::SigningKey(key) => json!([
            key.kid,
            key.algorithm,
            key.root,
            key.sealed,
            time(key.created_at),
            key.activated_at.map(time),
            key.retired_at.map(time),
            key.revoked_at.map(time),
            key.token_life.as_millis() as u64,
        ]),
        Record::Event(Recorded { sequence, event }) => json!([sequence, event]),
        Record::Ending(Ending { sequence, what, at, reason, by, until }) => {
            let by = by.as_ref().map(Revoker::to_text);
            json!([sequence, canonical_target(what), time(*at), reason.as_str(), by, time(*until)])
        }
        Record::Mark(StoredMark { id, kind, value, until }) => {
            json!([to_base62(id, 43), kind, to_base62(value, 43), time(*until)])
        }
        Record::ProviderLogin(stored) => {
            let StoredLogin { id, subject, began_at, login, lease: _, check_at, ended_at } = &**stored;
            let ProviderLogin { provider, root, sealed, version, due, claimed } = login;
            json!([
                id,
                subject,
                time(*began_at),
                provider,
                root,
                sealed,
                version,
                time(*due),
                claimed,
                time(*check_at),
                ended_at.map(time),
            ])
        }
        Record::Acme(AcmeEntry { name, version, root, sealed }) => json!([name, version, root, sealed]),
    }
    .to_string()
}

fn canonical_target(what: &Revoked) -> Value {
    let time = |time: &UnixTime| time.as_millis();
    match what {
        Revoked::Family(id) => json!(["family", id]),
        Revoked::Token { issuer, jti } => json!(["token", issuer, jti]),
        Revoked::Session { issuer, session } => json!(["session", issuer, session]),
        Revoked::Subject { issuer, subject, not_after } => json!(["subject", issuer, subject, time(not_after)]),
        Revoked::Issuer { issuer, not_after } => json!(["issuer", issuer, time(not_after)]),
        Revoked::Client { client_id, subject, not_after } => json!(["client", client_id, subject, time(not_after)]),
        Revoked::Everything { not_after } => json!(["everything", time(not_after)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, event: &str) -> Record {
        Record::Event(Recorded { sequence, event: event.to_owned() })
    }

    fn sum(records: &[Record]) -> Checksum {
        let mut checksum = Checksum::default();
        records.iter().for_each(|record| checksum.add(record));
        checksum
    }

    #[test]
    fn the_hash_depends_on_each_record_but_not_on_their_order() {
        let both = sum(&[event(1, "a"), event(2, "b")]);
        assert_eq!(both, sum(&[event(2, "b"), event(1, "a")]));
        for other in [
            &[event(1, "a"), event(2, "c")][..],
            &[event(1, "b"), event(2, "a")],
            &[event(1, "a"), event(1, "a")],
            &[event(1, "a")],
            &[],
        ] {
            assert_ne!(both.hash(), sum(other).hash());
        }
    }

    /// The hash is a sum of 256 bits: 256 times a digest is the digest, one byte further.
    #[test]
    fn a_repeated_record_counts_each_time() {
        let once = sum(&[event(1, "a")]);
        let often = sum(&(0..256).map(|_| event(1, "a")).collect::<Vec<_>>());
        assert_eq!((once.count, often.count), (1, 256));
        assert_eq!((often.hash[0], &often.hash[1..]), (0, &once.hash[..31]));
    }
}
