//! The signature behind the archive of a bundle: `MCPB_SIG_V1`, a length, a detached signature in the form of PKCS #7
//! (RFC 5652), `MCPB_SIG_END`.
//!
//! That a signature fits says that the file is as the holder of the key has left it. Who that is, only the certificate
//! says, which is not verified here: its digest is for the operator to compare.

use data_encoding::HEXLOWER;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

use crate::reading::shown;

const BEGINNING: &[u8] = b"MCPB_SIG_V1";
const END: &[u8] = b"MCPB_SIG_END";
/// The longest signature, in bytes.
const MAX_BYTES: usize = 64 * 1024;

const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Signature of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// There is none.
    None,
    /// There is one of a kind that is not verified here, for this reason.
    Unverified(String),
    /// There is one, and it fits the file.
    Fits(Signer),
}

/// Holder of the key that a bundle was signed with, as the certificate in the signature says. Nobody vouches for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Common name of the subject.
    pub name: String,
    /// Common name of the issuer.
    pub issuer: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("not signed"),
            Self::Unverified(why) => write!(f, "signed, and NOT verified: {why}"),
            Self::Fits(signer) => {
                let issuer = match signer.issuer == signer.name {
                    true => "itself".to_owned(),
                    false => format!("`{}`", signer.issuer),
                };
                write!(
                    f,
                    "signed, and as its signer has left it; the signer calls itself `{}` (certificate by {issuer}, \
                     SHA-256 {}), which is not verified here",
                    signer.name, signer.fingerprint
                )
            }
        }
    }
}

/// Length of the archive before the signature, and the signature. The error says why it does not fit.
pub(super) fn read(file: &[u8]) -> Result<(usize, Signature), String> {
    let Some(body) = file.strip_suffix(END) else {
        return Ok((file.len(), Signature::None));
    };
    let lowest = body.len().saturating_sub(MAX_BYTES);
    let found = (lowest..body.len()).rev().find(|&at| {
        let rest = &body[at..];
        let length = rest
            .strip_prefix(BEGINNING)
            .and_then(|it| it.first_chunk::<4>());
        let length = length.map(|it| u32::from_le_bytes(*it) as usize);
        length == Some(rest.len().wrapping_sub(BEGINNING.len() + 4))
    });
    let at = found.ok_or("it has the end of a signature and no beginning")?;
    let (content, signed) = (&body[..at], &body[at + BEGINNING.len() + 4..]);
    match verified(content, signed) {
        Ok(signer) => Ok((at, Signature::Fits(signer))),
        Err(Fault::Unknown(why)) => Ok((at, Signature::Unverified(why.to_owned()))),
        Err(Fault::Wrong(why)) => Err(why.to_owned()),
    }
}

/// Fault of a signature.
enum Fault {
    /// A form or an algorithm that is not known here.
    Unknown(&'static str),
    /// A digest or a signature that does not fit.
    Wrong(&'static str),
}

/// An element of DER: its tag, its content, and all of its bytes.
#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// Takes the first element off.
fn next<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let whole = *rest;
    let (&tag, behind) = whole.split_first()?;
    // Tags of several bytes are in nothing that is read here.
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, behind) = behind.split_first()?;
    let (length, behind) = match first {
        ..=0x7f => (usize::from(first), behind),
        0x81..=0x84 => {
            let digits = usize::from(first & 0x7f);
            let bytes = behind.get(..digits)?;
            let length = bytes.iter().fold(0, |sum, it| sum << 8 | usize::from(*it));
            (length, &behind[digits..])
        }
        _ => return None,
    };
    let content = behind.get(..length)?;
    let (whole, behind) = whole.split_at(whole.len() - behind.len() + length);
    *rest = behind;
    Some(Element {
        tag,
        content,
        whole,
    })
}

/// The elements in an element.
fn inner<'a>(element: Element<'a>) -> Option<Vec<Element<'a>>> {
    let mut rest = element.content;
    let mut found = Vec::new();
    while !rest.is_empty() {
        found.push(next(&mut rest)?);
    }
    Some(found)
}

