//! bearward: a reverse-proxy auth gateway that enforces and brokers tokens.
//!
//! It stands in front of HTTP backends, lets a request through only with a token that is valid right now, and looks
//! after the tokens themselves. This page is the map: read it first, then `gateway.rs`, then whatever it calls.
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
//! A file imports only floors below its own: never its own floor, never one above. A folder is one unit. Where a row has
//! arrows, a step may also import the steps before it, because it takes their proof. `tests/it/floors.rs` holds every file
//! in `src` to this table, so a new module starts with a row here.
//!
//! | floor | modules | what lives there |
//! |---|---|---|
//! | 9 | `app/` → `cli/` → `main` | wiring: a `Config` becomes a running gateway; every task, signals, reload, drain |
//! | 8 | `config/` | `gateway.toml` becomes a `Config`, every fault at once; nobody below knows it exists |
//! | 7 | `admin/`, `server/` | the operators' listener; listeners, connections, workers |
//! | 6 | `gateway` | the hot path: `handle` cannot fail, `answer` is the pipeline, one line a step |
//! | 5 | `authenticate`, `worker` → `authorize` → `broker/`, `forward`, `judge` → `capture/`, `oauth/` | the steps, each with the proof of the one before |
//! | 4 | `access_log/`, `delivery/`, `forwarding`, `peer`, `verified` → `streams/` | what is known about a request, a connection, a token |
//! | 3 | `confirmations`, `headers`, `keyring/`, `respond`, `revocations/`, `route`, `store/`, `upstream/` | what is shared, and what is built from the words below |
//! | 2 | `endpoints`, `family/`, `framing/`, `grpc`, `hand_over`, `limiter`, `media_type`, `path`, `proxy_protocol`, `socket`, `target`, `tls`, `token/`, `tunnel/` → `audit`, `bearer/`, `crowd`, `csrf`, `identity`, `login`, `paused`, `rates`, `rules`, `signing/`, `throttle` → `share` | one subject each: pure rules, and the edges of the process |
//! | 1 | `boundaries`, `clock`, `field_list`, `reject`, `secret`, `silence`, `story`, `turns`, `waiting` → `body`, `ended`, `ids` → `metrics` | the words that everything is said in |
//!
//! # Doors
//!
//! A foreign crate that decides something has one door: the modules that may name it. To replace the crate, or to read what we
//! rely on, is to open one file. The same test reads this table.
//!
//! | crate | named only in | why there |
//! |---|---|---|
//! | `annotate_snippets` | `config/` | faults in `gateway.toml` are shown as rustc shows them |
//! | `aws_lc_rs` | `secret`, `token/`, `tls` | no cryptography of our own, and none elsewhere |
//! | `clap` | `cli/`, `main` | what is typed |
//! | `crc32fast` | `family/` | the checksum that ends a refresh token |
//! | `h2` | `server/`, `upstream/` | the errors of a protocol that hyper speaks: was it a flood? was the request looked at? |
//! | `ipnet` | `config/`, `forwarding` | networks of trusted proxies |
//! | `jsonwebtoken` | `token/` | keys and signatures only: its checks of claims are lax by default |
//! | `listenfd` | `hand_over` | takes the sockets of systemd without unsafe code of ours |
//! | `memchr` | `framing/` | heads are searched before anybody is known |
//! | `moka` | `revocations/` | safe only without a capacity: a bounded one forgets revocations |
//! | `prometheus_client` | `metrics` | names and labels are a promise to dashboards |
//! | `quick_cache` | `verified` | losing an entry costs one verification, so it may be bounded |
//! | `rcgen` | `tls` | the certificate of a first start |
//! | `rusqlite` | `store/` | no database type outside the store |
//! | `rustix` | `hand_over` | gives listening sockets to another process |
//! | `socket2` | `socket` | socket options that std cannot set |
//! | `toml` | `config/` | nothing else knows that the configuration is a file |
//!
//! # Limits
//!
//! Where each one is enforced, and what comes of more. A test holds this table to the keys that there are.
//!
//! | limit | enforced in | beyond it |
//! |---|---|---|
//! | `limits.connections` | `server/connection.rs` | closed at once |
//! | `limits.connections_per_address` | `server/connection.rs`, `crowd.rs` | closed at once |
//! | `limits.requests` | `share.rs`, asked by `gateway.rs` | 503 `overloaded` |
//! | `limits.requests_reserve` | `share.rs` | the same, for addresses that have many |
//! | `limits.head_size` | `framing/mod.rs`; over HTTP/2 by hyper, told in `server/drive.rs` | 431 |
//! | `limits.headers` | `framing/mod.rs`; over HTTP/2 `judge.rs` | 431 `head_too_large` |
//! | `limits.uri_size` | `target.rs` | 414 `uri_too_long` |
//! | `limits.body_size` | `forward.rs`, `body.rs` | 413 `body_too_large` |
//! | `limits.upload_rate` | `body.rs` | 408 `body_too_slow` |
//! | `limits.download_rate` | `server/stream.rs`; over HTTP/2 `server/executor.rs` | cut off |
//! | `limits.streams` | hyper, told in `server/drive.rs` | REFUSED_STREAM |
//! | `limits.requests_per_connection` | `peer.rs` | the connection ends in order |
//! | `limits.control_frames`, `limits.resets` | `server/flood.rs` | ENHANCE_YOUR_CALM, `http2_flood` |
//! | `limits.flood_pause` | `paused.rs`, asked by `server/connection.rs` | closed at once, before TLS |
//! | `limits.failed_handshakes`, `limits.unreadable_requests`, `limits.unread_bodies` | `paused.rs` | such a pause |
//! | `limits.retry_delay` | `server/held_back.rs` | 429 comes so much later |
//! | `limits.token_size` | `bearer/mod.rs`; of our own `broker/issue.rs` | 401 `token_too_large` |
//! | `limits.token_cache` | `verified.rs` | the least used are verified again |
//! | `limits.bad_signatures` | `authenticate.rs` | 429 `rate_limited` |
//! | `limits.families` | `store/sqlite/families.rs` | the least recently used login ends |
//! | `rate` | `rates.rs`, asked by `gateway.rs` | 429 `quota_exceeded` |
//! | `throttle.refreshes` | `throttle.rs`, asked by `broker/refresh.rs` | 429 `family_limited` |
//! | `throttle.calls` | `throttle.rs`, asked by `gateway.rs` and `capture/mod.rs` | 429 `address_limited` |
//! | `throttle.failures` | `throttle.rs`, asked by `gateway.rs` and `capture/mod.rs` | 429 `failures_limited` |
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
//! - Request code below `gateway.rs` reads no clock: `now` is handed down, and one request sees one time. What lasts
//!   for more than a moment is asked about again by `streams/`, which reads it.
//! - No stream outlives the token that it stands on by more than a second.
//! - No database type leaves `store/`.
//! - A reason is defined once, in `reject.rs`.
//! - No secret prints itself.
//! - Every task has an owner in `app/` that can stop it.

pub mod access_log;
pub mod admin;
pub mod app;
pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod bearer;
pub mod body;
pub mod boundaries;
pub mod broker;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod confirmations;
pub mod crowd;
pub mod csrf;
pub mod delivery;
pub mod ended;
pub mod endpoints;
pub mod family;
pub mod field_list;
pub mod forward;
pub mod forwarding;
pub mod framing;
pub mod gateway;
pub mod grpc;
pub mod hand_over;
pub mod headers;
pub mod identity;
pub mod ids;
pub mod judge;
pub mod keyring;
pub mod limiter;
pub mod login;
pub mod media_type;
pub mod metrics;
pub mod oauth;
pub mod path;
pub mod paused;
pub mod peer;
pub mod proxy_protocol;
pub mod rates;
pub mod reject;
pub mod respond;
pub mod revocations;
pub mod route;
pub mod rules;
pub mod secret;
pub mod server;
pub mod share;
pub mod signing;
pub mod silence;
pub mod socket;
pub mod store;
pub mod story;
pub mod streams;
pub mod target;
pub mod throttle;
pub mod tls;
pub mod token;
pub mod tunnel;
pub mod turns;
pub mod upstream;
pub mod verified;
pub mod waiting;
pub mod worker;
