//! The account at the authority. Its key is kept: with the same key, the authority finds the same account again (RFC
//! 8555 section 7.3.1).

use instant_acme::{Account, Key};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::authority::Authority;
use super::entries::Entries;
use super::failure::Failure;
use crate::types::reject::with_causes;

/// Finds or creates the account. A new key is stored before the authority learns of it.
pub(super) async fn open(entries: &Entries, authority: &Authority) -> Result<Account, Failure> {
    let directory = authority.settings.directory.text();
    let (version, known) = entries.account(&directory);
    let key = match known {
        Some(key) => key.expose().to_vec(),
        None => {
            let (_, key) = Key::generate_pkcs8()?;
            let key = key.secret_pkcs8_der().to_vec();
            entries.save_account(&directory, version + 1, key.clone()).await?;
            key
        }
    };
    let key = PrivatePkcs8KeyDer::from(key);
    let pair = (Key::from_pkcs8_der(key.clone_key())?, PrivateKeyDer::from(key));
    let builder = Account::builder_with_http(Box::new(authority.clone()));
    let (account, _) = builder.create_from_key(pair, directory).await?;
    // A CAA record can name it (RFC 8657).
    tracing::info!(url = ?account.id(), "the account at the ACME server");
    let contact: Vec<&str> = authority.settings.contact.iter().map(String::as_str).collect();
    if !contact.is_empty()
        && let Err(error) = account.update_contacts(&contact).await
    {
        // Certificates do not depend on it.
        let error = with_causes(&Failure::from(error));
        tracing::warn!(error, "the ACME server does not accept acme.contact");
    }
    Ok(account)
}
