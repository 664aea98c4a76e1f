//! Signature of a token: RFC 5652, section 5.4, with what RFC 3161 adds.

use crate::{Authorities, SHA256, TST_INFO, TimestampError, content::CertificateDigest};
use cms::{
    cert::{CertificateChoices, x509::Certificate},
    signed_data::{SignedData, SignerIdentifier, SignerInfo},
};
use der::{
    Any, Decode, Encode,
    asn1::{ObjectIdentifier, OctetStringRef},
};
use ring::digest;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use std::time::Duration;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, ring as algorithms};

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

const CONTENT_TYPE: ObjectIdentifier = oid("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = oid("1.2.840.113549.1.9.4");
const SIGNING_CERTIFICATE: ObjectIdentifier = oid("1.2.840.113549.1.9.16.2.12");
const SIGNING_CERTIFICATE_V2: ObjectIdentifier = oid("1.2.840.113549.1.9.16.2.47");
const SHA384: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = oid("2.16.840.1.101.3.4.2.3");
const RSA: ObjectIdentifier = oid("1.2.840.113549.1.1.1");

/// `id-kp-timeStamping` as the content of an object identifier.
const TIME_STAMPING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 8];

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

/// Verifies the signature of this content at this time.
pub(crate) fn verify(
    signed: &SignedData,
    content: &[u8],
    at: Duration,
    authorities: &Authorities,
) -> Result<(), TimestampError> {
    let [signer] = signed.signer_infos.0.as_slice() else {
        return Err(TimestampError::Wrong("the token has not one signature"));
    };
    let hash = hash(&signer.digest_alg.oid)?;
    if attribute(signer, CONTENT_TYPE)?.decode_as::<ObjectIdentifier>()? != TST_INFO {
        return Err(TimestampError::Wrong("the signature is of something else"));
    }
    let said = attribute(signer, MESSAGE_DIGEST)?;
    let said: OctetStringRef<'_> = said.decode_as()?;
    if said.as_bytes() != digest::digest(hash, content).as_ref() {
        return Err(TimestampError::Wrong("the signature is of other content"));
    }
    let certificates = certificates(signed, authorities)?;
    let own = certificates
        .iter()
        .map(|it| is_of(signer, it).map(|is| (is, it)))
        .find(|found| !matches!(found, Ok((false, _))));
    let Some((_, own)) = own.transpose()? else {
        return Err(TimestampError::Wrong(
            "the certificate of the signature is not there",
        ));
    };
    let message = signer.signed_attrs.to_der()?;
    let own = EndEntityCert::try_from(own).map_err(TimestampError::Signature)?;
    let is_signed = algorithms_of(signer).into_iter().any(|algorithm| {
        let signature = signer.signature.as_bytes();
        own.verify_signature(algorithm, &message, signature).is_ok()
    });
    if !is_signed {
        return Err(TimestampError::Signature(
            Error::InvalidSignatureForPublicKey,
        ));
    }
    let anchors = authorities.0.iter().map(webpki::anchor_from_trusted_cert);
    let anchors: Result<Vec<_>, _> = anchors.collect();
    own.verify_for_usage(
        ALL_VERIFICATION_ALGS,
        &anchors.map_err(TimestampError::Signature)?,
        &certificates,
        UnixTime::since_unix_epoch(at),
        KeyUsage::required(TIME_STAMPING),
        None,
        None,
    )
    .map_err(TimestampError::Signature)?;
    Ok(())
}

/// The certificates of the token, and those that are configured.
fn certificates(
    signed: &SignedData,
    authorities: &Authorities,
) -> Result<Vec<CertificateDer<'static>>, TimestampError> {
    let mut certificates = Vec::new();
    for choice in signed.certificates.iter().flat_map(|all| all.0.iter()) {
        if let CertificateChoices::Certificate(certificate) = choice {
            certificates.push(certificate.to_der()?.into());
        }
    }
    certificates.extend(authorities.0.iter().cloned());
    Ok(certificates)
}

