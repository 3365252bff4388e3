//! What to change after a rejection of a client that asks users. `bearward explain --request-id` shows it.

use super::reason::Reason;

impl Reason {
    /// Advice for the operator. `None` where the detail and the page of all reasons have to do.
    pub const fn change(self) -> Option<&'static str> {
        Some(match self {
            Reason::UnknownClient => {
                "add an [[oauth.client]] with this client_id and its redirect_uris, or the host of its document to \
                 oauth.client_documents; a client that has registered itself must register again"
            }
            Reason::ClientDocument => {
                "the document of the client must answer within 3 seconds at a public address, with at most 5 KiB; name \
                 its host in oauth.client_documents if the address is private"
            }
            Reason::RedirectMismatch => {
                "register what the client sends, in oauth.client.redirect_uris or in its document, or correct the client"
            }
            Reason::BadAuthorization => {
                "correct the parameter in the client; the host of the request must be that of tokens.issuer"
            }
            Reason::AuthorizationRefused => {
                "the client got this error; correct its request, or route.resource and the scopes that it may ask for"
            }
            Reason::ConsentCookie => {
                "the user must go on in the browser that began, with cookies; proxies must pass Cookie and Set-Cookie"
            }
            Reason::ConsentStale => "the user must begin again in the application, and decide within 10 minutes",
            Reason::ConsentDenied => "nothing: the user has declined",
            Reason::CodeMalformed => {
                "the client must send the code as it got it; all gateways need the same store.secret_file"
            }
            Reason::CodeExpired => "the client must redeem a code at once; oauth.code_lifetime can be up to 1m",
            Reason::CodeClient => "the client must redeem the code with the client_id of its authorization request",
            Reason::CodeRedirect => {
                "the client must redeem the code with the redirect_uri of its authorization request"
            }
            Reason::CodeVerifier => {
                "the client must send the code_verifier of the code_challenge of this authorization request"
            }
            Reason::CodeReused => {
                "the client sent its code twice, or a thief has it: look at the addresses of both requests"
            }
            Reason::CodeSuperseded => {
                "nothing: the user sent the page twice, and the client has the tokens of the other code"
            }
            Reason::CodeSessionEnded => "the user must sign in again: the session in which the user agreed has ended",
            _ => return None,
        })
    }
}
