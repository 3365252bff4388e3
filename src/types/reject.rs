//! Every reason for which the gateway itself refuses a request, in one closed list.
//!
//! A [`Reason`] decides the status, the code the client may read, the sentence that explains it, and whose fault it is.
//! A [`Reject`] adds the detail that only the log sees: which key, which limit, which upstream. Codes are stable: they
//! stand in log lines and metrics, and operators' alerts name them.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

/// Declares [`Reason`] and its table, so that no reason can lack a row.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $public:literal, $message:literal;)*) => {
        /// Why a request was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// The stable name in logs and metrics, finer than what the client is told.
            pub const fn code(self) -> &'static str {
                match self { $(Reason::$name => $code,)* }
            }

            pub const fn status(self) -> StatusCode {
                match self { $(Reason::$name => StatusCode::$status,)* }
            }

            /// `error` in the body, and in `WWW-Authenticate` where RFC 6750 has one.
            pub const fn public_code(self) -> &'static str {
                match self { $(Reason::$name => $public,)* }
            }

            /// `error_description` in the body: for the client's developer, gives nothing away.
            pub const fn message(self) -> &'static str {
                match self { $(Reason::$name => $message,)* }
            }
        }
    };
}

reasons! {
    // The request itself.
    BadPath = "bad_path", BAD_REQUEST, "invalid_request", "the path contains something that could be read in two ways";
    BadHost = "bad_host", BAD_REQUEST, "invalid_request", "the Host header is missing, repeated or not a host";
    MalformedFraming = "malformed_framing", BAD_REQUEST, "invalid_request", "the message framing is not valid";
    ConnectNotAllowed = "connect_not_allowed", METHOD_NOT_ALLOWED, "invalid_request", "this is not a forward proxy";
    /// RFC 8441: an extended CONNECT for something that is no WebSocket.
    ProtocolNotSupported = "protocol_not_supported", NOT_IMPLEMENTED, "invalid_request", "only WebSockets are opened, and only where the service speaks them";
    /// RFC 9110 section 15.5.20: clients try again on another connection.
    Misdirected = "misdirected", MISDIRECTED_REQUEST, "invalid_request", "this connection was opened for another host";
    NoRoute = "no_route", NOT_FOUND, "not_found", "no route leads there";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "invalid_request", "the method is not allowed here";
    HeadTooLarge = "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "invalid_request", "the request head is too large";
    UriTooLong = "uri_too_long", URI_TOO_LONG, "invalid_request", "the request target is too long";
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "invalid_request", "the body is larger than allowed here";
    BodyTimeout = "body_timeout", REQUEST_TIMEOUT, "invalid_request", "the body did not arrive in time";
    /// `limits.min_upload_rate`
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT, "invalid_request", "the body comes too slowly";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "invalid_request", "Content-Type must be application/json";
    BadBody = "bad_body", BAD_REQUEST, "invalid_request", "the body must be a JSON object with the string refreshToken";
    BadForm = "bad_form", BAD_REQUEST, "invalid_request", "the body must be a form with the parameters of this call, each once";
    BadParameter = "bad_parameter", BAD_REQUEST, "invalid_request", "a parameter is missing or not valid";

    // The Bearer.
    NoToken = "no_token", UNAUTHORIZED, "unauthorized", "a Bearer token is required";
    SeveralTokens = "several_tokens", BAD_REQUEST, "invalid_request", "send exactly one token";
    MalformedToken = "malformed_token", UNAUTHORIZED, "invalid_token", "the token is malformed";
    TokenTooLarge = "token_too_large", UNAUTHORIZED, "invalid_token", "the token is malformed";
    WrongType = "wrong_type", UNAUTHORIZED, "invalid_token", "the token is not an access token";
    ForbiddenHeader = "forbidden_header", UNAUTHORIZED, "invalid_token", "the token is malformed";
    AlgorithmNotAllowed = "algorithm_not_allowed", UNAUTHORIZED, "invalid_token", "the token's signature is not valid";
    UnknownIssuer = "unknown_issuer", UNAUTHORIZED, "invalid_token", "the token's issuer is not accepted";
    IssuerNotAllowed = "issuer_not_allowed", UNAUTHORIZED, "invalid_token", "the token's issuer is not accepted here";
    UnknownKey = "unknown_key", UNAUTHORIZED, "invalid_token", "the token's signature is not valid";
    /// One of our own, which an operator ended before its time.
    KeyRevoked = "key_revoked", UNAUTHORIZED, "invalid_token", "the key that signed the token was revoked";
    BadSignature = "bad_signature", UNAUTHORIZED, "invalid_token", "the token's signature is not valid";
    BadClaims = "bad_claims", UNAUTHORIZED, "invalid_token", "the token's claims are not valid";
    WrongAudience = "wrong_audience", UNAUTHORIZED, "invalid_token", "the token is meant for somebody else";
    Expired = "expired", UNAUTHORIZED, "invalid_token", "the token expired";
    NotYetValid = "not_yet_valid", UNAUTHORIZED, "invalid_token", "the token is not valid yet";
    LifetimeTooLong = "lifetime_too_long", UNAUTHORIZED, "invalid_token", "the token's claims are not valid";
    Revoked = "revoked", UNAUTHORIZED, "invalid_token", "the token was revoked";
    InsufficientScope = "insufficient_scope", FORBIDDEN, "insufficient_scope", "the token lacks a scope that is needed here";
    /// A token from a cookie, and a request that another site may have caused.
    Csrf = "csrf", FORBIDDEN, "forbidden", "the Origin header is missing, or names a site that is not trusted here";
    ClaimRejected = "claim_rejected", FORBIDDEN, "forbidden", "the token does not allow this";

    // The two calls on tokens. One public code for every dead grant: nothing tells a thief how close they came.
    GrantMalformed = "grant_malformed", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantUnknown = "grant_unknown", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantForged = "grant_forged", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantRevoked = "grant_revoked", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantExpired = "grant_expired", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantReused = "grant_reused", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantMismatch = "grant_mismatch", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    /// The token is genuine but newer than the store: a restored backup, or a disk that lost an acknowledged write.
    GrantAhead = "grant_ahead", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    // By RFC 6749 section 5.2 and RFC 7009 section 2.2.1.
    UnsupportedGrantType = "unsupported_grant_type", BAD_REQUEST, "unsupported_grant_type", "the grant_type here is refresh_token";
    UnsupportedTokenType = "unsupported_token_type", BAD_REQUEST, "unsupported_token_type", "only the issuer of this token can revoke it";
    ClientAuthentication = "client_authentication", UNAUTHORIZED, "invalid_client", "clients are public here: send no client credentials";
    RefreshConflict = "refresh_conflict", CONFLICT, "refresh_conflict", "another refresh is under way; use its tokens";
    TokenNotFound = "token_not_found", NOT_FOUND, "token_not_found", "no such token";

    // The admin listener.
    AdminTokenWrong = "admin_token_wrong", UNAUTHORIZED, "unauthorized", "the admin token is missing or wrong";
    KeyNotFound = "key_not_found", NOT_FOUND, "not_found", "no such signing key";
    KeysFixed = "keys_fixed", BAD_REQUEST, "invalid_request", "the signing key comes from tokens.signing_key_file, and is changed there";
    KeysTooMany = "keys_too_many", TOO_MANY_REQUESTS, "rate_limited", "too many signing keys are kept already";

    // Load, and what stands behind.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// `[[rate]]`, `[[route.rate]]`: the detail says which.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// `[throttle]`: for one login, from one address, in vain from one address.
    FamilyLimited = "family_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    AddressLimited = "address_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    FailuresLimited = "failures_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// HTTP/2 frames that ask for nothing, or requests that are cancelled at once. Its connection is told ENHANCE_YOUR_CALM.
    Http2Flood = "http2_flood", TOO_MANY_REQUESTS, "rate_limited", "too many frames that ask for nothing";
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the token store is not available";
    KeysUnavailable = "keys_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "no keys are available to check the token";
    UpstreamConnect = "upstream_connect", BAD_GATEWAY, "bad_gateway", "the service behind the gateway cannot be reached";
    UpstreamBroken = "upstream_broken", BAD_GATEWAY, "bad_gateway", "the service behind the gateway did not answer properly";
    UpstreamTimeout = "upstream_timeout", GATEWAY_TIMEOUT, "gateway_timeout", "the service behind the gateway did not answer in time";
    UpstreamConnectTimeout = "upstream_connect_timeout", GATEWAY_TIMEOUT, "gateway_timeout", "the service behind the gateway did not answer in time";
    /// `timeouts.request`
    RequestTimeout = "request_timeout", GATEWAY_TIMEOUT, "gateway_timeout", "the request took longer than it may";
    /// A backend's login, and an answer that no tokens can be put into. It is not let through without them.
    LoginCapture = "login_capture", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the login could not be completed";
    /// `limits.concurrent_requests`: as many are under way as the gateway takes.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the gateway has too much to do";
    UpstreamBusy = "upstream_busy", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the service behind the gateway is busy";
    Internal = "internal", INTERNAL_SERVER_ERROR, "internal", "something is wrong inside the gateway";
}

