//! The durable state of tokens.
//!
//! [`Store`] is the interface. [`sqlite`] is the embedded implementation for one gateway, [`postgres`] the one that
//! several gateways share. What every implementation must do in the same way is in `watermark`, `events`, `late`,
//! `disk_failures` and [`sweep`]. `pool` counts the connections to a shared one, `staleness` says why its news are old.

mod acme;
mod api;
mod clock_offset;
pub mod copy;
mod disk_failures;
mod endings;
mod error;
mod events;
mod expired;
mod freshness;
mod late;
mod mark;
mod options;
mod pool;
pub mod postgres;
mod provider_login;
mod search;
mod shared_clock;
pub mod sqlite;
mod staleness;
mod store_time;
pub mod sweep;
mod watermark;

pub use acme::AcmeEntry;
pub use api::{
    AcmeStore, AuditStore, DecideKeys, DecideRotation, FamilyStore, IssuedOnce, KeyStore, KeysChanged, LogOrder,
    MAX_REVOCATIONS, MarkStore, Outbox, ProviderLoginStore, RevocationHook, RevocationStore, RevokeOutcome, RevokedBy,
    Store, StoreFuture, StoreUpkeep,
};
pub use endings::{
    BY_GRANT, BY_PROVIDER, Ending, EndingSearch, FoundEndings, Revoker, revoked_by_others, shown_reason,
};
pub use error::{FailureKind, StoreError};
pub use expired::{Backlog, Expired};
pub use freshness::{FollowerCounts, Freshness};
pub use mark::{Mark, MarkKind, Marked, StoredMark};
pub use options::StoreOptions;
pub use pool::{OpenConnections, OperationHook, OperationKind, PoolStatus};
pub use provider_login::{
    CLAIM_TIME, EndedLogins, LOGIN_LEASE, Lease, LoginLease, ProviderLogin, RefreshedLogin, Renewed, SavedLogin,
    StoredLogin,
};
pub use search::{FoundFamilies, KeySearch, LiveClient, Position, Search, SearchState, Subjects};
pub use shared_clock::SharedClock;
