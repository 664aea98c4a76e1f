//! Options of WebSockets.

use std::time::Duration;

/// Options of WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketOptions {
    /// Most connections open at once.
    pub max_open: usize,
    /// Most connections of one principal.
    pub max_open_per_principal: usize,
    /// Interval at which a client is checked: it is sent a ping if it has been silent since, and
    /// must still be authenticated. A client that stays silent for as long again is disconnected.
    pub ping: Duration,
    /// Most bytes of incomplete messages that are held, of all clients together; at least one
    /// message of the size that is accepted fits.
    pub max_unfinished: usize,
    /// Frames per second without payload that one client may send in the long run, and ten times as
    /// many at once: pings, pongs, and pieces of messages with fewer than 32 bytes. The connection of a
    /// client that sends more is closed.
    pub max_control_frames_per_second: u32,
    /// Time for which running calls may go on when the server stops.
    pub drain: Duration,
}

impl Default for WebSocketOptions {
    /// 256, 32 of a principal; half a minute; 64 MiB; 100 a second; five seconds.
    fn default() -> Self {
        Self {
            max_open: 256,
            max_open_per_principal: 32,
            ping: Duration::from_secs(30),
            max_unfinished: 64 * 1024 * 1024,
            max_control_frames_per_second: 100,
            drain: Duration::from_secs(5),
        }
    }
}
