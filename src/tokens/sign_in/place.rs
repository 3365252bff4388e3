//! The place at which the users of clients sign in.

use std::sync::Arc;

/// Where users sign in.
#[derive(Clone, Debug, PartialEq)]
pub enum SignInPlace {
    /// `oauth.sign_in`: at least one provider.
    Providers(Vec<Arc<str>>),
    /// `oauth.login_page`: a path of the backend. A route with `login = "cookie"` keeps the session in cookies.
    LoginPage(String),
}

impl SignInPlace {
    pub const fn is_at_providers(&self) -> bool {
        matches!(self, SignInPlace::Providers(_))
    }

    /// Its key in `[oauth]`.
    pub const fn key(&self) -> &'static str {
        match self {
            SignInPlace::Providers(_) => "sign_in",
            SignInPlace::LoginPage(_) => "login_page",
        }
    }
}
