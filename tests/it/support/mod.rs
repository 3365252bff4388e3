//! What the stories are told with: a whole gateway on port 0, in this process or as the real program, a backend that
//! remembers, clients, tokens good and bad, and a clock that is moved by hand.

pub mod backend;
pub mod certificates;
pub mod client;
pub mod clock;
pub mod disk;
pub mod frames;
pub mod gateway;
pub mod honest;
pub mod jwks;
pub mod names;
pub mod preload;
pub mod program;
pub mod rounds;
pub mod scripted;
pub mod secrets;
pub mod session;
pub mod tokens;
pub mod upstream;
pub mod wire;

pub use backend::Backend;
pub use client::{Answer, Client};
pub use gateway::{Gateway, Pair};
pub use honest::Honest;
pub use jwks::KeyServer;
pub use scripted::Scripted;
pub use secrets::Secrets;
pub use upstream::Upstream;
pub use wire::Wire;
