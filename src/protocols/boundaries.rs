//! Where one unit of a stream of bytes ends and the next begins, however the bytes are cut: frames of a WebSocket, messages of
//! gRPC.

/// Where in its units a stream is.
pub trait Boundaries {
    /// Is no unit under way?
    fn is_between(&self) -> bool;

    /// Takes bytes of one part of a unit: of its head, or of what it holds. `bytes` is not empty, and at least one is taken.
    fn advance(&mut self, bytes: &[u8]) -> usize;

    /// All of these bytes go by.
    fn follow(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.advance(&bytes[at..]);
        }
    }

    /// Of these bytes, only those go by that belong to the unit under way. Answers how many: none between two.
    fn rest_of_unit(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_between() {
            at += self.advance(&bytes[at..]);
        }
        at
    }
}
