//! The paths of `[sign_in]`. Pure.

use std::sync::Arc;

use http::Method;

use crate::types::reject::{Reason, Reject};

/// `GET {path}/sign_in/{provider}`
pub const SIGN_IN: &str = "/sign_in/";
/// `GET {path}/callback/{provider}`
pub const CALLBACK: &str = "/callback/";
/// `GET` shows a button, `POST` signs out: `{path}/sign_out`
pub const SIGN_OUT: &str = "/sign_out";
/// Where the browser is after the sign-out: `{path}/signed_out`
pub const SIGNED_OUT: &str = "/signed_out";

/// What a request below `sign_in.path` asks for. The name is that of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInCall {
    Start(Arc<str>),
    Callback(Arc<str>),
    SignOutPage,
    SignOut,
    SignedOut,
}

/// `sign_in.path` and the names of the providers. Everything below the path belongs to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInPaths {
    /// Without a slash at its end.
    pub path: Box<str>,
    pub providers: Vec<Arc<str>>,
}

impl SignInPaths {
    /// Returns true for the path itself and everything below it.
    pub fn contain(&self, path: &[u8]) -> bool {
        self.below(path).is_some()
    }

    /// What the request asks for. `path`: decoded, and one of these paths.
    pub fn find(&self, method: &Method, path: &[u8]) -> Result<SignInCall, Reject> {
        let below = self.below(path).unwrap_or_default();
        let (call, allow): (_, &'static str) = if below == SIGN_OUT.as_bytes() {
            let call = if *method == Method::POST { SignInCall::SignOut } else { SignInCall::SignOutPage };
            (call, "GET, HEAD, POST")
        } else if below == SIGNED_OUT.as_bytes() {
            (SignInCall::SignedOut, "GET, HEAD")
        } else if let Some(provider) = below.strip_prefix(SIGN_IN.as_bytes()) {
            (SignInCall::Start(self.named(provider)?), "GET")
        } else if let Some(provider) = below.strip_prefix(CALLBACK.as_bytes()) {
            (SignInCall::Callback(self.named(provider)?), "GET")
        } else {
            return Err(Reason::NoRoute.into());
        };
        // Programs that look at links send HEAD: it must neither begin a sign-in nor use its code up.
        let has_head = matches!(call, SignInCall::SignOutPage | SignInCall::SignedOut);
        let is_allowed = *method == Method::GET || *method == Method::HEAD && has_head || call == SignInCall::SignOut;
        if is_allowed { Ok(call) } else { Err(Reject::from(Reason::MethodNotAllowed).allows(allow)) }
    }

    fn below<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let below = path.strip_prefix(self.path.as_bytes())?;
        (below.is_empty() || below.starts_with(b"/")).then_some(below)
    }

    fn named(&self, name: &[u8]) -> Result<Arc<str>, Reject> {
        let named = self.providers.iter().find(|provider| provider.as_bytes() == name);
        named.cloned().ok_or_else(|| Reject::new(Reason::NoRoute, "there is no provider of this name"))
    }
}

impl SignInCall {
    /// What the gateway does, for `bearward explain`.
    pub const fn purpose(&self) -> &'static str {
        match self {
            SignInCall::Start(_) => "sends the browser to the provider",
            SignInCall::Callback(_) => "completes the sign-in, if the browser has the cookie of its attempt",
            SignInCall::SignOutPage => "shows a button to sign out",
            SignInCall::SignOut => "ends the session of the browser",
            SignInCall::SignedOut => "says that the user has signed out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_below_the_path_belongs_to_the_gateway() {
        let paths = SignInPaths { path: "/oauth2".into(), providers: vec!["main".into()] };
        for (path, expected) in [
            ("/oauth2", true),
            ("/oauth2/", true),
            ("/oauth2/x/y", true),
            ("/oauth22", false),
            ("/oauth", false),
            ("/x/oauth2", false),
        ] {
            assert_eq!(paths.contain(path.as_bytes()), expected, "{path}");
        }
        let main: Arc<str> = "main".into();
        for (method, path, expected) in [
            (Method::GET, "/oauth2/sign_in/main", Ok(SignInCall::Start(main.clone()))),
            (Method::GET, "/oauth2/callback/main", Ok(SignInCall::Callback(main))),
            (Method::GET, "/oauth2/sign_out", Ok(SignInCall::SignOutPage)),
            (Method::POST, "/oauth2/sign_out", Ok(SignInCall::SignOut)),
            (Method::GET, "/oauth2/signed_out", Ok(SignInCall::SignedOut)),
            (Method::HEAD, "/oauth2/sign_out", Ok(SignInCall::SignOutPage)),
            (Method::HEAD, "/oauth2/signed_out", Ok(SignInCall::SignedOut)),
            (Method::POST, "/oauth2/signed_out", Err(Reason::MethodNotAllowed)),
            (Method::POST, "/oauth2/callback/main", Err(Reason::MethodNotAllowed)),
            (Method::HEAD, "/oauth2/callback/main", Err(Reason::MethodNotAllowed)),
            (Method::HEAD, "/oauth2/sign_in/main", Err(Reason::MethodNotAllowed)),
            (Method::DELETE, "/oauth2/sign_out", Err(Reason::MethodNotAllowed)),
            (Method::GET, "/oauth2/callback/other", Err(Reason::NoRoute)),
            (Method::GET, "/oauth2/callback/main/", Err(Reason::NoRoute)),
            (Method::GET, "/oauth2/sign_out/", Err(Reason::NoRoute)),
            (Method::GET, "/oauth2", Err(Reason::NoRoute)),
        ] {
            let found = paths.find(&method, path.as_bytes()).map_err(|reject| reject.reason);
            assert_eq!(found, expected, "{method} {path}");
        }
    }
}