/// Returns true if a certificate is the one that the signature names, by its digest (RFC 3161, section 2.4.2) and
/// by its issuer and number.
fn is_of(
    signer: &SignerInfo,
    certificate: &CertificateDer<'static>,
) -> Result<bool, TimestampError> {
    let named = match attribute(signer, SIGNING_CERTIFICATE_V2) {
        Ok(named) => CertificateDigest::read(&named.to_der()?, true)?,
        Err(_) => {
            let named = attribute(signer, SIGNING_CERTIFICATE)?;
            CertificateDigest::read(&named.to_der()?, false)?
        }
    };
    let hash = match &named.algorithm {
        Some(algorithm) => hash(algorithm)?,
        None => &digest::SHA1_FOR_LEGACY_USE_ONLY,
    };
    if digest::digest(hash, certificate).as_ref() != named.digest {
        return Ok(false);
    }
    Ok(match &signer.sid {
        SignerIdentifier::IssuerAndSerialNumber(named) => {
            let certificate = Certificate::from_der(certificate)?.tbs_certificate;
            certificate.issuer == named.issuer && certificate.serial_number == named.serial_number
        }
        // The digest says more.
        SignerIdentifier::SubjectKeyIdentifier(_) => true,
    })
}

/// The one value of an attribute that is signed.
fn attribute(signer: &SignerInfo, name: ObjectIdentifier) -> Result<&Any, TimestampError> {
    let attributes = signer.signed_attrs.iter().flat_map(|all| all.iter());
    let mut found = attributes.filter(|it| it.oid == name);
    match (found.next(), found.next()) {
        (Some(attribute), None) => match attribute.values.as_slice() {
            [value] => Ok(value),
            _ => Err(TimestampError::Wrong("an attribute has not one value")),
        },
        _ => Err(TimestampError::Wrong("the signature lacks an attribute")),
    }
}

fn hash(algorithm: &ObjectIdentifier) -> Result<&'static digest::Algorithm, TimestampError> {
    match *algorithm {
        SHA256 => Ok(&digest::SHA256),
        SHA384 => Ok(&digest::SHA384),
        SHA512 => Ok(&digest::SHA512),
        _ => Err(TimestampError::Wrong(
            "the digest is by another algorithm than SHA-256, SHA-384 and SHA-512",
        )),
    }
}

/// Algorithms that a signature may be by; the key decides which.
fn algorithms_of(signer: &SignerInfo) -> Vec<Algorithm> {
    let of = signer.signature_algorithm.oid;
    let digest = signer.digest_alg.oid;
    let rows: [(ObjectIdentifier, ObjectIdentifier, &[Algorithm]); 6] = [
        (
            SHA256,
            oid("1.2.840.113549.1.1.11"),
            &[algorithms::RSA_PKCS1_2048_8192_SHA256],
        ),
        (
            SHA384,
            oid("1.2.840.113549.1.1.12"),
            &[algorithms::RSA_PKCS1_2048_8192_SHA384],
        ),
        (
            SHA512,
            oid("1.2.840.113549.1.1.13"),
            &[algorithms::RSA_PKCS1_2048_8192_SHA512],
        ),
        (
            SHA256,
            oid("1.2.840.10045.4.3.2"),
            &[algorithms::ECDSA_P256_SHA256, algorithms::ECDSA_P384_SHA256],
        ),
        (
            SHA384,
            oid("1.2.840.10045.4.3.3"),
            &[algorithms::ECDSA_P256_SHA384, algorithms::ECDSA_P384_SHA384],
        ),
        (SHA512, oid("1.3.101.112"), &[algorithms::ED25519]),
    ];
    let fits = |row: &&(ObjectIdentifier, ObjectIdentifier, &[Algorithm])| {
        // RSA may be named without its digest (RFC 3370, section 3.2).
        digest == row.0 && (of == row.1 || (of == RSA && row.1.parent() == RSA.parent()))
    };
    let rows = rows.iter().filter(fits);
    rows.flat_map(|row| row.2.iter().copied()).collect()
}
