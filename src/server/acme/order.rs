//! One order, from its beginning, or from where another gateway has left it, to a certificate. Each step is stored
//! before the authority learns of it, so that it is not repeated after a crash.

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error, Identifier, NewOrder,
    Order, OrderStatus, RetryPolicy,
};
use tokio::time::sleep;

use super::entries::Entries;
use super::failure::Failure;
use super::follower;
use super::state::{Certificate, NameState, OrderState};
use crate::protocols::tls::{Issued, new_key, signing_request};
use crate::types::clock::UnixTime;
use crate::types::secret::{self, Secret};

/// Work on the entry of one name.
pub(super) struct Task<'e> {
    pub(super) entries: &'e Entries,
    pub(super) name: &'e str,
    /// Of the entry in the store.
    pub(super) version: u64,
    pub(super) state: NameState,
    /// `acme.directory`
    pub(super) directory: String,
    /// How often to look at what the authority has done.
    pub(super) poll: RetryPolicy,
}

impl Task<'_> {
    pub(super) async fn save(&mut self) -> Result<(), Failure> {
        self.entries.save_state(self.name, self.version + 1, &self.state).await?;
        self.version += 1;
        Ok(())
    }

    /// Begins an order, or goes on with the one that has begun.
    pub(super) async fn begin(&mut self, now: UnixTime) -> Result<(), Failure> {
        if self.state.order.as_ref().is_some_and(|order| order.directory == self.directory) {
            return Ok(());
        }
        let key = new_key().map_err(Failure::Key)?.expose().to_vec();
        self.state.order = Some(OrderState { directory: self.directory.clone(), url: None, key, validation: None });
        self.state.begin(now);
        self.save().await
    }

    /// Begins the order again, for another account.
    pub(super) fn order_again(&mut self) {
        if let Some(order) = &mut self.state.order {
            (order.url, order.validation) = (None, None);
        }
    }

    /// Leads the order to a certificate, and stores it.
    pub(super) async fn complete(&mut self, account: &Account, now: UnixTime) -> Result<(), Failure> {
        let mut order = self.open(account).await?;
        if order.state().status == OrderStatus::Pending {
            self.validate(&mut order).await?;
        }
        if matches!(order.state().status, OrderStatus::Pending | OrderStatus::Ready) {
            self.finalize(&mut order).await?;
        }
        if order.state().status == OrderStatus::Invalid {
            return Err(Failure::Rejected(reason(&mut order).await));
        }
        let chain = order.poll_certificate(&self.poll).await?;
        let key = self.key()?;
        let issued = Issued::read(self.name, &chain, &key)?;
        issued.check_time(now)?;
        let life = (issued.not_before, issued.not_after);
        let directory = self.directory.clone();
        let key = key.expose().to_vec();
        let certificate = Certificate::new(directory, chain, key, life, now, random());
        let begun = std::mem::take(&mut self.state.begun);
        self.state = NameState { certificate: Some(certificate), begun, ..NameState::default() };
        self.save().await
    }

    async fn open(&mut self, account: &Account) -> Result<Order, Failure> {
        if let Some(url) = self.state.order.as_ref().and_then(|order| order.url.clone()) {
            return Ok(account.order(url).await?);
        }
        let order = self.new_order(account).await?;
        if let Some(state) = &mut self.state.order {
            state.url = Some(order.url().to_owned());
        }
        self.save().await?;
        Ok(order)
    }

    /// Names the certificate that the new one replaces, if the authority plans renewals (RFC 9773 section 5). That must
    /// not prevent a renewal: any error is followed by an order without it.
    async fn new_order(&self, account: &Account) -> Result<Order, Failure> {
        let identifiers = [Identifier::Dns(self.name.to_owned())];
        let order = || NewOrder::new(&identifiers);
        let has_window =
            |certificate: &&Certificate| certificate.directory == self.directory && certificate.window.is_some();
        let replaced = self.state.certificate.as_ref().filter(has_window).and_then(|_| self.entries.issued(self.name));
        let id = replaced.and_then(|issued| Some(format!("\"{}\"", issued.id.as_ref()?)));
        let id = id.as_ref().and_then(|id| serde_json::from_str::<CertificateIdentifier<'_>>(id).ok());
        if let Some(id) = id {
            match account.new_order(&order().replaces(id)).await.map_err(Failure::from) {
                Ok(order) => return Ok(order),
                Err(error @ Failure::Absent(_)) => return Err(error),
                Err(error) => tracing::debug!(name = self.name, error = error.text(), "ordering without `replaces`"),
            }
        }
        Ok(account.new_order(&order()).await?)
    }

    /// Has the authority validate the name at the listeners.
    async fn validate(&mut self, order: &mut Order) -> Result<(), Failure> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
            let mut challenge = challenge.ok_or(Failure::WrongAnswer("the authority offers no tls-alpn-01"))?;
            let digest = <[u8; 32]>::try_from(challenge.key_authorization().digest().as_ref());
            if let Some(state) = &mut self.state.order {
                state.validation = digest.ok();
            }
            self.save().await?;
            self.wait_for_others().await;
            // The gateway that had begun the order may have said so before it ended.
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        Ok(())
    }

    /// The authority may connect to any gateway. One that does not know of the validation then asks the store, but it
    /// has better heard of it before.
    async fn wait_for_others(&self) {
        if self.entries.store.freshness().is_some_and(|freshness| freshness.replicas() > 1) {
            sleep(2 * follower::INTERVAL).await;
        }
    }

    async fn finalize(&mut self, order: &mut Order) -> Result<(), Failure> {
        if order.state().status == OrderStatus::Pending {
            match order.poll_ready(&self.poll).await {
                Ok(OrderStatus::Ready) => {}
                Ok(_) => return Err(Failure::Rejected(reason(order).await)),
                Err(error) => {
                    let failure = Failure::from(error);
                    let is_of_order = matches!(failure, Failure::Authority(Error::Api(_))) && !failure.is_bad_nonce();
                    return Err(if is_of_order { Failure::Rejected(reason(order).await) } else { failure });
                }
            }
        }
        let request = signing_request(self.name, &self.key()?).map_err(Failure::Key)?;
        Ok(order.finalize_csr(&request).await?)
    }

    fn key(&self) -> Result<Secret, Failure> {
        let key = self.state.order.as_ref().map(|order| Secret::new(order.key.clone()));
        key.ok_or(Failure::WrongAnswer("the order has no key"))
    }
}

/// Why an order is invalid: what the validation found.
async fn reason(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let error = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        if let Some(detail) = error.and_then(|error| error.detail.clone()) {
            return detail;
        }
    }
    "it gives no reason".to_owned()
}

/// From 0 to 1.
pub(super) fn random() -> f64 {
    let [high, low] = secret::random::<2>();
    f64::from(u16::from_be_bytes([high, low])) / 65_536.0
}
