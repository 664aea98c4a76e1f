//! One connection: bytes out, heads and bodies in.

use std::{fmt, io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{HttpRequest, HttpResponse};
use crate::wait::GENEROUS;

/// A head longer than this is a fault of the server.
const MAX_HEAD: usize = 64 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection that sends the bytes it is given. Dropping it hangs up.
pub struct HttpConnection {
    stream: Box<dyn Stream>,
    /// Read but not yet used.
    buffer: Vec<u8>,
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unused = String::from_utf8_lossy(&self.buffer);
        formatter
            .debug_struct("HttpConnection")
            .field("unused", &unused)
            .finish_non_exhaustive()
    }
}

/// Remaining part of a body.
#[derive(Debug)]
enum Framing {
    /// A number of bytes.
    Length(usize),
    /// The chunk that is being read has this many bytes left; `None` between two of them.
    Chunked(Option<usize>),
    /// Until the server hangs up.
    Open,
    /// No more bytes.
    Done,
}

/// A body while it comes.
#[derive(Debug)]
pub struct Body {
    connection: HttpConnection,
    framing: Framing,
}

impl HttpConnection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// A connection over any stream, such as one of TLS.
    pub fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            buffer: Vec::new(),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// If the server has hung up, or does not read.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(GENEROUS, writing).await?
    }

    /// Says that nothing more will be sent, and still listens.
    ///
    /// # Errors
    ///
    /// If the server has hung up.
    pub async fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Panics
    ///
    /// If the server hangs up, answers with something that is not HTTP, or takes longer than
    /// [`GENEROUS`] for one part of it.
    pub async fn exchange(self, request: &HttpRequest) -> (HttpResponse, Self) {
        let (mut head, mut body) = self.begin(request).await;
        while let Some(bytes) = body.next().await {
            head.body.extend_from_slice(&bytes);
        }
        (head, body.connection)
    }

    /// Sends a request and reads the head of the response.
    ///
    /// # Panics
    ///
    /// As [`HttpConnection::exchange`].
    pub async fn begin(mut self, request: &HttpRequest) -> (HttpResponse, Body) {
        // A server may answer and hang up before it has read everything; the answer counts.
        let sent = self.send_bytes(&request.to_bytes()).await;
        let head = match self.read_head().await {
            Ok(head) => head,
            Err(error) => panic!("no response: {error} (sending: {sent:?})"),
        };
        let body = self.into_body(&head, request.is_head());
        (head, body)
    }

    /// Reads the head of a response; interim ones (1xx) are passed over.
    ///
    /// # Errors
    ///
    /// If the server has hung up, says what is not HTTP, or says nothing within [`GENEROUS`].
    pub async fn read_head(&mut self) -> io::Result<HttpResponse> {
        loop {
            let head = self.read_until(b"\r\n\r\n").await?;
            let head = std::str::from_utf8(&head).map_err(io::Error::other)?;
            let head = HttpResponse::parse_head(head).map_err(io::Error::other)?;
            if !(100..200).contains(&head.status) {
                return Ok(head);
            }
        }
    }

    /// The body that follows `head`. To hang up within it, drop it.
    ///
    /// # Panics
    ///
    /// If the head says several things about the length.
    #[must_use]
    pub fn into_body(self, head: &HttpResponse, is_head: bool) -> Body {
        let length = head.header("content-length");
        let chunked = head.header("transfer-encoding") == Some("chunked");
        assert!(
            length.is_none() || !chunked,
            "both a length and chunks: {head:?}"
        );
        let framing = if is_head || matches!(head.status, 204 | 304) {
            Framing::Done
        } else if chunked {
            Framing::Chunked(None)
        } else if let Some(length) = length {
            Framing::Length(length.parse().expect("a content length is a number"))
        } else {
            Framing::Open
        };
        Body {
            connection: self,
            framing,
        }
    }

    /// Waits until the server hangs up, and says what else it sent.
    ///
    /// # Panics
    ///
    /// If it does not within [`GENEROUS`].
    pub async fn read_to_end(mut self) -> Vec<u8> {
        // A reset is an end too.
        while matches!(self.fill().await.expect_timely(), Ok(1..)) {}
        self.buffer
    }

    /// Reads more into the buffer; 0 at the end.
    async fn fill(&mut self) -> io::Result<usize> {
        timeout(GENEROUS, self.stream.read_buf(&mut self.buffer)).await?
    }

    async fn need(&mut self) -> io::Result<()> {
        match self.fill().await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads the bytes before `end`, which is passed over.
    async fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            let found = self
                .buffer
                .windows(end.len())
                .position(|window| window == end);
            if let Some(length) = found {
                let rest = self.buffer.split_off(length + end.len());
                let mut head = std::mem::replace(&mut self.buffer, rest);
                head.truncate(length);
                return Ok(head);
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(io::Error::other("an endless head"));
            }
            self.need().await?;
        }
    }

    /// Some bytes, at most `max` of them.
    async fn read_some(&mut self, max: usize) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.need().await?;
        }
        let rest = self.buffer.split_off(max.min(self.buffer.len()));
        Ok(std::mem::replace(&mut self.buffer, rest))
    }
}

