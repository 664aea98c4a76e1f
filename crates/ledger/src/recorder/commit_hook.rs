//! Hook on the commits of a ledger.

use crate::{record::note::Noted, store::Tail};

/// Sees what has been stored, on the thread that stores it, and may have something to add, such as
/// a signed checkpoint. It must not take long: nothing is stored meanwhile.
pub trait CommitHook: Send + 'static {
    /// The ledger has been opened and ends here, and nothing has been written yet. What this gives
    /// is stored before anything else.
    fn opening(&mut self, tail: Tail, now_us: u64) -> Option<Noted> {
        let _ = (tail, now_us);
        None
    }

    /// A group has been stored and the ledger ends here. What this gives is stored with the next.
    /// `now_us` is in microseconds since the epoch, UTC. It is asked from time to time as well when
    /// nothing has been stored.
    fn stored(&mut self, tail: Tail, now_us: u64) -> Option<Noted>;

    /// Called once when everything has been stored, no entry can come any more, and the ledger ends
    /// at `tail`. The note that it returns is stored last.
    fn closing(&mut self, tail: Tail, now_us: u64) -> Option<Noted>;

    /// The reason why the ledger is not sealed as it should be at present, for
    /// [`crate::recorder::queue::Health::seal_error`]. It is asked about once a second.
    fn trouble(&self) -> Option<String> {
        None
    }
}
