//! Every reason for which the gateway rejects a request, in one list.
//!
//! Codes are stable, because logs, metrics and the alerts of operators use them.

use http::StatusCode;

/// Declares [`Reason`] and its table, so that every reason has a row.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $public:literal, $message:literal;)*) => {
        /// Why a request was rejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// The stable code in logs and metrics, more precise than the public code.
            pub const fn code(self) -> &'static str {
                match self { $(Reason::$name => $code,)* }
            }

            pub const fn status(self) -> StatusCode {
                match self { $(Reason::$name => StatusCode::$status,)* }
            }

            /// `error` in the body, and in `WWW-Authenticate` where RFC 6750 defines it.
            pub const fn public_code(self) -> &'static str {
                match self { $(Reason::$name => $public,)* }
            }

            /// `error_description` in the body: helps the developer of the client, reveals nothing to an attacker.
            pub const fn message(self) -> &'static str {
                match self { $(Reason::$name => $message,)* }
            }
        }
    };
}

reasons! {
    // The request itself.
    BadPath = "bad_path", BAD_REQUEST, "invalid_request", "the path is ambiguous";
    BadHost = "bad_host", BAD_REQUEST, "invalid_request", "the Host header is missing, repeated or not a host name";
    MalformedFraming = "malformed_framing", BAD_REQUEST, "invalid_request", "the message framing is not valid";
    ConnectNotAllowed = "connect_not_allowed", METHOD_NOT_ALLOWED, "invalid_request", "the gateway is not a forward proxy";
    /// RFC 8441: an extended CONNECT for another protocol than WebSocket.
    ProtocolNotSupported = "protocol_not_supported", NOT_IMPLEMENTED, "invalid_request", "only WebSocket is supported, and only on routes with a WebSocket backend";
    /// RFC 9110 section 15.5.20: clients retry on another connection.
    Misdirected = "misdirected", MISDIRECTED_REQUEST, "invalid_request", "this connection was opened for another host";
    /// `https.redirect`: a redirect to a host that the client named could lead to another site.
    CleartextHost = "cleartext_host", MISDIRECTED_REQUEST, "invalid_request", "the gateway does not redirect this host to https";
    NoRoute = "no_route", NOT_FOUND, "not_found", "no matching route";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "invalid_request", "the method is not allowed here";
    HeadTooLarge = "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "invalid_request", "the request head is too large";
    UriTooLong = "uri_too_long", URI_TOO_LONG, "invalid_request", "the request target is too long";
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "invalid_request", "the body is too large";
    BodyTimeout = "body_timeout", REQUEST_TIMEOUT, "invalid_request", "the body did not arrive in time";
    /// `limits.min_upload_rate`
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT, "invalid_request", "the body arrived too slowly";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "invalid_request", "Content-Type must be application/json";
    BadBody = "bad_body", BAD_REQUEST, "invalid_request", "the body must be a JSON object with the string refreshToken";
    BadForm = "bad_form", BAD_REQUEST, "invalid_request", "the body must be a form with each parameter of this endpoint at most once";
    BadParameter = "bad_parameter", BAD_REQUEST, "invalid_request", "a parameter is missing or not valid";

    // Beside another proxy (`[forward_auth]`).
    /// `forward_auth.from`, `forward_auth.secret_file`
    AuthCaller = "auth_caller", FORBIDDEN, "forbidden", "only the configured proxies may call this path";
    BadAuthCall = "bad_auth_call", BAD_REQUEST, "invalid_request", "the proxy did not describe the request";
    /// Envoy never compresses a call.
    CompressedCall = "compressed_call", NOT_IMPLEMENTED, "invalid_request", "compressed messages are not supported";
    ForgedHeader = "forged_header", BAD_REQUEST, "invalid_request", "a header has a name that clients may not use";
    ThroughGatewayOnly = "through_gateway_only", NOT_IMPLEMENTED, "invalid_request", "this works only through the gateway";

    // The bearer token.
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
    /// An operator revoked this key of the gateway.
    KeyRevoked = "key_revoked", UNAUTHORIZED, "invalid_token", "the key that signed the token was revoked";
    BadSignature = "bad_signature", UNAUTHORIZED, "invalid_token", "the token's signature is not valid";
    BadClaims = "bad_claims", UNAUTHORIZED, "invalid_token", "the token's claims are not valid";
    WrongAudience = "wrong_audience", UNAUTHORIZED, "invalid_token", "the token is for another audience";
    Expired = "expired", UNAUTHORIZED, "invalid_token", "the token expired";
    NotYetValid = "not_yet_valid", UNAUTHORIZED, "invalid_token", "the token is not valid yet";
    LifetimeTooLong = "lifetime_too_long", UNAUTHORIZED, "invalid_token", "the token's claims are not valid";
    /// An API key that is unknown, expired or revoked, or has a wrong secret: one response for all.
    BadApiKey = "bad_api_key", UNAUTHORIZED, "invalid_token", "the API key is not valid";
    /// `route.api_keys`
    ApiKeyNotAllowed = "api_key_not_allowed", UNAUTHORIZED, "invalid_token", "API keys are not accepted here";
    /// `issuer.introspection`: the introspection endpoint does not know the token, or not any more.
    TokenInactive = "token_inactive", UNAUTHORIZED, "invalid_token", "the token is not valid";
    /// The cookie of a login at a provider, unknown, forged, expired or revoked: one response for all.
    BadSession = "bad_session", UNAUTHORIZED, "invalid_token", "sign in again";
    Revoked = "revoked", UNAUTHORIZED, "invalid_token", "the token was revoked";
    /// The claim `cnf`: the token is valid only with a proof, and this request can have none.
    BoundToKey = "bound_to_key", UNAUTHORIZED, "invalid_token", "the token is bound to a key, and is not accepted without a proof";
    /// The claim `cnf` with `x5t#S256` (RFC 8705 section 3).
    CertificateOther = "certificate_other", UNAUTHORIZED, "invalid_token", "the token is bound to another client certificate";
    /// `route.proof`, or the scheme DPoP.
    TokenNotBound = "token_not_bound", UNAUTHORIZED, "invalid_token", "the token is not bound to a key (DPoP), and must be here";

    // The proof beside a token (DPoP, RFC 9449).
    ProofMissing = "proof_missing", UNAUTHORIZED, "invalid_dpop_proof", "the token needs a DPoP proof";
    ProofMalformed = "proof_malformed", UNAUTHORIZED, "invalid_dpop_proof", "the DPoP proof is malformed";
    ProofKey = "proof_key", UNAUTHORIZED, "invalid_token", "the DPoP proof is by another key than that of the token";
    ProofRequest = "proof_request", UNAUTHORIZED, "invalid_dpop_proof", "the DPoP proof is for another request or token";
    ProofTime = "proof_time", UNAUTHORIZED, "invalid_dpop_proof", "the DPoP proof is too old, or dated ahead";
    ProofSignature = "proof_signature", UNAUTHORIZED, "invalid_dpop_proof", "the signature of the DPoP proof is not valid";
    ProofReplayed = "proof_replayed", UNAUTHORIZED, "invalid_dpop_proof", "the DPoP proof was used before";
    /// Where tokens are granted. The detail names the reason.
    ProofRejected = "proof_rejected", BAD_REQUEST, "invalid_dpop_proof", "the DPoP proof is missing or not valid";
    /// `tokens.proof_nonce`
    ProofNonce = "proof_nonce", UNAUTHORIZED, "use_dpop_nonce", "the DPoP proof needs the nonce of DPoP-Nonce";
    /// The same where tokens are granted.
    NonceRejected = "nonce_rejected", BAD_REQUEST, "use_dpop_nonce", "the DPoP proof needs the nonce of DPoP-Nonce";
    /// `limits.used_proofs`
    ProofsFull = "proofs_full", SERVICE_UNAVAILABLE, "temporarily_unavailable", "too many DPoP proofs were used within a minute";
    /// `route.client_certificate`
    CertificateMissing = "certificate_missing", FORBIDDEN, "forbidden", "a client certificate is required";
    /// `route.client_names`, or a certificate that no authority has verified.
    CertificateDenied = "certificate_denied", FORBIDDEN, "forbidden", "the client certificate does not allow this request";
    /// The certificate has expired or was revoked after the handshake. The connection closes.
    CertificateRevoked = "certificate_revoked", FORBIDDEN, "forbidden", "the client certificate is no longer valid";
    /// `forwarding.client_certificate`
    BadClientCert = "bad_client_cert", BAD_REQUEST, "invalid_request", "the header Client-Cert is not one certificate";
    InsufficientScope = "insufficient_scope", FORBIDDEN, "insufficient_scope", "the token lacks a required scope";
    /// The token came from a cookie, and another site may have caused the request.
    Csrf = "csrf", FORBIDDEN, "forbidden", "the Origin header is missing or not allowed";
    /// A CORS preflight.
    CorsOrigin = "cors_origin", FORBIDDEN, "forbidden", "pages of this origin may not send requests here";
    ClaimRejected = "claim_rejected", FORBIDDEN, "forbidden", "the claims of the token do not allow this request";

    // Sign-in at a provider.
    /// What the provider or the browser sent back does not fit the attempt.
    SignInFailed = "sign_in_failed", BAD_REQUEST, "invalid_request", "the sign-in could not be completed; begin again";
    /// The user, or the provider, declined.
    SignInDeclined = "sign_in_declined", FORBIDDEN, "forbidden", "the sign-in was declined";
    /// `provider.email_domains`, `provider.groups`
    SignInDenied = "sign_in_denied", FORBIDDEN, "forbidden", "this user may not sign in here";
    /// `provider.groups`, and the provider leaves the groups of this user out.
    GroupsUnknown = "groups_unknown", FORBIDDEN, "forbidden", "the provider does not name the groups of this user";
    /// Each of several attempts within a minute ended where it began.
    SignInLoop = "sign_in_loop", TOO_MANY_REQUESTS, "rate_limited", "too many sign-ins began within a minute; allow cookies, or wait";

    // The authorization endpoint. The user sees these in the browser.
    UnknownClient = "unknown_client", BAD_REQUEST, "invalid_request", "the application is not known here; register it again";
    /// `oauth.denied_clients`. Also at the token endpoint.
    ClientDenied = "client_denied", BAD_REQUEST, "invalid_client", "this application may not act for users here";
    /// The document at the URL of a client cannot be fetched now.
    ClientDocument = "client_document", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the description of the application cannot be fetched right now";
    RedirectMismatch = "redirect_mismatch", BAD_REQUEST, "invalid_request", "the application asks for a redirect_uri that it has not registered";
    /// The form of the request, before it is known where an error may go.
    BadAuthorization = "bad_authorization", BAD_REQUEST, "invalid_request", "the request of the application is not valid";
    /// The application gets the error at its redirect URI. The detail names it.
    AuthorizationRefused = "authorization_refused", BAD_REQUEST, "invalid_request", "the request of the application cannot be granted";
    /// The user has declined.
    ConsentDenied = "consent_denied", FORBIDDEN, "access_denied", "the user has declined the request of the application";
    /// The sealed request is older than 10 minutes, or none of this gateway.
    ConsentStale = "consent_stale", BAD_REQUEST, "invalid_request", "this page has expired; begin again in the application";
    /// `oauth.login_page`
    NotSignedIn = "not_signed_in", BAD_REQUEST, "invalid_request", "the login page did not sign you in; allow cookies, and begin again in the application";
    ConsentCookie = "consent_cookie", BAD_REQUEST, "invalid_request", "the browser did not send the cookie of this page; allow cookies, and begin again in the application";
    // Client registration (RFC 7591 section 3.2.2).
    RegistrationRejected = "registration_rejected", BAD_REQUEST, "invalid_client_metadata", "these client metadata cannot be registered";
    RedirectRejected = "redirect_rejected", BAD_REQUEST, "invalid_redirect_uri", "a redirect_uri cannot be registered";

    // Authorization codes. All have one public code, which reveals nothing to a thief.
    CodeMalformed = "code_malformed", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    CodeExpired = "code_expired", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    CodeClient = "code_client", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    CodeRedirect = "code_redirect", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    CodeVerifier = "code_verifier", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    CodeReused = "code_reused", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    /// Another code of the same request was used: the user has sent the page twice.
    CodeSuperseded = "code_superseded", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";
    /// The session of the user who agreed, or what it came from, has ended.
    CodeSessionEnded = "code_session_ended", BAD_REQUEST, "invalid_grant", "the authorization code is not valid";

    // Refresh and logout. All invalid refresh tokens have one public code, which reveals nothing to a thief.
    GrantMalformed = "grant_malformed", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantUnknown = "grant_unknown", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantForged = "grant_forged", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantRevoked = "grant_revoked", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantExpired = "grant_expired", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantReused = "grant_reused", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    /// `oauth.reuse = "same_address"`: the session goes on.
    GrantSuperseded = "grant_superseded", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    /// [`Reason::RefreshConflict`] at the token endpoint, where a client that may try again would end its own session.
    GrantOutdated = "grant_outdated", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    GrantMismatch = "grant_mismatch", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    /// The session is bound to a certificate (RFC 8705 section 4), and the client has not shown it.
    GrantCertificate = "grant_certificate", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    /// The token is valid but newer than the store: an old backup was restored, or the disk lost a write.
    GrantAhead = "grant_ahead", BAD_REQUEST, "invalid_grant", "the refresh token is not valid";
    // RFC 6749 section 5.2 and RFC 7009 section 2.2.1.
    UnsupportedGrantType = "unsupported_grant_type", BAD_REQUEST, "unsupported_grant_type", "this grant_type is not supported";
    /// A pushed request (RFC 9126 section 2.3).
    UnsupportedResponseType = "unsupported_response_type", BAD_REQUEST, "unsupported_response_type", "response_type must be code";
    RequestObject = "request_object", BAD_REQUEST, "request_not_supported", "request objects are not supported";
    UnsupportedTokenType = "unsupported_token_type", BAD_REQUEST, "unsupported_token_type", "only the issuer of this token can revoke it";
    ClientAuthentication = "client_authentication", UNAUTHORIZED, "invalid_client", "this client has no secret here; do not send client credentials";
    /// The id or the secret of an `[[oauth.resource_server]]`.
    WrongClientSecret = "wrong_client_secret", UNAUTHORIZED, "invalid_client", "the client id or the client secret is not valid";
    /// The assertion of an `[[oauth.client]]`.
    ClientAssertion = "client_assertion", UNAUTHORIZED, "invalid_client", "the client assertion is not valid";
    /// `oauth.client.client_auth`, with one of the two methods of RFC 8705 section 2.
    ClientCertificate = "client_certificate", UNAUTHORIZED, "invalid_client", "this client must authenticate with its client certificate";
    ClientNotAuthenticated = "client_not_authenticated", UNAUTHORIZED, "invalid_client", "this client must authenticate at the token endpoint: with a client assertion or its certificate";
    UnauthorizedClient = "unauthorized_client", BAD_REQUEST, "unauthorized_client", "this client may not use this grant_type";
    InvalidScope = "invalid_scope", BAD_REQUEST, "invalid_scope", "the requested scope cannot be granted";
    /// `[[oauth.exchange]]`; RFC 8693 section 2.2.2.
    SubjectToken = "subject_token", BAD_REQUEST, "invalid_request", "the subject token is not acceptable";
    InvalidTarget = "invalid_target", BAD_REQUEST, "invalid_target", "there is no token for the requested audience or resource";
    /// An identity provider, or what it published.
    ProviderUnavailable = "provider_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the identity provider is not available";
    RefreshConflict = "refresh_conflict", CONFLICT, "refresh_conflict", "another refresh is in progress; use its tokens";
    TokenNotFound = "token_not_found", NOT_FOUND, "token_not_found", "no such token";

    // What identity providers report.
    BadLogoutToken = "bad_logout_token", BAD_REQUEST, "invalid_request", "the logout token is not valid";
    /// `event_stream.authorization_file`
    EventSender = "event_sender", UNAUTHORIZED, "authentication_failed", "the Authorization header is not that of this stream";
    BadSecurityEvent = "bad_security_event", BAD_REQUEST, "invalid_request", "the security event token is not valid";

    // The admin listener.
    AdminTokenWrong = "admin_token_wrong", UNAUTHORIZED, "unauthorized", "the admin token is missing or wrong";
    /// `admin.operator.role`
    AdminRole = "admin_role", FORBIDDEN, "forbidden", "this operator may not make this call";
    /// `admin.wrong_tokens`
    AdminLimited = "admin_limited", TOO_MANY_REQUESTS, "rate_limited", "too many wrong admin tokens came from this address";
    /// `admin.streams`
    StreamsLimited = "streams_limited", TOO_MANY_REQUESTS, "rate_limited", "too many streams of the admin API are open";
    /// `admin.hosts`
    AdminHost = "admin_host", MISDIRECTED_REQUEST, "invalid_request", "the Host header is not a name of the admin listener; call it by its IP address, or add the name to admin.hosts";
    /// `admin.recent_rejections`
    RejectionNotFound = "rejection_not_found", NOT_FOUND, "not_found", "no such request is among the newest rejected ones";
    ApiKeyNotFound = "api_key_not_found", NOT_FOUND, "not_found", "no such API key";
    KeyNotFound = "key_not_found", NOT_FOUND, "not_found", "no such signing key";
    KeyFinallyRevoked = "key_finally_revoked", CONFLICT, "invalid_request", "the key is already revoked for good, which cannot be undone: its tokens may not refresh, and their users log in again";
    KeysFixed = "keys_fixed", BAD_REQUEST, "invalid_request", "tokens.signing_key_file sets the key that signs: put another key into the file, and then revoke this one";
    KeysTooMany = "keys_too_many", TOO_MANY_REQUESTS, "rate_limited", "there are too many signing keys";

    // Limits, overload and backends.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// `[[rate]]` or `[[route.rate]]`; the detail says which.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// `throttle.refreshes`
    FamilyLimited = "family_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// `throttle.calls`
    AddressLimited = "address_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// `throttle.failures`
    FailuresLimited = "failures_limited", TOO_MANY_REQUESTS, "rate_limited", "too many requests";
    /// Too many HTTP/2 control frames or reset streams. The connection is closed with ENHANCE_YOUR_CALM.
    Http2Flood = "http2_flood", TOO_MANY_REQUESTS, "rate_limited", "too many HTTP/2 control frames";
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the token store is not available";
    /// `store.max_staleness`: the gateway may have missed a revocation.
    RevocationsStale = "revocations_stale", SERVICE_UNAVAILABLE, "temporarily_unavailable", "revocations cannot be checked right now";
    KeysUnavailable = "keys_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the keys to verify the token are not available";
    /// `issuer.introspection`
    IntrospectionUnavailable = "introspection_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the token cannot be checked right now";
    UpstreamConnect = "upstream_connect", BAD_GATEWAY, "bad_gateway", "the backend cannot be reached";
    UpstreamBroken = "upstream_broken", BAD_GATEWAY, "bad_gateway", "the backend sent an invalid response";
    UpstreamTimeout = "upstream_timeout", GATEWAY_TIMEOUT, "gateway_timeout", "the backend did not respond in time";
    UpstreamConnectTimeout = "upstream_connect_timeout", GATEWAY_TIMEOUT, "gateway_timeout", "the backend did not respond in time";
    /// `[[token_exchange]]`: the other server rejects the exchange, or its response is not one.
    TokenExchangeFailed = "token_exchange_failed", BAD_GATEWAY, "bad_gateway", "there is no token for the backend";
    TokenExchangeUnavailable = "token_exchange_unavailable", SERVICE_UNAVAILABLE, "temporarily_unavailable", "there is no token for the backend right now";
    /// `timeouts.request`
    RequestTimeout = "request_timeout", GATEWAY_TIMEOUT, "gateway_timeout", "the request took too long";
    /// A backend reported a login in a response that cannot carry the tokens. The response is not forwarded without
    /// them.
    LoginCapture = "login_capture", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the login could not be completed";
    /// `limits.concurrent_requests`
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the gateway is overloaded";
    /// `[maintenance]`
    Maintenance = "maintenance", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the service is under maintenance";
    UpstreamBusy = "upstream_busy", SERVICE_UNAVAILABLE, "temporarily_unavailable", "the backend is overloaded";
    Internal = "internal", INTERNAL_SERVER_ERROR, "internal", "internal error of the gateway";
}
