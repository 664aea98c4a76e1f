use crate::{Message, Response, encode};
use bytes::{BufMut, Bytes, BytesMut};

/// Results at least this long are not copied into their frame.
const SPLICE_FROM: usize = 8 * 1024;

/// One encoded message or batch, in up to three pieces, so that a long result which was serialized
/// beforehand is sent from where it lies.
#[derive(Clone, Debug)]
pub struct Frame {
    head: Bytes,
    middle: Bytes,
    tail: &'static [u8],
}

impl Frame {
    /// A frame in one piece.
    pub fn whole(bytes: Bytes) -> Self {
        Self {
            head: bytes,
            middle: Bytes::new(),
            tail: b"",
        }
    }

    /// Encodes one message.
    pub fn message(message: &Message) -> Self {
        if let Message::Response(response) = message {
            return Self::response(response);
        }
        let mut out = BytesMut::with_capacity(256);
        encode::encode(message, &mut out);
        Self::whole(out.freeze())
    }

    /// Encodes a response.
    pub fn response(response: &Response) -> Self {
        match &response.outcome {
            Ok(result) if SPLICE_FROM <= result.as_bytes().len() => {
                let mut head = BytesMut::with_capacity(64);
                encode::put_response_head(response.id.as_ref(), &mut head);
                head.put_slice(br#","result":"#);
                Self {
                    head: head.freeze(),
                    middle: result.clone().into_bytes(),
                    tail: b"}",
                }
            }
            outcome => {
                let length = outcome
                    .as_ref()
                    .map_or(256, |result| result.as_bytes().len());
                let mut out = BytesMut::with_capacity(length + 64);
                encode::encode_response(response, &mut out);
                Self::whole(out.freeze())
            }
        }
    }

    /// Number of bytes in all pieces together.
    pub fn len(&self) -> usize {
        self.head.len() + self.middle.len() + self.tail.len()
    }

    /// Returns true if the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces that are not empty, in order.
    pub fn pieces(self) -> impl Iterator<Item = Bytes> {
        [self.head, self.middle, Bytes::from_static(self.tail)]
            .into_iter()
            .filter(|piece| !piece.is_empty())
    }

    /// Appends all of it to `out`.
    pub fn write_to(&self, out: &mut BytesMut) {
        out.put_slice(&self.head);
        out.put_slice(&self.middle);
        out.put_slice(self.tail);
    }

    /// All of it in one piece; copies only when there are several.
    pub fn into_bytes(self) -> Bytes {
        if self.middle.is_empty() && self.tail.is_empty() {
            return self.head;
        }
        let mut out = BytesMut::with_capacity(self.len());
        self.write_to(&mut out);
        out.freeze()
    }
}
