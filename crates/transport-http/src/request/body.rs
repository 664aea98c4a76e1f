//! Reads the body of a request, as much of it as is accepted.

use crate::{
    error_response::{Handled, refusal_with, refuse},
    limits::body_memory::Share,
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jsonrpc_core::{ErrorCode, ErrorObject};
use serde_json::json;
use std::{error::Error, future::poll_fn, pin::pin, task::Poll, time::Duration};

/// Bytes of an unwanted body that are read before the answer, and the time for that. A client that is
/// still writing may not read an early answer: some give up when their stream is reset, and an answer
/// is lost when a connection is closed with unread input.
pub(crate) const FINISH_BYTES: usize = 64 * 1024;
pub(crate) const FINISH: Duration = Duration::from_secs(1);

/// Time for which the rest is read and discarded beside the answer.
const LINGER: Duration = Duration::from_secs(2);

/// Reads a body of at most `max` bytes within `limit`. What has come of it is of `share`, unless it
/// comes as a whole.
pub(crate) async fn body<B>(
    body: &mut B,
    max: usize,
    limit: Duration,
    share: Share<'_>,
) -> Handled<Bytes>
where
    B: Body<Data = Bytes, Error: Into<Broken>> + Unpin,
{
    let outcome = if max < announced(body) {
        Err(Failure::TooLong)
    } else {
        let mut gathering = pin!(gather(body, max, share));
        // Most bodies come with their head: only one that does not costs a timer.
        match poll_fn(|cx| Poll::Ready(gathering.as_mut().poll(cx))).await {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => match tokio::time::timeout(limit, gathering).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Failure::TooSlow),
            },
        }
    };
    match outcome {
        Ok(bytes) => Ok(bytes),
        Err(Failure::TooLong) => refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the request is too long; at most {max} bytes are accepted"),
        ),
        Err(Failure::NoRoom) => {
            tracing::warn!("a request was refused: too much is held of others");
            let error = ErrorObject::new(
                ErrorCode::INTERNAL_ERROR,
                "too many requests are being read",
            );
            let error = error.with(&json!({ "retryable": true }));
            let mut refused = refusal_with(StatusCode::SERVICE_UNAVAILABLE, error);
            refused
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            Err(Box::new(refused))
        }
        Err(Failure::TooSlow) => refuse(
            StatusCode::REQUEST_TIMEOUT,
            format!(
                "the request took longer than {} seconds",
                limit.as_secs_f32()
            ),
        ),
        Err(Failure::Broken(error)) => {
            tracing::debug!(error = &*error as &dyn Error, "a request broke off");
            refuse(StatusCode::BAD_REQUEST, "the request broke off")
        }
    }
}

enum Failure {
    TooLong,
    TooSlow,
    /// Too much is held of bodies that have not ended.
    NoRoom,
    Broken(Broken),
}

type Broken = Box<dyn Error + Send + Sync>;

async fn gather<B>(body: &mut B, max: usize, mut share: Share<'_>) -> Result<Bytes, Failure>
where
    B: Body<Data = Bytes, Error: Into<Broken>> + Unpin,
{
    let mut body = Limited::new(body, max);
    // Nearly every body is one piece, and a list of one would cost an allocation.
    let first = loop {
        match body.frame().await {
            None => return Ok(Bytes::new()),
            // Trailers are passed over.
            Some(frame) => {
                if let Ok(data) = frame.map_err(Failure::of)?.into_data() {
                    break data;
                }
            }
        }
    };
    if body.is_end_stream() {
        return Ok(first);
    }
    if !share.take(first.len()) {
        return Err(Failure::NoRoom);
    }
    // Copied: a piece of one byte keeps all that it was received with.
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Failure::of)?.into_data() else {
            continue;
        };
        if !share.take(data.len()) {
            return Err(Failure::NoRoom);
        }
        if whole.is_empty() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&data);
    }
    if whole.is_empty() {
        return Ok(first);
    }
    Ok(whole.freeze())
}

impl Failure {
    fn of(error: Box<dyn Error + Send + Sync>) -> Self {
        if error.is::<LengthLimitError>() {
            Self::TooLong
        } else {
            Self::Broken(error)
        }
    }
}

fn announced(body: &impl Body) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX)
}

/// Reads what is left of a body whose request is answered already, so that its client reads the answer:
/// all of what is small and comes soon, if it `waits`. The rest of anything else is read for a while beside the answer.
pub(crate) async fn finish<B>(headers: &HeaderMap, mut body: B, waits: bool)
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    // Whoever waits for our leave to send has not begun.
    if headers.contains_key(header::EXPECT) {
        return;
    }
    if waits && announced(&body) <= FINISH_BYTES {
        let finishing = tokio::time::timeout(FINISH, forget(&mut body, FINISH_BYTES));
        if finishing.await == Ok(true) {
            return;
        }
    }
    tokio::spawn(async move {
        // Whether it ends or not.
        let _ = tokio::time::timeout(LINGER, forget(&mut body, usize::MAX)).await;
    });
}

/// Reads at most `max` bytes and a piece; whether that was all.
async fn forget(body: &mut (impl Body<Data = Bytes> + Unpin), max: usize) -> bool {
    let mut left = max;
    while let Some(frame) = body.frame().await {
        let length = match frame {
            Ok(frame) => frame.data_ref().map_or(0, Bytes::len),
            Err(_) => return true,
        };
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::body_memory::Held;
    use async_stream::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::{
        convert::Infallible,
        sync::Arc,
        task::{Context, Waker},
    };

    const MINUTE: Duration = Duration::from_secs(60);

    /// One byte of a buffer that says when it is let go.
    struct Piece {
        _alive: Arc<()>,
    }

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            b"x"
        }
    }

    fn pieces(
        count: usize,
        ends: bool,
    ) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin {
        let alive = Arc::new(());
        let stream = stream! {
            for _ in 0..count {
                // The first may be all there is, so that it is kept as it is.
                assert!(Arc::strong_count(&alive) <= 2, "nothing else is kept");
                yield Ok(Frame::data(Bytes::from_owner(Piece { _alive: Arc::clone(&alive) })));
            }
            if !ends {
                std::future::pending::<()>().await;
            }
        };
        StreamBody::new(Box::pin(stream))
    }

    #[tokio::test]
    async fn bodies_that_have_not_ended_have_bounds_together() {
        let [all, own, other, third] = [(); 4].map(|()| Held::default());
        let share = |connection| Share::new(&all, connection, 1000, 100);
        {
            let mut endless = pieces(200, false);
            let mut slow = pin!(body(&mut endless, 300, MINUTE, share(&own)));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(slow.as_mut().poll(&mut cx).is_pending());
            assert_eq!((all.bytes(), own.bytes()), (200, 200));
            let [mut one, mut two, mut three] = [(); 3].map(|()| pieces(51, true));
            let refused = body(&mut one, 300, MINUTE, share(&own));
            let refused = refused.await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
            let read = body(&mut two, 300, MINUTE, share(&other));
            assert_eq!(read.await.unwrap().len(), 51, "on another connection");
            let mut most = Share::new(&all, &other, 1000, 1000);
            assert!(most.take(750));
            let refused = body(&mut three, 300, MINUTE, share(&third));
            assert!(refused.await.is_err(), "too much in all");
            assert_eq!(third.bytes(), 0);
        }
        assert_eq!((all.bytes(), own.bytes(), other.bytes()), (0, 0, 0));
    }
}
