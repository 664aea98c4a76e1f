//! Counters of responses and streams.

use http::StatusCode;
use mcp_service::Floods;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The first status and how many there can be, as HTTP numbers them.
const FIRST: u16 = 100;
const STATUSES: usize = 500;

/// Counts of all listeners of a server together.
#[derive(Debug)]
pub(crate) struct Stats {
    statuses: [AtomicU64; STATUSES],
    streams: AtomicUsize,
    pub(crate) http2_floods: Floods,
    pub(crate) tls_floods: Floods,
}

/// Figures of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpStats {
    /// Open connections.
    pub connections: usize,
    /// Connections and handshakes that were refused, because there were too many.
    pub refused_connections: u64,
    /// Connections that were ended because of what their clients sent: too many frames of HTTP/2 that
    /// carry nothing, or too many streams that were given up.
    pub flooded_http2: u64,
    /// The same of TLS: too many changes of keys, renegotiations and warnings.
    pub flooded_tls: u64,
    /// Open sessions of the legacy era.
    pub sessions: usize,
    /// Open streams of events, but for those of the 2024-11-05 transport.
    pub streams: usize,
    /// Number of responses by status, for each status of which there was one.
    pub responses: Vec<(u16, u64)>,
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream(Arc<Stats>);

impl Stats {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            statuses: [const { AtomicU64::new(0) }; STATUSES],
            streams: AtomicUsize::new(0),
            http2_floods: Floods::default(),
            tls_floods: Floods::default(),
        })
    }

    pub(crate) fn answered(&self, status: StatusCode) {
        let index = usize::from(status.as_u16() - FIRST);
        if let Some(count) = self.statuses.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stream(self: &Arc<Self>) -> Stream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Stream(Arc::clone(self))
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(crate) fn responses(&self) -> Vec<(u16, u64)> {
        let counts = (FIRST..).zip(&self.statuses);
        let counts = counts.map(|(status, count)| (status, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| 0 < *count).collect()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_counted_and_streams_are_open_until_they_are_not() {
        let counts = Stats::new();
        for status in [200, 200, 404, 599, 999] {
            counts.answered(StatusCode::from_u16(status).unwrap());
        }
        assert_eq!(counts.responses(), [(200, 2), (404, 1), (599, 1)]);
        let (one, other) = (counts.stream(), counts.stream());
        assert_eq!(counts.streams(), 2);
        drop((one, other));
        assert_eq!(counts.streams(), 0);
    }
}
