//! Messages of RFC 3161 that are no CMS.

use crate::SHA256;
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use der::{
    AnyRef, DateTime, Decode, Error, ErrorKind, Reader, Sequence, SliceReader, Tag, Tagged,
    asn1::{Null, ObjectIdentifier, OctetString},
};
use std::time::Duration;

/// `TimeStampReq`, without what is not asked for.
#[derive(Sequence)]
pub(crate) struct Request {
    pub(crate) version: u8,
    pub(crate) imprint: Imprint,
    pub(crate) nonce: u64,
    pub(crate) wants_certificate: bool,
}

/// `MessageImprint`.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(crate) struct Imprint {
    algorithm: AlgorithmIdentifierOwned,
    digest: OctetString,
}

impl Imprint {
    pub(crate) fn sha256(digest: &[u8; 32]) -> Self {
        Self {
            algorithm: AlgorithmIdentifierOwned {
                oid: SHA256,
                parameters: Some(Null.into()),
            },
            digest: OctetString::new(digest.as_slice()).expect("it is short"),
        }
    }

    /// The same without parameters, which may be left out (RFC 5754, section 2).
    fn plain(mut self) -> Self {
        if self.algorithm.oid == SHA256 {
            self.algorithm.parameters = Some(Null.into());
        }
        self
    }
}

/// `TSTInfo`, as far as it is looked at.
pub(crate) struct Info {
    pub(crate) version: u8,
    pub(crate) imprint: Imprint,
    pub(crate) at: Duration,
    /// `None` if there is none, or one that no request of ours has.
    pub(crate) nonce: Option<u64>,
}

impl Info {
    pub(crate) fn read(bytes: &[u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(bytes)?;
        let info = reader.sequence(|info| {
            let version = info.decode()?;
            let _policy: ObjectIdentifier = info.decode()?;
            let imprint: Imprint = info.decode()?;
            let _serial: AnyRef<'_> = info.decode()?;
            let time: AnyRef<'_> = info.decode()?;
            if time.tag() != Tag::GeneralizedTime {
                return Err(Tag::GeneralizedTime.value_error());
            }
            let at = time_of(time.value()).ok_or_else(|| Error::from(ErrorKind::DateTime))?;
            let mut nonce = None;
            while !info.is_finished() {
                let member: AnyRef<'_> = info.decode()?;
                if member.tag() == Tag::Integer {
                    nonce = member.decode_as::<u64>().ok();
                }
            }
            Ok(Self {
                version,
                imprint: imprint.plain(),
                at,
                nonce,
            })
        })?;
        reader.finish(info)
    }
}

/// A `GeneralizedTime` in UTC, with or without fractions of a second (RFC 3161, section 2.4.2), which are left out.
fn time_of(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if whole.len() != 14 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let two = |from: usize| whole[from..from + 2].parse::<u8>().ok();
    let year = whole[..4].parse().ok()?;
    let time = DateTime::new(year, two(4)?, two(6)?, two(8)?, two(10)?, two(12)?);
    Some(time.ok()?.unix_duration())
}

/// The digest of a certificate that an attribute of the signature names, and its algorithm; `None` for SHA-1.
pub(crate) struct CertificateDigest {
    pub(crate) algorithm: Option<ObjectIdentifier>,
    pub(crate) digest: Vec<u8>,
}

impl CertificateDigest {
    /// Reads the first of `SigningCertificate` (RFC 2634, section 5.4) or, if `has_algorithm`, of
    /// `SigningCertificateV2` (RFC 5035, section 3).
    pub(crate) fn read(bytes: &[u8], has_algorithm: bool) -> der::Result<Self> {
        fn rest<'a>(reader: &mut impl Reader<'a>) -> der::Result<()> {
            while !reader.is_finished() {
                AnyRef::decode(reader)?;
            }
            Ok(())
        }
        let mut reader = SliceReader::new(bytes)?;
        let read = reader.sequence(|attribute| {
            let first = attribute.sequence(|all| {
                let first = all.sequence(|first| {
                    let algorithm = match first.peek_tag()? {
                        Tag::Sequence => {
                            let named: AlgorithmIdentifierOwned = first.decode()?;
                            Some(named.oid)
                        }
                        _ => has_algorithm.then_some(SHA256),
                    };
                    let digest: OctetString = first.decode()?;
                    rest(first)?;
                    let digest = digest.into_bytes();
                    Ok(Self { algorithm, digest })
                })?;
                rest(all)?;
                Ok(first)
            })?;
            rest(attribute)?;
            Ok(first)
        })?;
        reader.finish(read)
    }
}
