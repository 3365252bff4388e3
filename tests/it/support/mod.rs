//! What the stories are told with: a whole gateway on port 0, a backend that remembers, clients, tokens good and bad, and a
//! clock that is moved by hand.

pub mod client;
pub mod clock;
pub mod gateway;
pub mod jwks;
pub mod tokens;
pub mod upstream;

pub use client::{Answer, Client};
pub use gateway::{Gateway, Pair};
pub use jwks::KeyServer;
pub use upstream::Upstream;
