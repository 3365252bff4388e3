//! What all tests share: a complete gateway on free ports, in this process or as the real program, backends that record
//! requests, clients, valid and invalid tokens, and a clock that tests move by hand.

pub mod backend;
pub mod browser;
pub mod certificates;
pub mod client;
pub mod clock;
pub mod connection;
pub mod disk;
pub mod dns;
pub mod files;
pub mod frames;
pub mod front_proxy;
pub mod gateway;
pub mod given;
pub mod glewlwyd;
pub mod haproxy;
pub mod honest_client;
pub mod jwks;
pub mod mutual_tls;
pub mod oidc_provider;
pub mod pebble;
pub mod pooler;
#[allow(dead_code)]
pub mod postgres;
pub mod preload;
pub mod program;
pub mod prover;
pub mod random;
pub mod repetitions;
pub mod replicas;
pub mod scripted_backend;
pub mod secrets;
pub mod site;
pub mod sockets;
pub mod source;
pub mod sqlite_shell;
pub mod tls_records;
pub mod tokens;
pub mod upstream;
pub mod visitor;
pub mod wait;
pub mod wire;

pub use backend::Backend;
pub use browser::Browser;
pub use client::{Client, TestResponse};
pub use gateway::{Gateway, TokenPair};
pub use honest_client::HonestClient;
pub use jwks::KeyServer;
pub use oidc_provider::OidcProvider;
pub use postgres::ports;
pub use scripted_backend::ScriptedBackend;
pub use secrets::Secrets;
pub use site::Site;
pub use upstream::Upstream;
pub use wire::Wire;
