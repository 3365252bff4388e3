//! What the call of a proxy is read with, and the record of the request that it is about.

use http::Request;

use crate::gateway::decide::Decider;
use crate::gateway::delivery::Delivery;
use crate::gateway::token_calls::TokenCalls;
use crate::protocols::http::forwarded::{ForwardedClient, Forwarding};
use crate::types::clock::Clock;

/// What a call is read with.
#[derive(Clone, Copy)]
pub struct With<'g> {
    pub decider: &'g Decider,
    pub forwarding: &'g Forwarding,
    pub token_calls: &'g TokenCalls,
    pub clock: &'g dyn Clock,
}

/// From here on, the record is that of the request that the call is about.
pub(super) fn describe<B>(call: &Request<B>, client: &ForwardedClient, delivery: &mut Delivery) {
    delivery.record.method = call.method().clone();
    delivery.record.uri = call.uri().clone();
    delivery.record.client = Some(client.address);
}