impl Reason {
    /// Its place in [`Reason::ALL`], for tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Does it say that the client asks too often?
    pub fn is_limit(self) -> bool {
        self.status() == StatusCode::TOO_MANY_REQUESTS
    }

    /// Is it a request too many, or one that is too much?
    pub fn is_too_much(self) -> bool {
        self.is_limit() || self == Reason::BodyTooLarge
    }

    /// Does RFC 6750 ask for `WWW-Authenticate` here?
    pub fn challenges(self) -> bool {
        matches!(self.status(), StatusCode::UNAUTHORIZED) || self == Reason::InsufficientScope
    }

    /// Was the message so odd that nothing further on its connection can be trusted?
    pub const fn ends_connection(self) -> bool {
        matches!(
            self,
            Reason::BadHost
                | Reason::MalformedFraming
                | Reason::ConnectNotAllowed
                | Reason::BodyTimeout
                | Reason::BodyTooSlow
        )
    }

    /// Is it refused before its body is read to the end? Then its connection ends with the answer, and says so: what is
    /// left of the body must not be taken for a request.
    pub const fn leaves_body_unread(self) -> bool {
        use Reason::*;
        let answered_by_upstream = matches!(self, UpstreamBroken | UpstreamTimeout | LoginCapture);
        let answered_by_store = matches!(
            self,
            GrantMalformed
                | GrantUnknown
                | GrantForged
                | GrantRevoked
                | GrantExpired
                | GrantReused
                | GrantMismatch
                | GrantAhead
                | RefreshConflict
                | FamilyLimited
                | StoreUnavailable
        );
        let read_before =
            matches!(self, BadBody | BadForm | UnsupportedGrantType | UnsupportedTokenType | ClientAuthentication);
        !answered_by_upstream && !answered_by_store && !read_before
    }

