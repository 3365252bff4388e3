//! The rules of the authorization endpoint (OAuth 2.1), without I/O: redirect URIs, requests, and the sealed texts that
//! the browser and the client carry instead of the gateway.

pub mod client_document;
pub mod client_name;
pub mod client_registration;
pub mod code;
pub mod denied_clients;
pub mod grant;
pub mod narrowing;
pub mod pending;
pub mod pushed;
pub mod redirect_uri;
pub mod request;
pub mod resource;
