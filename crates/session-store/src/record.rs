//! A session as it is stored.

/// The most bytes a session's state may have; one with more is not kept. What real clients say about
/// themselves has a few hundred, and what strangers say must not fill a disk.
pub const MAX_STATE_BYTES: usize = 16 * 1024;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Id of the session.
    pub id: String,
    /// Principal that the session belongs to.
    pub principal: String,
    /// State of the session for the transport, at most [`MAX_STATE_BYTES`].
    pub state: String,
    /// Number of processes it has been through.
    pub lives: u32,
    /// Time of its last use, in milliseconds since 1970.
    pub last_used_ms: u64,
}
