//! Messages as lines over a pair of byte streams.

use crate::{Bounds, Error, wire::link::Outbox, wire::shared::Shared};
use bytes::BytesMut;
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinHandle,
};

/// Bytes from which on no further message is added to a write.
const MAX_WRITE: usize = 64 << 10;

/// Starts a task that writes lines; it ends, and drops `writer`, when the queue is closed.
pub(crate) fn write(
    bounds: &Bounds,
    mut writer: impl AsyncWrite + Send + Unpin + 'static,
) -> (Outbox, JoinHandle<()>) {
    let (out, mut queue) = Outbox::new(bounds);
    let task = tokio::spawn(async move {
        let mut buffer = BytesMut::new();
        while let Some(message) = queue.recv().await {
            let mut next = Some(message);
            let mut places = Vec::new();
            while let Some(queued) = next {
                let claim = queued.claim();
                if let Some((message, place)) = queued.taken() {
                    let from = buffer.len();
                    buffer.extend_from_slice(&message);
                    // Arguments pass through as they were written; a line must be one.
                    if message.contains(&b'\n') {
                        let ends = buffer[from..].iter_mut().filter(|it| **it == b'\n');
                        ends.for_each(|it| *it = b' ');
                    }
                    buffer.extend_from_slice(b"\n");
                    places.push((from, claim, place));
                }
                next = match buffer.len() < MAX_WRITE {
                    true => queue.try_recv().ok(),
                    false => None,
                };
            }
            if let Err(written) = write_all(&mut writer, &buffer).await {
                // Of these nothing has reached the server.
                let unsent = places.into_iter().filter(|(from, ..)| written <= *from);
                unsent
                    .filter_map(|(_, claim, _)| claim)
                    .for_each(|it| it.give_back());
                break;
            }
            buffer.clear();
        }
    });
    (out, task)
}

/// Writes the whole buffer; fails with the number of bytes that were written.
async fn write_all(writer: &mut (impl AsyncWrite + Unpin), buffer: &[u8]) -> Result<(), usize> {
    let mut written = 0;
    while written < buffer.len() {
        match writer.write(&buffer[written..]).await {
            Ok(more @ 1..) => written += more,
            _ => return Err(written),
        }
    }
    writer.flush().await.map_err(|_| written)
}

/// Reads lines to the end; why it was the end.
pub(crate) async fn read(shared: &Arc<Shared>, mut reader: impl AsyncRead + Unpin) -> Error {
    let mut buffer = BytesMut::new();
    let mut searched = 0;
    loop {
        while let Some(end) = buffer[searched..].iter().position(|it| *it == b'\n') {
            let mut line = buffer.split_to(searched + end + 1).freeze();
            searched = 0;
            line.truncate(line.trim_ascii_end().len());
            if shared.bounds.max_message < line.len() {
                return Error::bound("max_message", shared.bounds.max_message as u64);
            }
            if !line.is_empty()
                && let Err(error) = shared.frame(&line)
            {
                return error;
            }
        }
        searched = buffer.len();
        if shared.bounds.max_message < searched {
            return Error::bound("max_message", shared.bounds.max_message as u64);
        }
        buffer.reserve(16 << 10);
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return Error::closed("the server has closed the connection"),
            Ok(_) => {}
            Err(error) => return Error::closed(format!("the server cannot be read: {error}")),
        }
    }
}
