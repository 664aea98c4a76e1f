//! A session as it is stored.

/// The most bytes a session's state may have; one with more is not kept. What real clients say about
/// themselves has a few hundred, and what strangers say must not fill a disk.
pub const MAX_STATE_BYTES: usize = 16 * 1024;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// What it is called.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// Everything else that has to be known of it, at most [`MAX_STATE_BYTES`].
    pub state: String,
    /// How many processes it has been through.
    pub lives: u32,
    /// When it was last used, in milliseconds since 1970.
    pub last_used_ms: u64,
}
