use std::{io, path::PathBuf};

/// Reason why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file is longer than certificates and keys are.
    #[error("{} is longer than {max} bytes, so it is no certificate or key", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// Most bytes that are read.
        max: u64,
    },
    /// A file has something in PEM that is broken.
    #[error("{} is not PEM, or damaged: {why}", file.display())]
    Pem {
        /// The file.
        file: PathBuf,
        /// Description of what is wrong.
        why: String,
    },
    /// There is no certificate where one is wanted.
    #[error(
        "{} has no certificate; it must have the chain in PEM, that of the server first",
        file.display()
    )]
    NoCertificate {
        /// The file.
        file: PathBuf,
    },
    /// There is no private key where one is wanted.
    #[error("{} has no private key; it must have one in PEM (PKCS#8, PKCS#1 or SEC1)", file.display())]
    NoKey {
        /// The file.
        file: PathBuf,
    },
    /// The private key is encrypted.
    #[error(
        "the private key in {} is encrypted; write it without a passphrase, readable by the server alone",
        file.display()
    )]
    EncryptedKey {
        /// The file.
        file: PathBuf,
    },
    /// Others than the owner and the group can use the private key.
    #[error(
        "every user of this machine may read or change the private key in {} (mode {mode:04o}); use `chmod 600`",
        file.display()
    )]
    ExposedKey {
        /// The file.
        file: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// The key is that of another certificate.
    #[error(
        "the private key in {} is not that of the first certificate in {}; the server's own must come first",
        key.display(), certificate.display()
    )]
    Mismatch {
        /// The file with the chain.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// A certificate that is not valid any more.
    #[error("a certificate in {} has expired, {days} days ago; renew it", file.display())]
    Expired {
        /// The file.
        file: PathBuf,
        /// For how many days.
        days: u64,
    },
    /// A certificate that is not yet valid.
    #[error(
        "a certificate in {} is valid only in {days} days; is the clock right?",
        file.display()
    )]
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// In how many days it is.
        days: u64,
    },
    /// A certificate that cannot be understood, or an authority that is none.
    #[error("a certificate in {} cannot be used: {why}", file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// Reason.
        why: String,
    },
    /// A key of a kind that is not supported.
    #[error("the private key in {} cannot be used: {why}", file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// Reason.
        why: String,
    },
    /// There is no list of revoked certificates where some are wanted.
    #[error(
        "{} has no list of revoked certificates; it must have one in PEM (X509 CRL) of each authority",
        file.display()
    )]
    NoRevocations {
        /// The file.
        file: PathBuf,
    },
    /// A list of revoked certificates that cannot be used.
    #[error("a list of revoked certificates in {} cannot be used: {why}", file.display())]
    Revocations {
        /// The file.
        file: PathBuf,
        /// Reason.
        why: String,
    },
    /// A list of revoked certificates that should have been replaced by now.
    #[error(
        "a list of revoked certificates in {} has expired, {hours} hours ago; nobody can be told from \
         who was revoked since: put the authority's newest list there",
        file.display()
    )]
    RevocationsExpired {
        /// The file.
        file: PathBuf,
        /// For how many hours.
        hours: u64,
    },
    /// Lists of revoked certificates without authorities that they could be of.
    #[error("{} has revoked client certificates, and no file says which authorities issue them", file.display())]
    RevocationsOfNobody {
        /// The file.
        file: PathBuf,
    },
    /// Client certificates are asked for, and no authority is named that issues them.
    #[error("client certificates are wanted, and no file says which authorities issue them")]
    NoAuthorities,
}
