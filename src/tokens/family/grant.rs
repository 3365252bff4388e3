//! What a user has granted to a client at the authorization endpoint, and the spent tokens that came back of it.

use std::time::Duration;

use crate::types::clock::UnixTime;

/// Maximum number of late refreshes in one window that end no session.
const MAX_LATE: u32 = 10;

/// A family that a user has granted to a client at the authorization endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// `None`: no spent refresh token of it has come from the address of the last refresh.
    pub superseded: Option<Superseded>,
}

/// A spent refresh token came from the address of the last refresh: of two processes with copies of one store, or of a
/// thief and the owner behind one address. The next grant of the user to this client ends the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superseded {
    /// The first late refresh of this window, by the clock of [`Family::last_rotation`](super::Family::last_rotation).
    pub at: UnixTime,
    /// The late refreshes of this window. A refresh with the current token does not set it back: a thief could.
    pub count: u32,
}

impl Grant {
    /// After one more late refresh. `None` if the window has had its ten. `now`: by the clock of [`Superseded::at`].
    pub fn after_late_refresh(self, window: Duration, now: UnixTime) -> Option<Grant> {
        let next = match self.superseded {
            // If it lies ahead, the clock was set back while no gateway ran. The window goes on.
            Some(before) if now.since(before.at) <= window => {
                Superseded { count: before.count.saturating_add(1), ..before }
            }
            _ => Superseded { at: now, count: 1 },
        };
        if next.count > MAX_LATE { None } else { Some(Grant { superseded: Some(next) }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const FIRST: UnixTime = UnixTime::from_secs(1_000_000);

    #[test]
    fn ten_late_refreshes_of_a_window_are_counted() {
        let mut grant = Grant::default();
        for count in 1..=10 {
            grant = grant.after_late_refresh(HOUR, FIRST + Duration::from_mins(count.into())).expect("at most ten");
            let first = FIRST + Duration::from_mins(1);
            assert_eq!(grant.superseded, Some(Superseded { at: first, count }));
        }
        assert_eq!(grant.after_late_refresh(HOUR, FIRST + HOUR), None);
        assert_eq!(grant.after_late_refresh(HOUR, FIRST - HOUR), None, "a clock that was set back opens no window");
        let next = FIRST + Duration::from_mins(1) + HOUR + Duration::from_millis(1);
        let again = grant.after_late_refresh(HOUR, next).expect("the first one of the next window");
        assert_eq!(again.superseded, Some(Superseded { at: next, count: 1 }));
    }
}
