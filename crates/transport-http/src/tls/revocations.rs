//! Lists of certificates that were revoked before their time (RFC 5280 §5).

use super::{TlsError, files::broken};
use rustls::{
    CertRevocationListError,
    pki_types::{CertificateRevocationListDer, pem::PemObject},
};
use std::path::Path;
use x509_parser::{prelude::FromDer, revocation_list::CertificateRevocationList};

/// The lists in a file, one at least.
pub(super) fn lists(
    file: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateRevocationListDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| broken(file, &error))?;
    if found.is_empty() {
        return Err(TlsError::NoRevocations {
            file: file.to_owned(),
        });
    }
    Ok(found)
}

/// Time at which the first of `lists` expires, in seconds since 1970.
pub(super) fn until(
    file: &Path,
    lists: &[CertificateRevocationListDer<'static>],
) -> Result<u64, TlsError> {
    let unusable = |why: String| TlsError::Revocations {
        file: file.to_owned(),
        why,
    };
    let mut first = u64::MAX;
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list)
            .map_err(|error| unusable(error.to_string()))?;
        let Some(next) = list.next_update() else {
            return Err(unusable("it does not say when it expires".to_owned()));
        };
        first = first.min(u64::try_from(next.timestamp()).unwrap_or(0));
    }
    Ok(first)
}

/// Description of what is wrong with a list, in words where the operator can mend it.
pub(super) fn reason(error: &CertRevocationListError) -> String {
    match error {
        CertRevocationListError::UnsupportedCrlVersion => {
            "it is not of version 2; openssl makes those of authorities that have a `crlnumber`"
                .to_owned()
        }
        CertRevocationListError::UnsupportedDeltaCrl => {
            "it has changes only; the whole list is needed".to_owned()
        }
        CertRevocationListError::UnsupportedIndirectCrl => {
            "it is not from the authority that issued the certificates".to_owned()
        }
        error => format!("{error:?}"),
    }
}
