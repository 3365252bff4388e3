//! The account at the authority. Its key is kept: with the same key, the authority finds the same account again (RFC
//! 8555 section 7.3.1).

use instant_acme::{Account, Key};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::authority::Authority;
use super::entries::Entries;
use super::failure::Failure;
use crate::types::reject::with_causes;

/// Finds or creates the account. One that the authority has deactivated is replaced.
pub(super) async fn open(entries: &Entries, authority: &Authority) -> Result<Account, Failure> {
    let (_, known) = entries.account(&authority.settings.directory.text());
    let Some(known) = known else {
        let key = replace(entries, authority).await?;
        return find_or_create(key, authority).await;
    };
    match find_or_create(known.expose().to_vec(), authority).await {
        Err(failure) if failure.may_be_of_account() => {
            report_deactivated(&failure);
            let key = replace(entries, authority).await?;
            find_or_create(key, authority).await
        }
        account => account,
    }
}

/// As [`open`], after an error of the authority. The account stays, unless the authority rejects everything from it.
///
/// # Errors
/// The same error, if the account is good.
pub(super) async fn open_again(
    account: &Account,
    failure: Failure,
    entries: &Entries,
    authority: &Authority,
) -> Result<Account, Failure> {
    if !failure.may_be_of_account() || !is_deactivated(account, authority).await {
        return Err(failure);
    }
    report_deactivated(&failure);
    let key = replace(entries, authority).await?;
    find_or_create(key, authority).await
}

/// Sets what is set already: the authority then looks at the account alone.
async fn is_deactivated(account: &Account, authority: &Authority) -> bool {
    let contact: Vec<&str> = authority.settings.contact.iter().map(String::as_str).collect();
    let updated = account.update_contacts(&contact).await;
    updated.is_err_and(|error| Failure::from(error).may_be_of_account())
}

fn report_deactivated(failure: &Failure) {
    tracing::warn!(
        error = failure.text(),
        "the ACME server has deactivated the account; making a new one (change a CAA record that names the old one)"
    );
}

/// Makes a new key, and stores it before the authority learns of it.
async fn replace(entries: &Entries, authority: &Authority) -> Result<Vec<u8>, Failure> {
    let directory = authority.settings.directory.text();
    let (version, _) = entries.account(&directory);
    let (_, key) = Key::generate_pkcs8()?;
    let key = key.secret_pkcs8_der().to_vec();
    entries.save_account(&directory, version + 1, key.clone()).await?;
    Ok(key)
}

/// The account with this key in PKCS#8.
async fn find_or_create(key: Vec<u8>, authority: &Authority) -> Result<Account, Failure> {
    let key = PrivatePkcs8KeyDer::from(key);
    let pair = (Key::from_pkcs8_der(key.clone_key())?, PrivateKeyDer::from(key));
    let builder = Account::builder_with_http(Box::new(authority.clone()));
    let (account, _) = builder.create_from_key(pair, authority.settings.directory.text()).await?;
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
