//! HTTP+SSE of 2024-11-05: a stream of events that is the session, and a place to post to.

use crate::{
    Error,
    wire::http::{HttpLink, beginning, is_stream},
    wire::link::{Duplex, End, Link, Outbox},
    wire::reference::same_origin,
    wire::shared::Shared,
    wire::sse::Events,
};
use bytes::Bytes;
use http::Method;
use http_client::BodyStream;
use std::sync::Arc;
use tokio::time::Instant;

/// Opens the stream, waits for the place to post to, and starts the tasks that read and write.
pub(crate) async fn open(shared: &Arc<Shared>, link: HttpLink) -> Result<Link, Error> {
    let until = Instant::now() + shared.bounds.timeout;
    let response = link
        .open(shared, Method::GET, &[], Bytes::new(), Some(until))
        .await?;
    let status = response.status().as_u16();
    if !response.status().is_success() || !is_stream(response.headers()) {
        let body = beginning(response.into_body()).await;
        let body = format!("no stream of events: {}", shared.quoted(&body));
        return Err(Error::Status {
            status,
            body,
            retry_after: None,
        });
    }
    let mut body = response.into_body();
    let mut events = Events::new(shared.bounds.max_message);
    let place = tokio::time::timeout_at(until, endpoint(&mut body, &mut events, shared))
        .await
        .map_err(|_| Error::TimedOut {
            method: "endpoint",
            within: shared.bounds.timeout,
            note: "the stream has not named a place to post to".to_owned(),
        })??;
    let url = same_origin(&link.url, &place).map_err(|why| {
        let place = shared.quoted(place.as_bytes());
        Error::Protocol(format!(
            "the place to post to cannot be used, since {why}: {place}"
        ))
    })?;
    let poster = link.at(url);

    let (out, mut queue) = Outbox::new(&shared.bounds);
    let writing = tokio::spawn({
        let shared = Arc::clone(shared);
        async move {
            while let Some(queued) = queue.recv().await {
                let claim = queued.claim();
                let Some((message, _place)) = queued.taken() else {
                    continue;
                };
                let until = Instant::now() + shared.bounds.timeout;
                let sent = poster
                    .open(&shared, Method::POST, &[], message, Some(until))
                    .await;
                let failed = match sent {
                    Ok(response) if response.status().is_success() => continue,
                    Ok(response) => format!("it answered with HTTP {}", response.status().as_u16()),
                    Err(error) => {
                        if let Some(claim) = claim.filter(|_| !error.may_have_run()) {
                            claim.give_back();
                        }
                        error.to_string()
                    }
                };
                shared.close(&format!("a message could not be posted: {failed}"));
                return;
            }
        }
    });
    let reading = tokio::spawn({
        let shared = Arc::clone(shared);
        async move {
            let error = read(&shared, &mut body, &mut events).await;
            shared.close(&error.into_reason());
        }
    });
    let end = End::Within(shared.bounds.close_patience);
    let duplex = Duplex::new(out, reading.abort_handle(), Some(writing), end);
    Ok(Link::Duplex(duplex))
}

async fn endpoint(
    body: &mut BodyStream,
    events: &mut Events,
    shared: &Shared,
) -> Result<String, Error> {
    let too_long = |_| Error::bound("max_message", shared.bounds.max_message as u64);
    loop {
        while let Some(event) = events.next().map_err(too_long)? {
            if event.name == "endpoint" {
                return Ok(String::from_utf8_lossy(&event.data).trim().to_owned());
            }
        }
        match body.chunk().await? {
            Some(chunk) => events.push(&chunk),
            None => {
                return Err(Error::closed(
                    "the stream ended before it named a place to post to",
                ));
            }
        }
    }
}

async fn read(shared: &Arc<Shared>, body: &mut BodyStream, events: &mut Events) -> Error {
    loop {
        loop {
            match events.next() {
                Ok(Some(event)) if matches!(event.name.as_str(), "" | "message") => {
                    if let Err(error) = shared.frame(&Bytes::from(event.data)) {
                        return error;
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return Error::bound("max_message", shared.bounds.max_message as u64),
            }
        }
        match body.chunk().await {
            Ok(Some(chunk)) => events.push(&chunk),
            Ok(None) => return Error::closed("the stream has ended"),
            Err(error) => return error.into(),
        }
    }
}
