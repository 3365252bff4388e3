//! The parts of a snapshot besides the counters of the workers.

/// At one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Others {
    /// Tokens in the cache.
    pub tokens_known: u64,
    pub servers: Servers,
}

/// How many servers of all upstreams are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    pub serving: u32,
    pub returning: u32,
    pub ejected: u32,
    pub unhealthy: u32,
}

impl Servers {
    /// Counts a server by its state, as `GET /admin/v1/upstreams` names it.
    pub fn count(&mut self, state: &str) {
        let count = match state {
            "unhealthy" => &mut self.unhealthy,
            "ejected" => &mut self.ejected,
            "returning" => &mut self.returning,
            _ => &mut self.serving,
        };
        *count += 1;
    }
}
