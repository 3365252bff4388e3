//! Notifications to systemd.

use sd_notify::NotifyState;

/// Notifies systemd if it has started the gateway. A failed notification changes nothing for clients.
pub fn notify_systemd(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
