//! The proofs that were used, so that none is used twice (RFC 9449 section 11.1). All workers share them, they
//! outlive a reload, and a take-over passes them on.
//!
//! The set is exact: nothing is evicted. Proofs lie in buckets of five seconds by their `iat`, and a bucket is dropped
//! as a whole when no proof of its time is good any more. While the set is full, requests with proofs get 503.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use crate::tokens::dpop::{MAX_AGE, MAX_AHEAD, VerifiedProof};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// Workers that use proofs at the same time seldom meet in one of these.
const SHARDS: usize = 16;

/// Seconds of `iat` in one bucket.
const BUCKET: u64 = 5;

/// Buckets of a shard. All proofs that are good at one time lie in 14 of them.
const BUCKETS: usize = ((MAX_AGE + MAX_AHEAD) / BUCKET) as usize + 2;

pub struct UsedProofs {
    shards: [Mutex<Shard>; SHARDS],
    /// Chooses the shard. Its keys are random, so that no client can find `jti` that all lie in one.
    chooser: RandomState,
    /// How many proofs all shards remember.
    count: AtomicUsize,
    /// The highest time in seconds that was ever used. A clock that is set back makes no old proof good again: the
    /// proofs of that time are forgotten.
    newest: AtomicU64,
    /// When this process began, or the one that it took over from. It does not know what was used before.
    began: u64,
    /// See [`UsedProofs::hand_over`].
    is_handed_over: AtomicBool,
}

/// What one process tells the next one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    pub began: u64,
    pub newest: u64,
    /// The number of the bucket, and [`VerifiedProof::id`].
    pub ids: Vec<(u64, u128)>,
}

#[derive(Default)]
struct Shard {
    buckets: [Bucket; BUCKETS],
}

#[derive(Default)]
struct Bucket {
    /// `iat` of its first second, divided by [`BUCKET`].
    number: u64,
    ids: HashSet<u128, RandomState>,
}

impl UsedProofs {
    /// `began`: when this process began.
    pub fn new(began: UnixTime) -> Self {
        UsedProofs {
            shards: Default::default(),
            chooser: RandomState::default(),
            count: AtomicUsize::new(0),
            newest: AtomicU64::new(0),
            began: began.as_secs(),
            is_handed_over: AtomicBool::new(false),
        }
    }

    /// Continues where another process has ended.
    pub fn taken_over(remembered: &Remembered) -> Self {
        let mut used = UsedProofs::new(UnixTime::from_secs(remembered.began));
        used.newest = AtomicU64::new(remembered.newest);
        for (number, id) in &remembered.ids {
            used.shard(*id).restore(*number, *id, &used.count);
        }
        used
    }

    /// All that is remembered, for the process that takes over. From now on, this one accepts no proof: it would be
    /// good a second time there.
    pub fn hand_over(&self) -> Remembered {
        self.is_handed_over.store(true, Ordering::Release);
        let mut ids = Vec::with_capacity(self.count());
        for shard in &self.shards {
            let shard = shard.lock();
            let of = |bucket: &Bucket| bucket.ids.iter().map(|id| (bucket.number, *id)).collect::<Vec<_>>();
            ids.extend(shard.buckets.iter().flat_map(of));
        }
        Remembered { began: self.began, newest: self.newest.load(Ordering::Acquire), ids }
    }

    /// How many proofs are remembered.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Remembers a proof, or rejects it if it was used before. `max`: `limits.used_proofs`.
    pub fn insert(&self, proof: &VerifiedProof, max: usize, now: UnixTime) -> Result<(), Reject> {
        let (mut shard, newest) = self.shard_of(proof, max, now)?;
        shard.insert(proof, &self.count, max, newest)
    }

    /// Rejects a proof that [`UsedProofs::insert`] would reject. Does not remember it.
    pub fn check(&self, proof: &VerifiedProof, max: usize, now: UnixTime) -> Result<(), Reject> {
        let (shard, _) = self.shard_of(proof, max, now)?;
        shard.check_unused(proof)?;
        if self.count() < max { Ok(()) } else { Err(full()) }
    }

