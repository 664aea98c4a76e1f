//! Fetching of the documents that have keys.

use crate::KeySource;
use std::{error::Error, pin::Pin};

/// Fetches the documents of issuers: metadata and keys.
pub trait FetchKeys: Send + Sync + 'static {
    /// The document at `source`, of at most a mebibyte: longer ones are refused anyway. It is a file
    /// or an address; what an issuer says of itself is asked for by address.
    fn fetch<'a>(&'a self, source: &'a KeySource) -> Fetched<'a>;
}

/// A document on its way.
pub type Fetched<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<u8>, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// Text of an error and of its causes.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
