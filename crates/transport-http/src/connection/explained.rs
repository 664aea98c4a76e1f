//! Bodies with a reason for the errors that the HTTP/1.1 library sends by itself for heads that it
//! cannot read; its own have no body.

use crate::error_response::refusal;
use bytes::{Buf, Bytes};
use http::StatusCode;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which such answers are replaced as they are written.
#[derive(Debug)]
pub(crate) struct Explained<T> {
    connection: T,
    max_header_bytes: usize,
    /// Rest of the replacement of an answer, and the length of the original.
    instead: Option<(Bytes, usize)>,
}

impl<T> Explained<T> {
    pub(crate) fn new(connection: T, max_header_bytes: usize) -> Self {
        Self {
            connection,
            max_header_bytes,
            instead: None,
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.connection
    }
}

/// The replacement of `answer`, if that is an error of the library's: one without a body and without
/// the headers of this server.
fn instead_of(answer: &[u8], max_header_bytes: usize) -> Option<Bytes> {
    let status = answer.strip_prefix(b"HTTP/1.1 4")?;
    let is_whole = answer.ends_with(b"\r\n\r\n");
    let has = |text: &[u8]| memchr::memmem::find(answer, text).is_some();
    if !is_whole || !has(b"content-length: 0\r\n") || has(b"x-content-type-options") {
        return None;
    }
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let (status, why) = match status.get(..2)? {
        b"31" => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!(
                "the head of the request is too long; at most {max_header_bytes} bytes are accepted"
            ),
        ),
        b"14" => (
            StatusCode::URI_TOO_LONG,
            "the target of the request is too long".to_owned(),
        ),
        b"00" => (
            StatusCode::BAD_REQUEST,
            "the head of the request is not HTTP that can be read".to_owned(),
        ),
        _ => return None,
    };
    let body = refusal(status, why).into_body();
    let mut whole = line.to_vec();
    whole.extend_from_slice(
        b"\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n\
          connection: close\r\ncontent-length: ",
    );
    whole.extend_from_slice(body.len().to_string().as_bytes());
    whole.extend_from_slice(b"\r\n\r\n");
    whole.extend_from_slice(&body);
    Some(whole.into())
}

impl<T: AsyncRead + Unpin> AsyncRead for Explained<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Explained<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            let instead = instead_of(bytes, self.max_header_bytes);
            self.instead = instead.map(|instead| (instead, bytes.len()));
        }
        let this = &mut *self;
        let Some((rest, length)) = &mut this.instead else {
            return Pin::new(&mut this.connection).poll_write(cx, bytes);
        };
        while !rest.is_empty() {
            let count = ready!(Pin::new(&mut this.connection).poll_write(cx, rest))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            rest.advance(count);
        }
        let length = *length;
        this.instead = None;
        Poll::Ready(Ok(length))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut full = pieces.iter().filter(|piece| !piece.is_empty());
        match (full.next(), full.next()) {
            (Some(one), None) => self.poll_write(cx, one),
            _ => Pin::new(&mut self.connection).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

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

    #[test]
    fn only_empty_bodies_of_the_library_are_replaced() {
        let told = |answer: &str| {
            let instead = instead_of(answer.as_bytes(), 4096)?;
            Some(String::from_utf8(instead.to_vec()).unwrap())
        };
        let theirs = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let whole = told(theirs).unwrap();
        let (head, body) = whole.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
        assert!(body.contains("at most 4096 bytes"), "{body}");
        assert!(told(&theirs.replace("431", "400")).is_some());
        for ours in [
            theirs.replace("431", "404"),
            theirs.replace("431", "200"),
            theirs.replace("connection: close", "x-content-type-options: nosniff"),
            theirs.replace("length: 0", "length: 7"),
            format!("{theirs}more"),
        ] {
            assert_eq!(told(&ours), None, "{ours}");
        }
    }
}
