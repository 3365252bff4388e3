//! Finds where one unit of a byte stream ends and the next begins, however the bytes are cut: WebSocket frames, gRPC
//! messages.

/// The position of a byte stream within its units.
pub trait Boundaries {
    /// Returns true between two units.
    fn is_between(&self) -> bool;

    /// Consumes bytes of one part of a unit: of its head or of its payload. `bytes` is not empty, and at least one is
    /// consumed. Returns how many.
    fn advance(&mut self, bytes: &[u8]) -> usize;

    /// Consumes all bytes.
    fn follow(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.advance(&bytes[at..]);
        }
    }

    /// Consumes the bytes that belong to the current unit. Returns how many: none between two units.
    fn rest_of_unit(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_between() {
            at += self.advance(&bytes[at..]);
        }
        at
    }
}
