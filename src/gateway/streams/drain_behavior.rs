//! The behavior of a stream in a graceful shutdown.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainBehavior {
    /// Ends at once: its client reconnects by itself, and the stream would delay the shutdown.
    AtOnce,
    /// May end by itself during `timeouts.drain`. Then it is ended.
    AtLast,
    /// May end by itself during `timeouts.drain`. Then it is cut off, because its protocol has no way to announce an
    /// end.
    #[default]
    CutOff,
}