fn verified(content: &[u8], signed: &[u8]) -> Result<Signer, Fault> {
    let form = || Fault::Unknown("it has a form that is not read here");
    let mut rest = signed;
    let outer = inner(next(&mut rest).ok_or_else(form)?).ok_or_else(form)?;
    let [kind, wrapped] = &outer[..] else {
        return Err(form());
    };
    if kind.content != SIGNED_DATA {
        return Err(form());
    }
    let mut wrapped = wrapped.content;
    let data = inner(next(&mut wrapped).ok_or_else(form)?).ok_or_else(form)?;
    let certificates = data.iter().find(|it| it.tag == 0xa0).ok_or_else(form)?;
    let certificates = inner(*certificates).ok_or_else(form)?;
    let signers = inner(*data.last().ok_or_else(form)?).ok_or_else(form)?;
    let [signer] = &signers[..] else {
        return Err(Fault::Unknown("it has several signers, or none"));
    };
    // Version, issuer and number, digest, signed attributes, algorithm, signature.
    let parts = inner(*signer).ok_or_else(form)?;
    let [_, holder, digest, attributes, algorithm, signature, ..] = &parts[..] else {
        return Err(form());
    };
    if attributes.tag != 0xa0 || first_of(*digest) != Some(SHA256) {
        return Err(Fault::Unknown(
            "it is made otherwise than with SHA-256 over attributes",
        ));
    }
    let of_attributes = inner(*attributes).ok_or_else(form)?;
    let mut digests = of_attributes.iter().filter_map(|it| {
        let parts = inner(*it)?;
        let [name, values] = &parts[..] else {
            return None;
        };
        let mut values = values.content;
        (name.content == MESSAGE_DIGEST).then(|| next(&mut values))?
    });
    let told = digests.next().ok_or_else(form)?;
    if digests.next().is_some() || told.content != Sha256::digest(content).as_slice() {
        return Err(Fault::Wrong("the digest in it is that of another file"));
    }
    let certificate = certificates
        .iter()
        .find_map(|it| Certificate::of(*it).filter(|it| it.is_of(*holder)))
        .ok_or(Fault::Unknown("it has no certificate of its signer"))?;
    let is_rsa = first_of(*algorithm).is_some_and(|it| it == RSA || it == RSA_SHA256);
    let key = certificate
        .key
        .filter(|_| is_rsa)
        .ok_or(Fault::Unknown("its key is none of RSA"))?;
    // The attributes are signed as the set that they are, and not under the tag that they have here.
    let mut signed_bytes = attributes.whole.to_vec();
    signed_bytes[0] = 0x31;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
        .verify(&signed_bytes, signature.content)
        .map_err(|_| Fault::Wrong("it was not made with the key of its certificate"))?;
    Ok(Signer {
        name: common_name(certificate.subject),
        issuer: common_name(certificate.issuer),
        fingerprint: HEXLOWER.encode(&Sha256::digest(certificate.whole)),
    })
}

/// The name of an algorithm.
fn first_of(algorithm: Element<'_>) -> Option<&[u8]> {
    let mut rest = algorithm.content;
    next(&mut rest).map(|it| it.content)
}

/// Parts of a certificate (RFC 5280 §4.1).
struct Certificate<'a> {
    whole: &'a [u8],
    number: &'a [u8],
    issuer: Element<'a>,
    subject: Element<'a>,
    /// The key, if it is one of RSA.
    key: Option<&'a [u8]>,
}

impl<'a> Certificate<'a> {
    fn of(element: Element<'a>) -> Option<Self> {
        let mut rest = element.content;
        let mut parts = inner(next(&mut rest)?)?;
        if parts.first()?.tag == 0xa0 {
            parts.remove(0);
        }
        let [number, _, issuer, _, subject, key, ..] = parts[..] else {
            return None;
        };
        let key = inner(key)?;
        let [algorithm, bits] = key[..] else {
            return None;
        };
        Some(Self {
            whole: element.whole,
            number: number.content,
            issuer,
            subject,
            // The first byte counts unused bits.
            key: bits
                .content
                .strip_prefix(&[0])
                .filter(|_| first_of(algorithm) == Some(RSA)),
        })
    }

    fn is_of(&self, holder: Element<'_>) -> bool {
        let parts = inner(holder);
        parts.is_some_and(|it| match &it[..] {
            [issuer, number] => issuer.whole == self.issuer.whole && number.content == self.number,
            _ => false,
        })
    }
}

fn common_name(name: Element<'_>) -> String {
    let sets = inner(name).unwrap_or_default();
    let pairs = sets.into_iter().filter_map(inner).flatten();
    let mut names = pairs.filter_map(|pair| {
        let parts = inner(pair)?;
        let [kind, value] = &parts[..] else {
            return None;
        };
        (kind.content == COMMON_NAME).then(|| String::from_utf8_lossy(value.content).into_owned())
    });
    names
        .next()
        .map_or_else(|| "nobody".to_owned(), |it| shown(&it))
}
