//! Logins at providers: the code that the browser brings becomes a family, which is refreshed there and ended.
//!
//! `Broker::sign_in` exchanges the code and creates the family; `refresh` renews it at the provider before the tokens
//! there end, each time by a `renewal`; `end` signs out here and tells the provider; `user_info` asks for claims
//! that the ID token lacks; `calls` counts the calls; `probe` tries the registration of the gateway. What the tokens
//! must say is in `tokens/sign_in/`.

mod calls;
mod complete;
mod end;
mod exchange;
mod no_tokens;
mod probe;
mod provider;
mod refresh;
mod renewal;
mod unsaved;
mod user_info;

pub use calls::{Breakers, CallCounts};
pub use complete::{LoginLifetimes, Returned, SignedIn};
pub use end::SignedOut;
pub use provider::{SignInProvider, SignInProviderSettings, SignInProviders, Warned};
pub use refresh::{LoginRefresh, Refresher};
