//! Options of WebSockets.

use std::time::Duration;

/// How WebSockets are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketOptions {
    /// How many are open at most.
    pub max_open: usize,
    /// How many of them one principal has.
    pub max_open_per_principal: usize,
    /// How often a client is looked after: it is asked for a sign of life if it has given none since,
    /// and whether it is still who it was. One that gives none for as long again is gone.
    pub ping: Duration,
    /// How many bytes of messages that have not come as a whole are held, of all clients together; at
    /// least one message of the size that is accepted fits.
    pub max_unfinished: usize,
    /// Frames per second without payload that one client may send in the long run, and ten times as
    /// many at once: pings, pongs, and pieces of messages with fewer than 32 bytes. The connection of a
    /// client that sends more is closed.
    pub max_control_frames_per_second: u32,
    /// How long what runs may go on when the server stops.
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
