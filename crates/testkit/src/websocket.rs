//! WebSockets.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream},
    net::TcpStream,
    sync::oneshot,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        self, Message,
        client::IntoClientRequest,
        http::{HeaderName, HeaderValue},
    },
};

use crate::{stdio::LinePeer, wait::GENEROUS};

/// Bytes that may lie between a test and the socket.
const ROOM: usize = 64 * 1024;

/// A client with a WebSocket of its own, a text message for each line of a [`LinePeer`]. Everything
/// that can do, it can.
#[derive(Debug)]
pub struct WebSocketPeer {
    peer: LinePeer,
    closed: oneshot::Receiver<Closed>,
}

/// Close of a WebSocket: the code and the reason, if the server has given one.
pub type Closed = Option<(u16, String)>;

impl WebSocketPeer {
    /// Opens one at `path`.
    ///
    /// # Errors
    ///
    /// The status, if the server does not agree.
    ///
    /// # Panics
    ///
    /// If there is no such server, or it does not speak WebSocket.
    pub async fn open_at(
        address: SocketAddr,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Self, u16> {
        let url = format!("ws://{address}{path}");
        let mut request = url.into_client_request().expect("it is a URL");
        let own = [("sec-websocket-protocol", "mcp".to_owned())];
        for (name, value) in own.iter().chain(headers) {
            let name = HeaderName::try_from(*name).expect("it is the name of a header");
            let value = HeaderValue::try_from(value).expect("it is the value of one");
            request.headers_mut().append(name, value);
        }
        let opening = async {
            let connection = TcpStream::connect(address).await.expect("a server");
            client_async(request, connection).await
        };
        match timeout(GENEROUS, opening).await.expect("an answer") {
            Ok((socket, _)) => Ok(Self::over(socket)),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("this is not WebSocket: {error}"),
        }
    }

    fn over(socket: WebSocketStream<TcpStream>) -> Self {
        let (input, said) = tokio::io::duplex(ROOM);
        let (heard, output) = tokio::io::duplex(ROOM);
        let (close, closed) = oneshot::channel();
        tokio::spawn(async move {
            // Whether somebody wants to know or not.
            let _ = close.send(pump(socket, said, heard).await);
        });
        Self {
            peer: LinePeer::over(output, input),
            closed,
        }
    }

    /// Waits until the server closes it.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub async fn closed(self) -> Closed {
        let closed = timeout(GENEROUS, self.closed).await;
        closed.expect("an end").expect("whoever reads says how")
    }
}

async fn pump(
    mut socket: WebSocketStream<TcpStream>,
    said: DuplexStream,
    mut heard: DuplexStream,
) -> Closed {
    let mut said = BufReader::new(said).lines();
    let mut closed = None;
    loop {
        tokio::select! {
            line = said.next_line() => match line {
                Ok(Some(line)) => {
                    if socket.send(Message::Text(line.into())).await.is_err() {
                        return closed;
                    }
                }
                _ => {
                    // An error means that it is closed.
                    let _ = socket.close(None).await;
                    return closed;
                }
            },
            message = socket.next() => match message {
                Some(Ok(Message::Text(text))) => {
                    let line = [text.as_bytes(), b"\n"].concat();
                    if heard.write_all(&line).await.is_err() {
                        return closed;
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    closed = frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return closed,
            },
        }
    }
}

// A peer with a socket behind it, as `StdioServer` is one with a process.
impl Deref for WebSocketPeer {
    type Target = LinePeer;

    fn deref(&self) -> &LinePeer {
        &self.peer
    }
}

impl DerefMut for WebSocketPeer {
    fn deref_mut(&mut self) -> &mut LinePeer {
        &mut self.peer
    }
}