trait Timely<T> {
    fn expect_timely(self) -> io::Result<T>;
}

impl<T> Timely<T> for io::Result<T> {
    fn expect_timely(self) -> Self {
        if let Err(error) = &self {
            let late = error.kind() == io::ErrorKind::TimedOut;
            assert!(!late, "nothing happened within {GENEROUS:?}");
        }
        self
    }
}

impl Body {
    /// The next bytes, as soon as there are some; `None` at the end.
    ///
    /// # Panics
    ///
    /// If the server hangs up within the body, breaks its framing, or says nothing within
    /// [`GENEROUS`].
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.try_next()
            .await
            .unwrap_or_else(|error| panic!("the body breaks off: {error}"))
    }

    /// As [`Body::next`], where breaking off is to be expected.
    ///
    /// # Errors
    ///
    /// What [`Body::next`] panics for.
    pub async fn try_next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let connection = &mut self.connection;
        let bytes = match &mut self.framing {
            Framing::Done | Framing::Length(0) => return Ok(None),
            Framing::Length(left) => {
                let bytes = connection.read_some(*left).await?;
                *left -= bytes.len();
                bytes
            }
            Framing::Open => match connection.read_some(usize::MAX).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.framing = Framing::Done;
                    return Ok(None);
                }
                other => other?,
            },
            Framing::Chunked(chunk) => {
                let left = match chunk {
                    Some(left) => left,
                    None => chunk.insert(chunk_size(&connection.read_until(b"\r\n").await?)?),
                };
                if *left == 0 {
                    // Trailers, of which there are none, and the empty line.
                    while !connection.read_until(b"\r\n").await?.is_empty() {}
                    self.framing = Framing::Done;
                    return Ok(None);
                }
                let bytes = connection.read_some(*left).await?;
                *left -= bytes.len();
                if *left == 0 {
                    *chunk = None;
                    let end = connection.read_until(b"\r\n").await?;
                    if !end.is_empty() {
                        return Err(io::Error::other("a chunk is longer than it says"));
                    }
                }
                bytes
            }
        };
        Ok(Some(bytes))
    }

    /// Hands the connection back.
    #[must_use]
    pub fn into_connection(self) -> HttpConnection {
        self.connection
    }
}

fn chunk_size(line: &[u8]) -> io::Result<usize> {
    let text = std::str::from_utf8(line).map_err(io::Error::other)?;
    let digits = text.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 16).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one response from a server that says `text`, in pieces of `piece` bytes.
    async fn read(text: &'static str, piece: usize) -> io::Result<(HttpResponse, Vec<u8>)> {
        let (near, mut far) = tokio::io::duplex(piece);
        tokio::spawn(async move {
            let _ = far.write_all(text.as_bytes()).await;
        });
        let mut connection = HttpConnection::over(near);
        let mut head = connection.read_head().await?;
        let mut body = connection.into_body(&head, false);
        while let Some(bytes) = body.try_next().await? {
            head.body.extend_from_slice(&bytes);
        }
        Ok((head, body.into_connection().read_to_end().await))
    }

    #[tokio::test]
    async fn every_framing_is_read_to_its_end_and_no_further() {
        for piece in [1, 7, 1000] {
            for text in [
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            ] {
                let (response, rest) = read(text, piece).await.unwrap();
                assert_eq!((response.text(), rest), ("hello", Vec::new()), "{text:?}");
            }
            let (response, _) = read("HTTP/1.1 200 OK\r\n\r\nhello", piece).await.unwrap();
            assert_eq!(response.text(), "hello");
            let next = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\nHTTP/1.1";
            let (response, rest) = read(next, piece).await.unwrap();
            assert_eq!((response.status, rest), (202, b"HTTP/1.1".to_vec()));
        }
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-le",
        ] {
            read(text, 1000).await.unwrap_err();
        }
    }
}