    /// Is the token itself at fault, and not the moment? Then it would be refused again.
    pub fn is_about_the_token(self) -> bool {
        self.status() == StatusCode::UNAUTHORIZED || self == Reason::SeveralTokens
    }

    /// What `Retry-After` says, for refusals that pass by themselves.
    pub const fn default_retry_after(self) -> Option<Duration> {
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
                Some(Duration::from_secs(1))
            }
            _ => None,
        }
    }
}

/// A refusal: its reason, what only the log may see, and what the answer carries besides.
pub struct Reject {
    pub reason: Reason,
    /// For the log only. Whoever writes one puts no token or secret in it.
    pub detail: Cow<'static, str>,
    /// `Allow` of a 405.
    pub allow: Option<HeaderValue>,
    /// The scopes a 403 asks for, space separated.
    pub scope: Option<HeaderValue>,
    pub retry_after: Option<Duration>,
}

impl Reject {
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Reject { reason, detail: detail.into(), allow: None, scope: None, retry_after: reason.default_retry_after() }
    }

    pub fn allow(mut self, methods: &'static str) -> Self {
        self.allow = Some(HeaderValue::from_static(methods));
        self
    }

    pub fn needs_scope(mut self, scope: &str) -> Self {
        self.scope = HeaderValue::from_str(scope).ok();
        self
    }
}

/// An error and what led to it, for the log: libraries tell little in the first line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl From<Reason> for Reject {
    fn from(reason: Reason) -> Self {
        Reject::new(reason, "")
    }
}

impl fmt::Debug for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_place() {
        let mut codes: Vec<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Reason::ALL.len());
    }

    /// A client that refreshes on any 401 would loop on a dead grant.
    #[test]
    fn a_dead_grant_is_never_401() {
        for reason in Reason::ALL {
            assert_eq!(reason.public_code() == "invalid_grant", reason.code().starts_with("grant_"));
            if reason.public_code() == "invalid_grant" {
                assert_eq!(reason.status(), StatusCode::BAD_REQUEST);
            }
        }
    }
}
