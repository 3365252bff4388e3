//! Warnings about the authorization endpoint: what stops clients that would otherwise sign in.

use crate::auth::registered_clients::RegisteredClient;
use crate::config::document::error::ConfigError;
use crate::config::document::table::Table;
use crate::config::settings::TokenSettings;
use crate::gateway::authorization_server::settings::AuthorizationSettings;
use crate::gateway::oauth::metadata;

pub(super) fn report(
    table: &Table<'_>,
    settings: &AuthorizationSettings,
    clients: &[RegisteredClient],
    tokens: &TokenSettings,
) {
    let place = settings.sign_in.key();
    let is_closed = settings.registration.is_none() && settings.documents.is_none();
    if is_closed && clients.iter().all(|client| client.authorization.is_none()) {
        let warning = ConfigError::new(
            "no client is known that could ask a user",
            "expected `registration`, `client_documents`, or an [[oauth.client]] with `redirect_uris`",
        );
        let help = "for assistants and command lines, add registration = [\"loopback\"] and \
                    client_documents = [\"claude.ai\", \"chatgpt.com\", \"vscode.dev\"]";
        table.warn(place, warning.help(help));
    }
    if metadata::base(&tokens.issuer) != tokens.issuer.trim_end_matches('/') {
        let warning = ConfigError::new(
            format!("some clients look for the metadata of {} at one place only", tokens.issuer),
            "expected a tokens.issuer without a path",
        );
        table.warn(place, warning.help("give the gateway a host of its own, or try the clients that you expect"));
    }
}
