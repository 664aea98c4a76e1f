//! Peers that take nothing any more.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// A connection that breaks when its peer has taken nothing for too long of what is written to it.
/// Costs nothing while writes do not have to wait.
#[derive(Debug)]
pub(crate) struct WriteTimeout<T> {
    connection: T,
    limit: Duration,
    /// Made when a write waits for the first time.
    alarm: Option<Pin<Box<Sleep>>>,
    /// True if a write waits, and the alarm is set for it.
    waiting: bool,
}

impl<T> WriteTimeout<T> {
    pub(crate) fn new(connection: T, limit: Duration) -> Self {
        Self {
            connection,
            limit,
            alarm: None,
            waiting: false,
        }
    }

    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let limit = self.limit;
        let alarm = self
            .alarm
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if !std::mem::replace(&mut self.waiting, true) {
            alarm.set(tokio::time::sleep(limit));
        }
        ready!(alarm.as_mut().poll(cx));
        let error = "the peer has taken nothing for too long of what was written to it";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write_vectored(cx, pieces);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    // Neither of these waits for the peer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::Instant,
    };

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn only_a_peer_that_takes_nothing_is_given_up() {
        let (ours, mut theirs) = duplex(4);
        let mut ours = WriteTimeout::new(ours, LIMIT);
        let writing = tokio::spawn(async move { ours.write_all(&[0; 40]).await });
        // One byte at a time, each just in time, and far longer in all.
        let begun = Instant::now();
        for _ in 0..10 {
            tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
            assert!(!writing.is_finished());
            theirs.read_u8().await.unwrap();
        }
        let last = Instant::now();
        assert!(LIMIT * 9 < last - begun);
        let ended = tokio::time::timeout(LIMIT * 2, writing).await;
        let error = ended.expect("it ends").unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(LIMIT <= last.elapsed() && last.elapsed() < LIMIT + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn saying_nothing_is_no_waiting() {
        let (ours, mut theirs) = duplex(4);
        let mut ours = WriteTimeout::new(ours, LIMIT);
        for _ in 0..3 {
            ours.write_all(&[0; 4]).await.unwrap();
            theirs.read_exact(&mut [0; 4]).await.unwrap();
            tokio::time::sleep(LIMIT * 2).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_may_be_endless() {
        let (ours, _theirs) = duplex(4);
        let mut ours = WriteTimeout::new(ours, Duration::MAX);
        let writing = ours.write_all(&[0; 40]);
        assert!(tokio::time::timeout(LIMIT * 60, writing).await.is_err());
    }
}
