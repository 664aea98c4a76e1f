//! Reads the body of a request, as much of it as is accepted.

use crate::{endpoint::Handled, endpoint::refuse};
use bytes::{Buf, Bytes};
use http::{HeaderMap, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use std::{error::Error, future::poll_fn, pin::pin, task::Poll, time::Duration};

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
            tracing::debug!(error = &*error as &dyn Error, "a request broke off");
            refuse(StatusCode::BAD_REQUEST, "the request broke off")
        }
    }
}

enum Failure {
    TooLong,
    TooSlow,
    Broken(Box<dyn Error + Send + Sync>),
}

async fn gather(body: &mut Incoming, max: usize) -> Result<Bytes, Failure> {
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
    let rest = body.collect().await.map_err(Failure::of)?.aggregate();
    if !rest.has_remaining() {
        return Ok(first);
    }
    let mut whole = first.chain(rest);
    Ok(whole.copy_to_bytes(whole.remaining()))
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

async fn forget(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}