    /// The place of a proof that this process can judge, and the newest time.
    fn shard_of(
        &self,
        proof: &VerifiedProof,
        max: usize,
        now: UnixTime,
    ) -> Result<(MutexGuard<'_, Shard>, u64), Reject> {
        let newest = self.newest.fetch_max(now.as_secs(), Ordering::AcqRel).max(now.as_secs());
        if self.count() >= max {
            // Shards without new proofs still have old ones.
            self.shards.iter().for_each(|shard| shard.lock().drop_old(&self.count, newest));
        }
        let shard = self.shard(proof.id);
        if self.is_handed_over.load(Ordering::Acquire) {
            let detail = "another process has taken over, and remembers proofs";
            return Err(Reject::new(Reason::StoreUnavailable, detail));
        }
        // Under the lock: a thread that was stopped before it must not use a time from before other proofs.
        let newest = self.newest.load(Ordering::Acquire);
        if proof.issued + MAX_AGE < newest {
            let detail = "the clock of the gateway was set back, and used proofs of this time are forgotten";
            return Err(Reject::new(Reason::ProofTime, detail));
        }
        if proof.issued < self.began {
            let detail = "the proof is older than this process, which does not know whether it was used";
            return Err(Reject::new(Reason::ProofTime, detail));
        }
        Ok((shard, newest))
    }

    fn shard(&self, id: u128) -> MutexGuard<'_, Shard> {
        self.shards[(self.chooser.hash_one(id) % SHARDS as u64) as usize].lock()
    }
}

fn full() -> Reject {
    Reject::new(Reason::ProofsFull, "limits.used_proofs are remembered")
}

impl Shard {
    fn check_unused(&self, proof: &VerifiedProof) -> Result<(), Reject> {
        let number = proof.issued / BUCKET;
        let bucket = &self.buckets[(number % BUCKETS as u64) as usize];
        if bucket.number == number && bucket.ids.contains(&proof.id) {
            Err(Reject::new(Reason::ProofReplayed, "the jti was used before with this key"))
        } else {
            Ok(())
        }
    }

