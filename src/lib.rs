//! bearward: a reverse-proxy auth gateway that enforces and brokers tokens.
//!
//! It stands in front of HTTP backends, lets a request through only with a token that is valid right now, and looks
//! after the tokens themselves. This page is the map: read it first, then `gateway/mod.rs`, then whatever it calls.
//!
//! # The way of a request
//!
//! `server` accepts, decrypts, holds each head to one reading (`framing`), reads one request → `gateway` { `judge` { `route` →
//! `authenticate` → `authorize` } → `broker` or `forward` → `respond` } → `access_log` when the last byte is out. Nothing flows
//! back up: lower floors return values, and tasks that change what is shared (keys, certificates, revocations) swap a
//! snapshot.
//!
//! # Floors
//!
//! Each folder of `src` is one subsystem and stands on one floor. A file imports only its own folder and the floors below,
//! and inside a folder no files import each other in a circle. `tests/it/floors.rs` checks both.
//!
//! | floor | modules | what lives there |
//! |---|---|---|
//! | 12 | `main` | the program |
//! | 11 | `cli/` | commands and their arguments |
//! | 10 | `app/` | wiring: a `Config` becomes a running gateway; every task, signals, reload, drain |
//! | 9 | `config/` | `gateway.toml` becomes a `Config`, with every error at once |
//! | 8 | `admin/`, `server/` | the admin API; listeners, connections, workers |
//! | 7 | `gateway/` | the hot path: route, decide, authorize, forward, and the calls that the gateway answers itself |
//! | 6 | `broker/` | issues, refreshes and revokes tokens; signing keys |
//! | 5 | `auth/`, `upstream/` | from a bearer token to a caller; backends: pools, health checks, load balancing |
//! | 4 | `telemetry/` | access log, audit log, metrics |
//! | 3 | `protocols/`, `store/` | TLS, sockets, HTTP, WebSocket; the durable state of tokens |
//! | 2 | `limits/`, `tokens/` | rates, concurrency, penalties, pace; the rules of tokens, without I/O |
//! | 1 | `types/` | time, ids, secrets, reject reasons, traces |
//!
//! # Doors
//!
//! A foreign crate that decides something has one door: the modules that may name it. To replace the crate, or to read what we
//! rely on, is to open one file. The same test reads this table.
//!
//! | crate | named only in | why there |
//! |---|---|---|
//! | `annotate_snippets` | `config/` | faults in `gateway.toml` are shown as rustc shows them |
//! | `aws_lc_rs` | `protocols/tls`, `tokens/jwt/`, `types/secret` | no cryptography of our own, and none elsewhere |
//! | `clap` | `cli/`, `main` | what is typed |
//! | `crc32fast` | `tokens/family/` | the checksum that ends a refresh token |
//! | `h2` | `server/`, `upstream/` | the errors of a protocol that hyper speaks: was it a flood? was the request looked at? |
//! | `ipnet` | `config/`, `protocols/http/forwarded` | networks of trusted proxies |
//! | `jsonwebtoken` | `tokens/jwt/` | keys and signatures only: its checks of claims are lax by default |
//! | `listenfd` | `protocols/socket_handover` | takes the sockets of systemd without unsafe code of ours |
//! | `memchr` | `protocols/http/framing/` | heads are searched before anybody is known |
//! | `moka` | `auth/revocations/` | safe only without a capacity: a bounded one forgets revocations |
//! | `prometheus_client` | `telemetry/metrics` | names and labels are a promise to dashboards |
//! | `quick_cache` | `auth/token_cache` | losing an entry costs one verification, so it may be bounded |
//! | `rcgen` | `protocols/tls` | the certificate of a first start |
//! | `rusqlite` | `store/` | no database type outside the store |
//! | `rustix` | `protocols/socket_handover` | gives listening sockets to another process |
//! | `socket2` | `protocols/socket` | socket options that std cannot set |
//! | `toml` | `config/` | nothing else knows that the configuration is a file |
//!
//! # Limits
//!
//! Where each one is enforced, and what comes of more. A test holds this table to the keys that there are.
//!
//! | limit | enforced in | beyond it |
//! |---|---|---|
//! | `limits.connections` | `server/connection.rs` | closed at once |
//! | `limits.connections_per_address` | `server/connection.rs`, `limits/per_address.rs` | closed at once |
//! | `limits.concurrent_requests` | `limits/concurrency.rs`, asked by `gateway/mod.rs` | 503 `overloaded` |
//! | `limits.reserve_percent` | `limits/concurrency.rs` | the same, for addresses that have many |
//! | `limits.request_header_size` | `protocols/http/framing/mod.rs`; over HTTP/2 by hyper, told in `server/serve.rs` | 431 |
//! | `limits.request_header_count` | `protocols/http/framing/mod.rs`; over HTTP/2 `gateway/decide.rs` | 431 `head_too_large` |
//! | `limits.uri_size` | `protocols/http/target.rs` | 414 `uri_too_long` |
//! | `limits.body_size` | `gateway/forward.rs`, `protocols/http/body.rs` | 413 `body_too_large` |
//! | `limits.min_upload_rate` | `protocols/http/body.rs` | 408 `body_too_slow` |
//! | `limits.min_download_rate` | `server/client_io.rs`; over HTTP/2 `server/executor.rs` | cut off |
//! | `limits.http2_concurrent_streams` | hyper, told in `server/serve.rs` | REFUSED_STREAM |
//! | `limits.requests_per_connection` | `gateway/client.rs` | the connection ends in order |
//! | `limits.http2_control_frames`, `limits.http2_resets` | `server/flood.rs` | ENHANCE_YOUR_CALM, `http2_flood` |
//! | `limits.penalty_duration` | `limits/penalty.rs`, asked by `server/connection.rs` | closed at once, before TLS |
//! | `limits.failed_handshakes`, `limits.malformed_requests`, `limits.rejected_bodies` | `limits/penalty.rs` | such a pause |
//! | `limits.retry_delay` | `server/retry_delay.rs` | 429 comes so much later |
//! | `limits.token_size` | `auth/bearer/mod.rs`; of our own `broker/issue.rs` | 401 `token_too_large` |
//! | `limits.token_cache_size` | `auth/token_cache.rs` | the least used are verified again |
//! | `limits.bad_signatures` | `auth/authenticate.rs` | 429 `rate_limited` |
//! | `limits.sessions_per_subject` | `store/sqlite/families.rs` | the least recently used login ends |
//! | `rate` | `limits/rate_limit.rs`, asked by `gateway/mod.rs` | 429 `quota_exceeded` |
//! | `throttle.refreshes` | `limits/throttle.rs`, asked by `broker/refresh.rs` | 429 `family_limited` |
//! | `throttle.calls` | `limits/throttle.rs`, asked by `gateway/mod.rs` and `gateway/login_capture/mod.rs` | 429 `address_limited` |
//! | `throttle.failures` | `limits/throttle.rs`, asked by `gateway/mod.rs` and `gateway/login_capture/mod.rs` | 429 `failures_limited` |
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | **bearer** | the one token that a request carries, found but not yet believed |
//! | **caller** | who asks: a verified token that is neither expired nor revoked, or nobody on a public route |
//! | **permit** | proof that this caller may take this route; the only way to an upstream |
//! | **route** | what the configuration says about a path: its upstream, its rules, or that it is public |
//! | **rules** | what a route asks of a token beyond its being valid: issuers, scopes, and what its claims say |
//! | **upstream** | a named group of backend servers |
//! | **ejected** | a server that is left out for a time, as requests to it failed one after the other |
//! | **share** | the part of its requests that a server gets: all, none while it is out, more and more while it returns |
//! | **family** | one login and every token that grew from it; named by its tokenId, the `sid` of its access tokens |
//! | **generation** | how often a family's refresh token was rotated; the `rgn` of its access tokens |
//! | **parent**, **child** | generation c - 1 and c: a refresh spends the parent and makes the child |
//! | **capture** | a backend's own login becomes a token pair on its way to the client; its own logout ends the family |
//! | **confirmed** | an access token of the child was seen in use, so the client has the answer of its refresh |
//! | **endpoint** | a call by a standard of OAuth, at a path of the operator's choice |
//! | **watermark** | a time: everything of a subject, or of everyone, that was issued at or before it is void |
//! | **outbox** | audit events in the store, written with what they tell of, until they are delivered |
//! | **epoch** | a counter that only revocations move: while it stands still, a checked token needs no look-up |
//! | **source** | where the keys of another issuer come from: the issuer itself, or a file |
//! | **stream** | a WebSocket, or whatever of a request is under way for more than a moment: it ends with the token it stands on |
//! | **take-over** | another process gets the listening sockets of the one that ends, and then its store |
//! | **worker** | one thread with its own runtime, listening socket and upstream connections; one a core |
//!
//! # Invariants
//!
//! - No byte goes upstream without a `Permit`.
//! - Request code below `gateway/mod.rs` reads no clock: `now` is handed down, and one request sees one time. What lasts
//!   for more than a moment is asked about again by `gateway/streams/`, which reads it.
//! - No stream outlives the token that it stands on by more than a second.
//! - No database type leaves `store/`.
//! - A reason is defined once, in `types/reject.rs`.
//! - No secret prints itself.
//! - Every task has an owner in `app/` that can stop it.

pub mod admin;
pub mod app;
pub mod auth;
pub mod broker;
pub mod cli;
pub mod config;
pub mod gateway;
pub mod limits;
pub mod protocols;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod tokens;
pub mod types;
pub mod upstream;
