//! Time-stamps of RFC 3161: a request for one, and the token of an authority, which is verified offline.
//!
//! A token proves that whoever asked had a digest at a time. It is a CMS message (RFC 5652) that the authority has
//! signed; believed is one whose certificate is for time-stamping alone ever (RFC 3161, section 2.3), and leads to a
//! configured authority at that time. Revocation is not looked at. No I/O, no clock.
//!
//! ```no_run
//! # fn post(_: Vec<u8>) -> Vec<u8> { Vec::new() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let authorities = timestamps::Authorities::from_pem(&std::fs::read("tsa-ca.pem")?)?;
//! let digest = [7; 32];
//! let answer = post(timestamps::request(&digest, 42));
//! let token = timestamps::token(&answer)?;
//! let stamp = timestamps::verify(&token, &digest, Some(42), &authorities)?;
//! assert!(1_700_000_000 < stamp.at.as_secs());
//! # Ok(())
//! # }
//! ```

mod content;
mod signature;

use cms::{content_info::ContentInfo, signed_data::SignedData};
use der::{
    AnyRef, Decode, Encode, Reader, SliceReader,
    asn1::{ObjectIdentifier, OctetStringRef},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use std::time::Duration;

/// `id-signedData`, RFC 5652, section 5.1.
const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");

/// `id-ct-TSTInfo`, RFC 3161, section 2.4.2.
const TST_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.16.1.4");

/// `id-sha256`, RFC 5754, section 2.2.
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");

/// Type of the body that a request has over HTTP: RFC 3161, section 3.4.
pub const QUERY_TYPE: &str = "application/timestamp-query";

/// Certificates of authorities that are believed.
#[derive(Clone, Debug)]
pub struct Authorities(Vec<CertificateDer<'static>>);

/// Content of a token that is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Time of the stamp, since the epoch, UTC; whole seconds.
    pub at: Duration,
}

/// Failure of a time-stamp.
#[derive(Debug, thiserror::Error)]
pub enum TimestampError {
    /// The file of authorities has no certificate, or something that is none.
    #[error("there is no certificate of an authority in it")]
    NoAuthority,
    /// Bytes are not what RFC 3161 has them to be.
    #[error("it is no time-stamp of RFC 3161")]
    Malformed(#[from] der::Error),
    /// The authority has refused; the number is its `PKIStatus` (RFC 3161, section 2.4.2).
    #[error("the authority has refused it with status {0}")]
    Refused(u8),
    /// A part of the token is not as it must be.
    #[error("{0}")]
    Wrong(&'static str),
    /// The token is of another digest.
    #[error("it is a time-stamp of something else")]
    OtherImprint,
    /// The signature is not that of its certificate, or the certificate leads to no configured authority.
    #[error("its signature is not believed: {0}")]
    Signature(webpki::Error),
}

impl Authorities {
    /// Reads certificates in PEM, of roots or of authorities below them.
    ///
    /// # Errors
    ///
    /// [`TimestampError::NoAuthority`].
    pub fn from_pem(text: &[u8]) -> Result<Self, TimestampError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = read.map_err(|_| TimestampError::NoAuthority)?;
        if certificates.is_empty() {
            return Err(TimestampError::NoAuthority);
        }
        for certificate in &certificates {
            webpki::anchor_from_trusted_cert(certificate)
                .map_err(|_| TimestampError::NoAuthority)?;
        }
        Ok(Self(certificates))
    }
}

/// `TimeStampReq` (RFC 3161, section 2.4.1) for a SHA-256 digest, which asks for the authority's certificate. The
/// nonce comes back in the token.
#[must_use]
pub fn request(digest: &[u8; 32], nonce: u64) -> Vec<u8> {
    let request = content::Request {
        version: 1,
        imprint: content::Imprint::sha256(digest),
        nonce,
        wants_certificate: true,
    };
    request.to_der().expect("it is short")
}

/// The token of a `TimeStampResp` (RFC 3161, section 2.4.2), which is not verified.
///
/// # Errors
///
/// When the authority has refused, or has answered with something else.
pub fn token(response: &[u8]) -> Result<Vec<u8>, TimestampError> {
    let mut reader = SliceReader::new(response)?;
    let (status, token) = reader.sequence(|response| {
        let status: u8 = response.sequence(|info| {
            let status = info.decode()?;
            while !info.is_finished() {
                AnyRef::decode(info)?;
            }
            Ok(status)
        })?;
        let token = match response.is_finished() {
            true => None,
            false => Some(AnyRef::decode(response)?.to_der()?),
        };
        Ok((status, token))
    })?;
    // Granted, with or without modifications.
    match (status, token) {
        (0 | 1, Some(token)) => Ok(token),
        (0 | 1, None) => Err(TimestampError::Wrong("the answer has no token")),
        (status, _) => Err(TimestampError::Refused(status)),
    }
}

/// Verifies a token: that it is of this SHA-256 digest and this nonce, if any is expected, and that an authority has
/// signed it.
///
/// # Errors
///
/// [`TimestampError`] when it is not believed.
pub fn verify(
    token: &[u8],
    digest: &[u8; 32],
    nonce: Option<u64>,
    authorities: &Authorities,
) -> Result<Stamp, TimestampError> {
    let message = ContentInfo::from_der(token)?;
    if message.content_type != SIGNED_DATA {
        return Err(TimestampError::Wrong("the token is not signed"));
    }
    let signed: SignedData = message.content.decode_as()?;
    let content = &signed.encap_content_info;
    if content.econtent_type != TST_INFO {
        return Err(TimestampError::Wrong("the token is no time-stamp"));
    }
    let text = content.econtent.as_ref();
    let text = text.ok_or(TimestampError::Wrong("the token has no content"))?;
    let text: OctetStringRef<'_> = text.decode_as()?;
    let info = content::Info::read(text.as_bytes())?;
    if info.version != 1 {
        return Err(TimestampError::Wrong("the token is of another version"));
    }
    if info.imprint != content::Imprint::sha256(digest) {
        return Err(TimestampError::OtherImprint);
    }
    if nonce.is_some() && info.nonce != nonce {
        return Err(TimestampError::Wrong("the token answers another request"));
    }
    signature::verify(&signed, text.as_bytes(), info.at, authorities)?;
    Ok(Stamp { at: info.at })
}

#[cfg(test)]
mod tests;