    fn insert(&mut self, proof: &VerifiedProof, count: &AtomicUsize, max: usize, newest: u64) -> Result<(), Reject> {
        let number = proof.issued / BUCKET;
        let place = (number % BUCKETS as u64) as usize;
        if self.buckets[place].number != number {
            self.drop_old(count, newest);
            // All good proofs are within the time of the buckets, so that this one is empty now.
            self.buckets[place].number = number;
        }
        self.check_unused(proof)?;
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(full());
        }
        self.buckets[place].ids.insert(proof.id);
        Ok(())
    }

    /// Adds what another process has remembered. It may have kept buckets of which no proof is good any more.
    fn restore(&mut self, number: u64, id: u128, count: &AtomicUsize) {
        let bucket = &mut self.buckets[(number % BUCKETS as u64) as usize];
        if bucket.number < number {
            count.fetch_sub(bucket.ids.len(), Ordering::Relaxed);
            *bucket = Bucket { number, ids: HashSet::default() };
        }
        if bucket.number == number && bucket.ids.insert(id) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops the buckets of which no proof is good any more.
    fn drop_old(&mut self, count: &AtomicUsize, newest: u64) {
        for bucket in &mut self.buckets {
            if (bucket.number + 1) * BUCKET + MAX_AGE <= newest {
                count.fetch_sub(bucket.ids.len(), Ordering::Relaxed);
                bucket.ids = HashSet::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::thumbprint::Thumbprint;

    const BEGAN: UnixTime = UnixTime::from_secs(1_000_000);

    fn proof(id: u128, issued: u64) -> VerifiedProof {
        let key = Thumbprint::parse("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs").expect("a thumbprint");
        VerifiedProof { key, id, issued, has_old_nonce: false }
    }

    fn insert(used: &UsedProofs, proof: &VerifiedProof, now: u64) -> Option<Reason> {
        used.insert(proof, 1_000_000, UnixTime::from_secs(now)).err().map(|reject| reject.reason)
    }

    /// Keycloak 43505 and sourcebot 1395 remembered a proof from its use, and not from its `iat`.
    #[test]
    fn a_proof_is_remembered_for_as_long_as_it_is_good() {
        for issued in 1_000_000..1_000_200_u64 {
            for first in issued.saturating_sub(MAX_AHEAD)..=issued + MAX_AGE {
                let used = UsedProofs::new(BEGAN);
                let proof = proof(7, issued);
                assert_eq!(insert(&used, &proof, first), None);
                for again in [first, issued + MAX_AGE - 1, issued + MAX_AGE] {
                    let again = again.max(first);
                    // Other proofs come meanwhile.
                    let other = super::tests::proof(16 + 7, again);
                    let _ = insert(&used, &other, again);
                    assert_eq!(insert(&used, &proof, again), Some(Reason::ProofReplayed), "{issued} {first} {again}");
                }
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_old_proof_good() {
        let used = UsedProofs::new(BEGAN);
        assert_eq!(insert(&used, &proof(1, 1_000_100), 1_000_100), None);
        assert_eq!(insert(&used, &proof(2, 1_000_220), 1_000_220), None);
        assert_eq!(insert(&used, &proof(1, 1_000_100), 1_000_100), Some(Reason::ProofTime));
        assert_eq!(insert(&used, &proof(3, 1_000_160), 1_000_100), None);
    }

    #[test]
    fn a_new_process_takes_no_older_proof() {
        let used = UsedProofs::new(BEGAN);
        assert_eq!(insert(&used, &proof(1, 999_999), 1_000_000), Some(Reason::ProofTime));
        assert_eq!(insert(&used, &proof(1, 1_000_000), 1_000_000), None);
    }

    #[test]
    fn a_full_set_rejects_and_forgets_nothing() {
        let used = UsedProofs::new(BEGAN);
        let insert = |id: u128, issued: u64, now: u64| {
            used.insert(&proof(id, issued), 32, UnixTime::from_secs(now)).err().map(|reject| reject.reason)
        };
        // Exactly as many as the limit, wherever they lie.
        for id in 0..32 {
            assert_eq!(insert(id, 1_000_000, 1_000_000), None);
        }
        for id in 32..64 {
            assert_eq!(insert(id, 1_000_003, 1_000_003), Some(Reason::ProofsFull));
            assert_eq!(insert(id - 32, 1_000_000, 1_000_003), Some(Reason::ProofReplayed));
        }
        assert_eq!(used.count(), 32);
        // A minute later there is room.
        for id in 32..64 {
            assert_eq!(insert(id, 1_000_065, 1_000_065), None);
        }
        assert_eq!(used.count(), 32);
    }

    /// With the time of the gateway as the only judge, the next process would accept each of these again.
    #[test]
    fn the_next_process_knows_what_was_used() {
        let used = UsedProofs::new(BEGAN);
        let proofs: Vec<_> = (0..1_000).zip((1_000_000..1_000_100).cycle()).collect();
        for (id, issued) in &proofs {
            let _ = insert(&used, &proof(*id, *issued), *issued);
        }
        assert_eq!(insert(&used, &proof(5_000, 1_000_050), 1_000_100), None);
        let remembered = used.hand_over();
        assert_eq!(insert(&used, &proof(5_001, 1_000_100), 1_000_100), Some(Reason::StoreUnavailable));
        let next = UsedProofs::taken_over(&remembered);
        assert_eq!(remembered.ids.len(), used.count());
        // Its shards are others, and may have no room for proofs that are not good any more.
        assert!(next.count() <= used.count());
        for (id, issued) in proofs.iter().filter(|(_, issued)| issued + MAX_AGE >= 1_000_100) {
            assert_eq!(insert(&next, &proof(*id, *issued), 1_000_100), Some(Reason::ProofReplayed), "{issued}");
        }
        assert_eq!(insert(&next, &proof(5_000, 1_000_050), 1_000_100), Some(Reason::ProofReplayed));
        assert_eq!(insert(&next, &proof(5_002, 1_000_050), 1_000_100), None);
        assert_eq!(insert(&next, &proof(5_003, 999_999), 1_000_001), Some(Reason::ProofTime));
    }
}
