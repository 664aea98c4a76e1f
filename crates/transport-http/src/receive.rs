//! Reads the body of a request, as much of it as is accepted.

use crate::{endpoint::Handled, endpoint::refuse};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use hyper::body::Incoming;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

/// For how long the rest of a body that is too long is read and forgotten. A client that is still
/// writing would never read our answer if we just hung up.
const LINGER: Duration = Duration::from_secs(2);

/// Reads a body of at most `max` bytes within `limit`.
pub(crate) async fn body(
    headers: &HeaderMap,
    mut body: Incoming,
    max: usize,
    limit: Duration,
) -> Handled<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let outcome = if max < announced {
        Err(Failure::TooLong)
    } else {
        let mut gathering = pin!(gather(&mut body, max));
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
        Err(Failure::TooLong) => {
            // Whoever waits for our leave to send has not begun.
            if !headers.contains_key(header::EXPECT) {
                tokio::spawn(tokio::time::timeout(LINGER, forget(body)));
            }
            refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the request is too long; at most {max} bytes are accepted"),
            )
        }
        Err(Failure::TooSlow) => refuse(
            StatusCode::REQUEST_TIMEOUT,
            format!(
                "the request took longer than {} seconds",
                limit.as_secs_f32()
            ),
        ),
        Err(Failure::Broken(error)) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a request broke off"
            );
            refuse(StatusCode::BAD_REQUEST, "the request broke off")
        }
    }
}

enum Failure {
    TooLong,
    TooSlow,
    Broken(hyper::Error),
}

async fn gather(body: &mut Incoming, max: usize) -> Result<Bytes, Failure> {
    let Some(first) = next(body).await? else {
        return Ok(Bytes::new());
    };
    if max < first.len() {
        return Err(Failure::TooLong);
    }
    let Some(second) = next(body).await? else {
        return Ok(first);
    };
    // Grows with what has come and not with what was announced.
    let mut whole = BytesMut::from(first);
    let mut piece = second;
    loop {
        if max - whole.len() < piece.len() {
            return Err(Failure::TooLong);
        }
        whole.extend_from_slice(&piece);
        match next(body).await? {
            Some(more) => piece = more,
            None => return Ok(whole.freeze()),
        }
    }
}

/// The next data; trailers are passed over.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        if body.is_end_stream() {
            return Ok(None);
        }
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Err(error)) => return Err(Failure::Broken(error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

async fn forget(mut body: Incoming) {
    while let Ok(Some(_)) = next(&mut body).await {}
}
