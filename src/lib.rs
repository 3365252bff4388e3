//! bearward: a reverse-proxy auth gateway that enforces and brokers tokens.
//!
//! It stands in front of HTTP backends, forwards a request only with a token that is valid right now, and issues,
//! refreshes and revokes tokens itself. This page is the map. Read it first, then `gateway/mod.rs`, then what it calls.
//!
//! # A request's way
//!
//! 1. `server/` accepts the connection, decrypts it and reads the request. `protocols/http/framing` checks each head
//!    before hyper parses it, so that it cannot be read in two ways.
//! 2. `gateway/mod.rs` handles the request: [`gateway::Gateway::handle`] cannot fail, and `respond` is the pipeline.
//!    `gateway/front.rs` builds its [`gateway::source::Source`]: who sent it, and over what.
//! 3. `gateway/decide.rs` finds the route, `auth/authenticate.rs` verifies the token, `gateway/authorize.rs` checks the
//!    route's rules and makes a `Permit`. A credential that is no JWT is looked up: `auth/look_up.rs` has the steps,
//!    and one `auth/verify_*.rs` what differs for its kind.
//! 4. `gateway/forward.rs` sends the request to `upstream/`, or `gateway/token_calls.rs` answers it with `broker/`. The
//!    paths that the operator chooses for these calls are in `gateway/endpoints.rs`; `gateway/oauth/` carries out those
//!    of OAuth clients.
//! 5. `gateway/response.rs` completes the response. `gateway/delivery.rs` writes the access log when the last byte is
//!    sent.
//!
//! A page load without a login, on a route with `sign_in`, is sent to an identity provider: `gateway/sign_in/` sends it
//! out and takes it back, `broker/sign_in/` gets the tokens, and `auth/handles.rs` finds the login of later requests.
//!
//! A proxy that asks about a request (`[forward_auth]`) gets the decision of step 3 as its response:
//! `gateway/forward_auth/` turns its call into the request that it is about, `gateway/back.rs` has the form of the
//! answer, and nothing is forwarded.
//!
//! Steps 3 and 4 take the same `gateway::context::RequestContext`. Nothing flows back up: lower floors return values,
//! and background tasks swap snapshots of what requests share (keys, certificates, revocations).
//!
//! # Floors
//!
//! Each folder of `src` is one subsystem on one floor. A file imports only its own folder and the floors below, and
//! inside a folder no files import each other in a circle: `mod.rs` may import the files of its folder, and they never
//! import it. `tests/it/house/floors.rs` checks this, and `circles.rs` beside it
//! that no files call each other in a circle through the methods of one type.
//!
//! | floor | modules | what is there |
//! |---|---|---|
//! | 12 | `main` | the program |
//! | 11 | `cli/` | commands and their arguments |
//! | 10 | `app/` | wiring: a `Config` becomes a running gateway; tasks, signals, reload, drain, take-over |
//! | 9 | `config/` | `gateway.toml` becomes a `Config`; reports every error at once |
//! | 8 | `admin/`, `server/` | the admin API; listeners, connections, workers |
//! | 7 | `gateway/` | the hot path: route, decide, authorize, forward, and the calls that the gateway answers itself |
//! | 6 | `broker/` | issues, refreshes and revokes tokens; rotates signing keys |
//! | 5 | `auth/`, `upstream/` | from a bearer token to a caller; backends: pools, health checks, load balancing |
//! | 4 | `telemetry/` | access log, audit log, metrics, traces |
//! | 3 | `protocols/`, `store/` | TLS, sockets, HTTP, WebSocket; the durable state of tokens |
//! | 2 | `limits/`, `tokens/` | rates, concurrency, penalties, pace; the rules of tokens, without I/O |
//! | 1 | `types/` | time, ids, secrets, reject reasons, steps of a decision |
//!
//! # Doors
//!
//! Only these modules may name these crates. To replace a crate, or to see how we use it, open its door. The same test
//! checks this table.
//!
//! | crate | named only in | why there |
//! |---|---|---|
//! | `annotate_snippets` | `config/` | shows errors in `gateway.toml` as rustc shows them |
//! | `aws_lc_rs` | `protocols/tls/`, `tokens/jwt/`, `types/secret` | no cryptography of our own, and none elsewhere |
//! | `clap` | `cli/`, `main` | reads the command line |
//! | `crc32fast` | `tokens/family/` | the checksum at the end of a refresh token or an API key |
//! | `flate2` | `protocols/http/content_coding` | reads the gzip of servers that ignore `Accept-Encoding` |
//! | `h2` | `server/`, `upstream/` | the errors of the protocol under hyper: was it a flood? was the request processed? |
//! | `instant_acme` | `server/acme/` | orders of certificates; requests to the authority are ours |
//! | `ipnet` | `config/`, `protocols/http/forwarded` | networks of trusted proxies |
//! | `jsonwebtoken` | `tokens/jwt/` | keys and signatures only: its checks of claims are lax by default |
//! | `listenfd` | `protocols/socket_handover` | takes the sockets of systemd without unsafe code of ours |
//! | `memchr` | `protocols/http/framing/` | searches the head of every request |
//! | `moka` | `auth/revocations/` | safe only without a capacity: a bounded cache forgets revocations |
//! | `prometheus_client` | `telemetry/metrics` | names and labels are a promise to dashboards |
//! | `quick_cache` | `auth/token_cache` | a lost entry costs one verification, so this cache may be bounded |
//! | `rcgen` | `protocols/tls/` | makes the certificate of the first start, requests for certificates, and what validates a name |
//! | `rusqlite` | `store/sqlite/` | no database type leaves the store |
//! | `rustix` | `protocols/socket_handover`, `types/process`, `types/boot_time`, `types/regular_file` | hands listening sockets to another process; its user; no core files; read-only mounts; opens pipes without waiting; a clock that counts a suspended machine |
//! | `rustls_pki_types` | `tokens/jwt/` | reads the PEM of keys |
//! | `socket2` | `protocols/socket` | socket options that std cannot set |
//! | `strsim` | `config/` | finds the key that a misspelt one is most similar to |
//! | `tokio_postgres` | `store/postgres/` | no database type leaves the store |
//! | `toml` | `config/` | no other module knows that the configuration is a file |
//! | `webpki` | `protocols/tls`, `tokens/jwt/` | reads certificates: their names, dates and keys |
//!
//! # Limits
//!
//! Where each limit is enforced, and what happens beyond it. A test compares this table with the keys of
//! `gateway.toml`.
//!
//! | limit | enforced in | beyond it |
//! |---|---|---|
//! | `limits.connections` | `server/admission.rs`, `server/idle_list.rs` | the longest idle one is closed, or the new one |
//! | `limits.connections_per_address` | `server/admission.rs`, `limits/per_address.rs` | closed at once |
//! | `limits.concurrent_requests` | `limits/concurrency.rs`, called by `gateway/delivery.rs` | 503 `overloaded` |
//! | `limits.reserve_percent` | `limits/reserve.rs`; for connections `server/admission.rs` | the same, for addresses with many of them |
//! | `limits.request_header_size` | `protocols/http/framing/parser.rs`; over HTTP/2 `gateway/decide.rs` and, for twice the size, `server/http2.rs`; for messages of Envoy as over HTTP/2, `gateway/forward_auth/envoy.rs` | 431 `head_too_large` |
//! | `limits.request_header_count` | `protocols/http/framing/parser.rs`; over HTTP/2 `gateway/decide.rs` | 431 `head_too_large` |
//! | `limits.uri_size` | `protocols/http/target.rs` | 414 `uri_too_long` |
//! | `limits.body_size` | `gateway/forward.rs`, `protocols/http/body/streamed.rs` | 413 `body_too_large` |
//! | `limits.discarded_body_size` | `server/linger.rs`, `server/linger_slots.rs` | the connection closes, or the stream is reset |
//! | `limits.min_upload_rate` | `protocols/http/body/streamed.rs` | 408 `body_too_slow` |
//! | `limits.min_download_rate` | `server/client_io.rs`; over HTTP/2 `server/executor.rs` | disconnected |
//! | `limits.http2_concurrent_streams` | hyper, set in `server/http2.rs` | REFUSED_STREAM |
//! | `limits.requests_per_connection` | `gateway/client.rs` | the connection closes after this response |
//! | `limits.http2_control_frames`, `limits.http2_resets` | `server/flood.rs`; without resets for proxies that ask, `server/connection.rs` | ENHANCE_YOUR_CALM, `http2_flood` |
//! | `limits.penalty_duration` | `limits/penalty.rs`, called by `server/admission.rs` | closed at once, before TLS |
//! | `limits.failed_handshakes`, `limits.malformed_requests`, `limits.rejected_bodies` | `limits/penalty.rs` | a penalty |
//! | `limits.retry_delay` | `server/retry_delay.rs` | the next 429 is delayed |
//! | `limits.token_size` | `auth/bearer/token.rs`; for own tokens `broker/issue.rs` | 401 `token_too_large` |
//! | `limits.token_cache_size` | `auth/token_cache.rs` | the least used tokens are verified again |
//! | `limits.used_proofs` | `auth/proofs/used.rs` | 503 `proofs_full` |
//! | `limits.bad_signatures` | `auth/bad_signatures.rs`, called by `auth/known_tokens.rs`, `auth/verify_jwt.rs` and `auth/guess.rs` | 429 `rate_limited` |
//! | `limits.introspected_bad_signatures` | `auth/bad_signatures.rs`, called as above for introspection | 429 `rate_limited` |
//! | `limits.sessions_per_subject` | `store/sqlite/families.rs`, `store/postgres/issue.rs` | the least recently used family is revoked |
//! | `oauth.sessions_per_client` | `store/sqlite/families.rs`, `store/postgres/issue.rs` | the least recently used family of the client is revoked |
//! | `rate` | `limits/rate_limit.rs`, called by `gateway/mod.rs` | 429 `quota_exceeded` |
//! | `throttle.refreshes` | `limits/throttle.rs`, called by `broker/refresh.rs` | 429 `family_limited` |
//! | `throttle.calls` | `limits/throttle.rs`, called by `gateway/call_checks.rs` and `gateway/sign_in/` | 429 `address_limited` |
//! | `throttle.failures` | `limits/throttle.rs`, checked as `throttle.calls`, counted also by `gateway/token_calls.rs` and `gateway/login_capture/mod.rs` | 429 `failures_limited` |
//! | `acme.names_per_listener` | `config/sections/acme.rs` | the file is invalid |
//! | `acme.orders_per_hour` | `server/acme/worker.rs` | the order waits |
//! | `admin.connections`, `admin.connections_per_address` | `admin/connections.rs` | the longest idle one is closed, or the new one |
//! | `admin.wrong_tokens` | `admin/access/guess.rs`, called by `admin/router.rs` | 429 `admin_limited` |
//! | `admin.streams` | `admin/calls/stats_streams.rs` | 429 `streams_limited` |
//! | `trace.per_second` | `telemetry/spans/sampler.rs` | no spans of the request are sent |
//! | `trace.queue_size` | `telemetry/spans/queue.rs` | as above |
//! | `admin.recent_rejections` | `telemetry/recent_rejections.rs` | the oldest is forgotten |
//!
//! Two limits have no key. Each gateway remembers the revocations of the last hour for a database that loses them, at
//! most 100,000 (`store/postgres/follower/recent.rs`). Beyond it, the oldest are forgotten and not written back.
//! It keeps 1,000 documents of clients, and fetches 32 new and 16 known ones at a time, of these 4 and 2 for each
//! client address, 60 a minute for each address and 10 a minute from one host (`auth/client_documents.rs`). Beyond it,
//! the oldest are forgotten, and a fetch is 503 `client_document`.
//!
//! # Buffers
//!
//! Every place in the process that can hold bytes of a client connection, and its maximum. What is not here lies in the
//! socket buffers of the kernel, or waits with its sender.
//!
//! | buffer | of | maximum |
//! |---|---|---|
//! | PROXY protocol header | connection, until TLS | 4 KiB (`protocols/proxy_protocol.rs`) |
//! | handshake messages | connection, until the first response | 64 KiB and one message (`server/handshake_io.rs`) |
//! | TLS records received | connection | 16 KiB of data and 18 KiB of a record; 64 KiB during the handshake (rustls) |
//! | TLS records to send | connection | 63.5 KiB (`protocols/tls/record_size.rs`); none of it is copied again below |
//! | frames of one poll | HTTP/2 connection | 15.9 KiB (`server/corked_stream.rs`) |
//! | an incomplete head | HTTP/1 connection | `limits.request_header_size` (`server/request_heads.rs`) |
//! | what hyper has read | HTTP/1 connection | 408 KiB (hyper); twice while bytes wait for their turn |
//! | a response to write | HTTP/1 connection | 408 KiB and 16 frames (hyper), a frame being at most 408 KiB |
//! | request bodies that nothing reads | HTTP/2 connection | 1 MiB, the window of the connection (hyper) |
//! | responses without room | HTTP/2 stream | 128 KiB (`server/http2.rs`), on `limits.http2_concurrent_streams` |
//! | a request head | HTTP/2 connection | twice `limits.request_header_size` (`server/http2.rs`) |
//! | trailers of a request that nothing reads | HTTP/2 stream | twice `limits.request_header_size` (`server/http2.rs`) |
//! | a response from an HTTP/1 backend | request | 408 KiB (hyper) |
//! | a response from an HTTP/2 backend | request | 64 KiB, the window of the stream (`upstream/connect.rs`) |
//! | a request body on its way | request | one frame; to an HTTP/2 backend 1 MiB (h2) |
//! | a copy for a retry | request | the head: only a request without a body is sent twice (`upstream/send.rs`) |
//! | the body of an own call | request | 8 KiB; of a token exchange 24 KiB (`broker/settings.rs`) |
//! | a response of an ACME server | order | 256 KiB (`server/acme/authority.rs`) |
//! | a response of an identity provider | sign-in, refresh | 1 MiB (`auth/oauth_client/`) |
//! | failed refreshes at providers | process | 4,096 (`broker/sign_in/refresh.rs`) |
//! | tokens that another server has just rejected | introspection, each `[[token_exchange]]` | 32,768 (`auth/recently_rejected.rs`) |
//! | documents of clients | process | 1,000 (`auth/fetched.rs`), each of 5 KiB; as many key sets, each of 16 KiB (`auth/client_documents.rs`) |
//! | logout tokens that wait for a key | provider | 256, each of 32 KiB (`gateway/provider_events/late.rs`) |
//! | a report of an identity provider | request | 32 KiB (`gateway/provider_events/`), a security event 64 KiB (`broker/event_stream.rs`) |
//! | the response to a poll | event stream | 8 MiB (`broker/event_poll.rs`), 100 events of it (`broker/polled_events.rs`) |
//! | a message of Envoy about a request | request | twice `limits.request_header_size` (`gateway/forward_auth/`) |
//! | a captured login | request | `login.max_response_size` (`gateway/login_capture/`) |
//! | a WebSocket | connection | 8 KiB in each direction (`protocols/websocket/tunnel.rs`); over HTTP/2, 24 KiB more to the client |
//! | rejections | worker | `admin.recent_rejections` and a quarter more, each of 6 texts of `access_log.max_field_size` and 400 bytes, of a client that asks a user 4 texts more (`telemetry/recent_rejections.rs`) |
//! | statistics | process | 256 KiB for 300 seconds (`telemetry/snapshots/`) |
//! | spans | process | `trace.queue_size`, and 1 MiB on their way to the collector (`telemetry/spans/`) |
//! | the rest of a rejected body | connection | 16 KiB on the stack, not kept (`server/linger.rs`) |
//!
//! # Words
//!
//! Only the words that are ours. All others are those of HTTP, OAuth, nginx and Envoy.
//!
//! | word | meaning |
//! |---|---|
//! | **family** | one login and every token that came from it; its public name is the tokenId, the `sid` of its access tokens |
//! | **generation** | how often the refresh token of a family was rotated; the `rgn` of its access tokens |
//! | **parent**, **child** | generation c - 1 and c: a refresh spends the parent and makes the child |
//! | **confirmed** | an access token of the child was used, so the client has the response of its refresh |
//! | **late refresh** | a spent refresh token came after the grace period, from the address of the last refresh (`oauth.reuse`) |
//! | **superseded** | a grant with a late refresh: the next grant of its user to the same client ends it |
//! | **permit** | proof that this caller may use this route; nothing goes to an upstream without one |
//! | **handle** | what the browser of a login at a provider holds in a cookie: it names a family, and is no token |
//! | **attempt** | a sign-in that has begun and not ended; only a sealed cookie of the browser knows it |
//! | **capture** | a backend's own login becomes a token pair on its way to the client; its own logout revokes the family |
//! | **proof** | a DPoP proof (RFC 9449): a JWT beside the token of one request, signed by the key that the token is bound to |
//! | **watermark** | a time: every session that began at or before it is revoked, of a subject or of all, and every token of another issuer with such an `iat` |
//! | **epoch** | a counter that only revocations move: while it stands still, a cached token needs no lookup |
//! | **revision** | how often a key was removed from the keyring, or the policy of an issuer changed; cached tokens of an older one are checked again |
//! | **outbox** | audit events in the store that wait for delivery, written in the transaction that they report |
//! | **take-over** | a new process gets the listening sockets of the old one, and then its store |
//!
//! # Invariants
//!
//! - No byte goes upstream without a `Permit`.
//! - A request sees one time, `RequestContext::now`. Token calls read the clock again after their body, a refresh
//!   inside its transaction, `gateway/streams/` for longer streams, and `server/` for malformed requests.
//! - Limits, penalties, cooldowns, timeouts, pools and health checks measure with `Uptime` or `Instant`, which cannot
//!   be set. Only what begins or ends at a date keeps a `UnixTime`: tokens, sessions, keys, revocations and events.
//! - No stream outlives its token by more than a second.
//! - No database type leaves `store/`.
//! - A proof is checked on every request, and used up once, last of all.
//! - Every reason for a rejection is defined once, in `types/reject/reason.rs`.
//! - No secret has a `Debug` or `Display` that shows it.
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
