//! Keys in files, in the formats that `openssl genpkey -algorithm ed25519` writes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER;
use ring::{
    rand::SystemRandom,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use sha2::{Digest as _, Sha256};
use sqlite_file::private;
use std::{
    ffi::OsString,
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The most bytes of a key's file.
const MAX_FILE_BYTES: u64 = 4096;

/// Bytes before the 32 bytes of a public Ed25519 key (RFC 8410).
const PUBLIC_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

const PRIVATE_LABEL: &str = "PRIVATE KEY";
const PUBLIC_LABEL: &str = "PUBLIC KEY";

/// Signs checkpoints.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// Tells who signed checkpoints.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// Reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read, or written.
    #[error("the key {} cannot be read or written", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file has no key of the kind that is wanted.
    #[error("{} holds no {wanted} Ed25519 key in PEM", path.display())]
    NotAKey {
        /// Path of the file.
        path: PathBuf,
        /// Kind of key that is wanted: private or public.
        wanted: &'static str,
    },
    /// Others than its owner may read the private key.
    #[error("the private key {} must be readable by its owner alone", .0.display())]
    Exposed(PathBuf),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl SigningKey {
    /// Makes a key: the private one in a new file at `path`, for its owner alone, and the public
    /// one beside it, in a file of the same name and `.pub`.
    ///
    /// # Errors
    ///
    /// [`KeyError`]; a file that is there already is left as it is.
    pub fn generate(path: &Path) -> Result<Self, KeyError> {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::Random)?;
        let key = Self::from_pkcs8(document.as_ref()).ok_or(KeyError::Random)?;
        let public_path = Self::public_path(path);
        if public_path.exists() {
            let source = io::ErrorKind::AlreadyExists.into();
            return Err(KeyError::File {
                path: public_path,
                source,
            });
        }
        write(path, &pem(PRIVATE_LABEL, document.as_ref()), true)?;
        write(&public_path, &key.public.to_pem(), false)?;
        Ok(key)
    }

    /// Reads a private key.
    ///
    /// # Errors
    ///
    /// [`KeyError`], also when others may read the file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(path)
                .map_err(failed(path))?
                .permissions()
                .mode();
            if mode & 0o077 != 0 {
                return Err(KeyError::Exposed(path.to_owned()));
            }
        }
        from_pem(PRIVATE_LABEL, &text)
            .and_then(|bytes| Self::from_pkcs8(&bytes))
            .ok_or(KeyError::NotAKey {
                path: path.to_owned(),
                wanted: "private",
            })
    }

    /// Path at which [`SigningKey::generate`] puts the public key to the private one at `path`.
    #[must_use]
    pub fn public_path(path: &Path) -> PathBuf {
        let mut name = OsString::from(path);
        name.push(".pub");
        name.into()
    }

    /// The key that tells its signatures.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    fn from_pkcs8(bytes: &[u8]) -> Option<Self> {
        // Keys made elsewhere need not have the public key inside.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair, public })
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        let signature = self.pair.sign(message);
        let bytes = signature.as_ref().try_into();
        bytes.expect("an Ed25519 signature has 64 bytes")
    }
}

impl PublicKey {
    /// Reads a public key.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        Self::from_pem(&text).ok_or(KeyError::NotAKey {
            path: path.to_owned(),
            wanted: "public",
        })
    }

    /// Reads a public key from the text of its file.
    #[must_use]
    pub fn from_pem(text: &str) -> Option<Self> {
        let bytes = from_pem(PUBLIC_LABEL, text)?;
        let key = bytes.strip_prefix(&PUBLIC_PREFIX)?;
        key.try_into().map(Self).ok()
    }

    /// The text of its file.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem(PUBLIC_LABEL, &[&PUBLIC_PREFIX[..], &self.0].concat())
    }

    /// Name of the key in signatures: the first half of its SHA-256 digest.
    #[must_use]
    pub fn name(&self) -> [u8; 16] {
        let digest: [u8; 32] = Sha256::digest(self.0).into();
        let (name, _) = digest.split_first_chunk().expect("a half is shorter");
        *name
    }

    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Display for PublicKey {
    /// Writes the name of the key, in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.name()))
    }
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

fn from_pem(label: &str, text: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).ok()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> KeyError {
    let path = path.to_owned();
    move |source| KeyError::File {
        path: path.clone(),
        source,
    }
}

fn read(path: &Path) -> Result<String, KeyError> {
    regular_file::read_text(path, MAX_FILE_BYTES).map_err(failed(path))
}

fn write(path: &Path, text: &str, secret: bool) -> Result<(), KeyError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if secret {
        private(&mut options);
    }
    options
        .open(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(failed(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.key");
        let key = SigningKey::generate(&path).unwrap();
        assert_eq!(SigningKey::load(&path).unwrap().public(), key.public());
        let public_path = SigningKey::public_path(&path);
        assert_eq!(&PublicKey::load(&public_path).unwrap(), key.public());
        assert!(matches!(
            SigningKey::generate(&path),
            Err(KeyError::File { .. })
        ));
        fs::remove_file(&path).unwrap();
        assert!(matches!(
            SigningKey::generate(&path),
            Err(KeyError::File { path, .. }) if path == public_path
        ));
        assert!(matches!(
            SigningKey::load(&public_path),
            Err(KeyError::NotAKey {
                wanted: "private",
                ..
            } | KeyError::Exposed(_))
        ));
    }

    #[cfg(unix)]
    #[test]
    fn a_private_key_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.key");
        SigningKey::generate(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SigningKey::load(&path), Err(KeyError::Exposed(_))));
    }

    /// A key that `openssl genpkey -algorithm ed25519` made, and what `openssl pkey -pubout` says.
    #[test]
    fn keys_of_openssl_are_known() {
        let private = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEIBDg81zlJJkY93vbGioMXlrh+5o0qKNWgQz1X20rcqjo\n\
            -----END PRIVATE KEY-----\n";
        let public = "-----BEGIN PUBLIC KEY-----\n\
            MCowBQYDK2VwAyEAEvrzicPIMq7T868fcQ8tIAyrekvqLcAdjhDxCr1B/mc=\n\
            -----END PUBLIC KEY-----\n";
        let bytes = from_pem(PRIVATE_LABEL, private).unwrap();
        let key = SigningKey::from_pkcs8(&bytes).unwrap();
        assert_eq!(key.public().to_pem(), public);
        assert_eq!(PublicKey::from_pem(public).as_ref(), Some(key.public()));
        for text in [
            "",
            private,
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        ] {
            assert_eq!(PublicKey::from_pem(text), None);
        }
    }
}
