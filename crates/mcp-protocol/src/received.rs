//! Frames with the metadata that were read along with them.

use crate::{
    ProtocolError,
    model::{RequestMeta, meta::MetaReader},
};
use bytes::Bytes;
use jsonrpc_core::{DecodeError, Limits, Payload, RawJson, decode_with};

/// Content of a frame, with the metadata of a single request where they were read with it.
#[derive(Clone, Debug)]
pub struct Received {
    /// The messages.
    pub payload: Payload,
    /// Metadata of the request that the payload is; [`Received::meta_of`] reads those that are missing.
    pub meta: Option<Box<RequestMeta>>,
}

impl Received {
    /// Decodes one frame, and reads the metadata of a request in the same pass.
    ///
    /// # Errors
    ///
    /// As [`jsonrpc_core::decode`] has them.
    pub fn decode(frame: &Bytes, limits: Limits) -> Result<Self, DecodeError> {
        let mut reader = MetaReader::default();
        let payload = decode_with(frame, limits, &mut reader)?;
        let meta = reader.read().map(Box::new);
        Ok(Self { payload, meta })
    }

    /// The metadata of `params`: `read`, if they have been read already.
    ///
    /// # Errors
    ///
    /// As [`RequestMeta::of`] has them.
    pub fn meta_of(
        read: Option<Box<RequestMeta>>,
        params: &RawJson,
    ) -> Result<Box<RequestMeta>, ProtocolError> {
        read.map_or_else(|| RequestMeta::of(params).map(Box::new), Ok)
    }
}

impl From<Payload> for Received {
    fn from(payload: Payload) -> Self {
        Self {
            payload,
            meta: None,
        }
    }
}
