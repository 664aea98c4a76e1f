use super::{TlsError, revocations};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// Paths of certificates and keys, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and whatever stands between it and what clients trust.
    pub certificate: PathBuf,
    /// Private key of that certificate.
    pub key: PathBuf,
    /// Authorities that issue the certificates of clients; without them no certificates are asked
    /// for.
    pub client_authorities: Option<PathBuf>,
    /// Revoked ones of those certificates: one list (CRL) or several. With it, each authority in
    /// the chain of a client's certificate must have a list that is valid at the time.
    pub client_revocations: Option<PathBuf>,
    /// True to refuse clients without a certificate; otherwise they may have one.
    pub verify_client: bool,
}

/// Content of the files.
pub(crate) struct Loaded {
    pub(super) config: Arc<ServerConfig>,
    /// Seconds since 1970.
    pub(super) expires_at: u64,
    /// Time at which the first list of revoked certificates expires, in seconds since 1970.
    pub(super) revocations_until: Option<u64>,
    /// Verifier of the certificates of clients.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    print: u64,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("expires_at", &self.expires_at)
            .field("revocations_until", &self.revocations_until)
            .finish_non_exhaustive()
    }
}

impl Loaded {
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

/// No certificate or key is longer, even with all authorities of the world.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

const DAY: u64 = 24 * 60 * 60;

impl TlsFiles {
    pub(super) fn load(&self, now: SystemTime) -> Result<Loaded, TlsError> {
        let certificate = read(&self.certificate)?;
        let key = self.read_key()?;
        let authorities = match &self.client_authorities {
            Some(file) => Some((file, read(file)?)),
            None if self.verify_client => return Err(TlsError::NoAuthorities),
            None => None,
        };
        let revocations = match (&self.client_revocations, &authorities) {
            (Some(file), Some(_)) => Some((file, read(file)?)),
            (Some(file), None) => {
                let file = file.clone();
                return Err(TlsError::RevocationsOfNobody { file });
            }
            (None, _) => None,
        };
        let mut hasher = DefaultHasher::new();
        (&certificate, &key).hash(&mut hasher);
        for read in [&authorities, &revocations] {
            read.as_ref().map(|(_, bytes)| bytes).hash(&mut hasher);
        }
        let print = hasher.finish();

        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let chain = certificates(&self.certificate, &certificate)?;
        let expires_at = validity(&self.certificate, &chain, now)?;
        let key = private_key(&self.key, &key)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions");
        let lists = match &revocations {
            Some((file, bytes)) => revocations::lists(file, bytes)?,
            None => Vec::new(),
        };
        let revocations_until = match &revocations {
            Some((file, _)) => Some(revocations::until(file, &lists)?),
            None => None,
        };
        let verifier = match &authorities {
            Some((file, bytes)) => Some(self.verifier(file, bytes, lists, provider)?),
            None => None,
        };
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => TlsError::Mismatch {
                    certificate: self.certificate.clone(),
                    key: self.key.clone(),
                },
                rustls::Error::InvalidCertificate(why) => TlsError::Certificate {
                    file: self.certificate.clone(),
                    why: format!("{why:?}"),
                },
                error => TlsError::Key {
                    file: self.key.clone(),
                    why: error.to_string(),
                },
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Loaded {
            config: Arc::new(config),
            expires_at,
            revocations_until,
            verifier,
            print,
        })
    }

    fn verifier(
        &self,
        file: &Path,
        bytes: &[u8],
        revocations: Vec<CertificateRevocationListDer<'static>>,
        provider: Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let unusable = |why: String| TlsError::Certificate {
            file: file.to_owned(),
            why,
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(file, bytes)? {
            roots
                .add(certificate)
                .map_err(|error| unusable(error.to_string()))?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if self.verify_client {
            builder
        } else {
            builder.allow_unauthenticated()
        };
        // Without lists nothing is looked up. With some, who is on none is refused if no list could
        // tell, and a list that has expired tells nothing.
        let builder = builder
            .with_crls(revocations)
            .enforce_revocation_expiration();
        builder
            .build()
            .map_err(|error| match (error, &self.client_revocations) {
                (VerifierBuilderError::InvalidCrl(why), Some(file)) => TlsError::Revocations {
                    file: file.clone(),
                    why: revocations::reason(&why),
                },
                (error, _) => unusable(error.to_string()),
            })
    }

    fn read_key(&self) -> Result<Vec<u8>, TlsError> {
        let bytes = read(&self.key)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The group may: that is how keys are shared with those who need them.
            if let Ok(metadata) = std::fs::metadata(&self.key)
                && metadata.permissions().mode() & 0o007 != 0
            {
                return Err(TlsError::ExposedKey {
                    file: self.key.clone(),
                    mode: metadata.permissions().mode() & 0o7777,
                });
            }
        }
        Ok(bytes)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Read {
        file: file.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let opened = regular_file::open(file).map_err(failed)?;
    opened
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if MAX_BYTES < bytes.len() as u64 {
        return Err(TlsError::TooLong {
            file: file.to_owned(),
            max: MAX_BYTES,
        });
    }
    Ok(bytes)
}

fn certificates(file: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|error| broken(file, &error))?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate {
            file: file.to_owned(),
        });
    }
    Ok(found)
}

fn private_key(file: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    if has("BEGIN ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED") {
        return Err(TlsError::EncryptedKey {
            file: file.to_owned(),
        });
    }
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey {
            file: file.to_owned(),
        },
        error => broken(file, &error),
    })
}

pub(super) fn broken(file: &Path, error: &pem::Error) -> TlsError {
    // What it says of a section that does not end is a list of bytes.
    let why = match error {
        pem::Error::MissingSectionEnd { .. } => "a section does not end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a section does not begin as it must".to_owned(),
        error => error.to_string(),
    };
    TlsError::Pem {
        file: file.to_owned(),
        why,
    }
}

/// Time at which the first certificate of `chain` expires, in seconds since 1970.
fn validity(file: &Path, chain: &[CertificateDer<'_>], now: u64) -> Result<u64, TlsError> {
    let mut first = u64::MAX;
    for certificate in chain {
        let (_, certificate) =
            X509Certificate::from_der(certificate).map_err(|error| TlsError::Certificate {
                file: file.to_owned(),
                why: error.to_string(),
            })?;
        let validity = certificate.validity();
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        let begins = seconds(validity.not_before.timestamp());
        let ends = seconds(validity.not_after.timestamp());
        if ends < now {
            return Err(TlsError::Expired {
                file: file.to_owned(),
                days: (now - ends) / DAY,
            });
        }
        // Clocks differ a little, and certificates are used as soon as they are made.
        if now + DAY < begins {
            return Err(TlsError::NotYetValid {
                file: file.to_owned(),
                days: (begins - now) / DAY,
            });
        }
        first = first.min(ends);
    }
    Ok(first)
}
