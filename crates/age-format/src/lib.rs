//! Files encrypted for recipients, in the [format of age](https://age-encryption.org/v1): what `age`, `rage` and their
//! kind read and write.
//!
//! There are X25519 recipients (`age1…`) and identities (`AGE-SECRET-KEY-1…`) alone: no passphrases, no plugins, no
//! keys of SSH, no armor. What a reader gets was authenticated before, chunk by chunk, and a file that was cut off, or whose
//! chunks were put in another order, ends with an error and not with a shorter content.
//!
//! ```
//! use age_format::{Identity, Recipient, decrypt, encrypt, identities};
//! use std::io::{Read as _, Write as _};
//!
//! let identity = Identity::generate()?;
//! let recipient: Recipient = identity.recipient().to_string().parse()?;
//! let mut writer = encrypt(&[recipient], Vec::new())?;
//! writer.write_all(b"the record")?;
//! let file = writer.finish()?;
//!
//! let identities = identities(&identity.text())?;
//! let mut content = Vec::new();
//! decrypt(&identities, &file[..])?.read_to_end(&mut content)?;
//! assert_eq!(content, b"the record");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bech32::{Bech32, Hrp, primitives::decode::CheckedHrpstring};
use ring::{
    aead::{self, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
    hmac::{self, HMAC_SHA256},
    rand::{SecureRandom as _, SystemRandom},
};
use std::{
    fmt,
    io::{self, BufRead, Read, Write},
    str::FromStr,
};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

const VERSION: &str = "age-encryption.org/v1";
const X25519: &str = "X25519";
const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const RECIPIENT: &str = "age";
const IDENTITY: &str = "AGE-SECRET-KEY-";

/// Columns of a line of Base64.
const COLUMNS: usize = 64;
/// Most bytes of a header that is read: some hundred recipients.
const MAX_HEADER_BYTES: u64 = 64 * 1024;
const FILE_KEY: usize = 16;
const TAG: usize = 16;
const NONCE: usize = 16;
const CHUNK: usize = 64 * 1024;

/// A public key that files are encrypted for, `age1…`.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipient([u8; 32]);

/// A private key that opens files, `AGE-SECRET-KEY-1…`. It is wiped from memory when it is dropped.
#[derive(Clone)]
pub struct Identity(StaticSecret);

/// Key of one file, wiped from memory when it is dropped.
#[derive(Clone)]
pub struct FileKey(Zeroizing<[u8; FILE_KEY]>);

/// Reason why a text is no recipient. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipientError {
    /// A private key.
    #[error(
        "it is an identity, which is secret, and not a recipient, which begins with `age1`: `age-keygen -y` tells the \
         recipient of an identity"
    )]
    Identity,
    /// Text that begins as no recipient does.
    #[error("it does not begin with `age1`, as a recipient of age with an X25519 key does")]
    Other,
    /// A misspelt recipient, or one of another kind.
    #[error(
        "it is misspelt, or cut off, or of another kind than X25519: its checksum or its length is wrong"
    )]
    Misspelt,
}

/// Reason why a text has no identities. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A line that is no identity.
    #[error(
        "line {0} is no identity of age with an X25519 key, `AGE-SECRET-KEY-1…`, nor a comment: it is misspelt, cut off or of \
         another kind"
    )]
    Line(usize),
    /// No line with an identity.
    #[error("there is no identity, `AGE-SECRET-KEY-1…`, as `age-keygen` makes one")]
    None,
}

/// Failure to encrypt or decrypt a file.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The file cannot be read or written.
    #[error("the file cannot be read or written")]
    Io(#[from] io::Error),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    Randomness,
    /// There are no recipients, or one is no key at all.
    #[error("there is no recipient, or one that nothing can be encrypted for")]
    Recipients,
    /// The header is not one of age.
    #[error("the file does not begin as files of age do")]
    Header,
    /// No identity opens the file.
    #[error("none of the identities opens the file")]
    NoMatch,
    /// The header was changed.
    #[error("the header of the file was changed")]
    Mac,
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(text: &str) -> Result<Self, RecipientError> {
        if text.to_ascii_uppercase().starts_with(IDENTITY) {
            return Err(RecipientError::Identity);
        }
        if !text.starts_with("age1") {
            return Err(RecipientError::Other);
        }
        let bytes = decoded(RECIPIENT, text).ok_or(RecipientError::Misspelt)?;
        Ok(Self(*bytes))
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoded(RECIPIENT, &self.0))
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recipient({self})")
    }
}

impl Identity {
    /// Makes a new identity.
    ///
    /// # Errors
    ///
    /// [`AgeError::Randomness`].
    pub fn generate() -> Result<Self, AgeError> {
        let bytes: Zeroizing<[u8; 32]> = random()?;
        Ok(Self(StaticSecret::from(*bytes)))
    }

    /// Recipient whose files it opens.
    #[must_use]
    pub fn recipient(&self) -> Recipient {
        Recipient(PublicKey::from(&self.0).to_bytes())
    }

    /// The identity as text.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let lower = Zeroizing::new(encoded(IDENTITY, self.0.as_bytes()));
        Zeroizing::new(lower.to_ascii_uppercase())
    }

    /// The file key of a stanza for this identity; `None` if it is for another one.
    fn unwrap(&self, stanza: &Wrapped) -> Result<Option<FileKey>, AgeError> {
        let shared = self.0.diffie_hellman(&PublicKey::from(stanza.share));
        if !shared.was_contributory() {
            return Err(AgeError::Header);
        }
        let key = wrapping_key(shared.as_bytes(), &stanza.share, &self.recipient().0);
        let mut body = Zeroizing::new(stanza.body);
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let Ok(opened) = key.open_in_place(nonce, Aad::empty(), &mut *body) else {
            return Ok(None);
        };
        let mut file_key = FileKey(Zeroizing::new([0; FILE_KEY]));
        file_key.0.copy_from_slice(opened);
        Ok(Some(file_key))
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bytes = text.starts_with(IDENTITY).then(|| decoded(IDENTITY, text));
        let bytes = bytes.flatten().ok_or(IdentityError::Line(1))?;
        Ok(Self(StaticSecret::from(*bytes)))
    }
}

/// The recipient alone.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.recipient())
    }
}

/// Name of the type alone.
impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey")
    }
}

/// Reads the identities of a file as `age-keygen` makes it: one a line, and comments.
///
/// # Errors
///
/// [`IdentityError`] if a line is anything else, or there is none.
pub fn identities(text: &str) -> Result<Vec<Identity>, IdentityError> {
    let mut identities = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let identity = line.parse().map_err(|_| IdentityError::Line(index + 1))?;
        identities.push(identity);
    }
    match identities.is_empty() {
        true => Err(IdentityError::None),
        false => Ok(identities),
    }
}

/// Begins a file that each of these recipients can read.
///
/// # Errors
///
/// [`AgeError`].
pub fn encrypt<W: Write>(recipients: &[Recipient], mut to: W) -> Result<Writer<W>, AgeError> {
    if recipients.is_empty() {
        return Err(AgeError::Recipients);
    }
    let file_key = FileKey(random()?);
    let mut header = format!("{VERSION}\n");
    for recipient in recipients {
        let ephemeral = StaticSecret::from(*random::<32>()?);
        let share = PublicKey::from(&ephemeral).to_bytes();
        let shared = ephemeral.diffie_hellman(&PublicKey::from(recipient.0));
        if !shared.was_contributory() {
            return Err(AgeError::Recipients);
        }
        let key = wrapping_key(shared.as_bytes(), &share, &recipient.0);
        let mut body = Zeroizing::new(file_key.0.to_vec());
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut *body)
            .expect("a file key is short");
        let (share, body) = (
            STANDARD_NO_PAD.encode(share),
            STANDARD_NO_PAD.encode(&*body),
        );
        header.push_str(&format!("-> {X25519} {share}\n{body}\n"));
    }
    header.push_str("---");
    let mac = hmac::sign(&header_key(&file_key), header.as_bytes());
    header.push_str(&format!(" {}\n", STANDARD_NO_PAD.encode(mac)));
    to.write_all(header.as_bytes())?;
    let nonce: Zeroizing<[u8; NONCE]> = random()?;
    to.write_all(&*nonce)?;
    Ok(Writer {
        stream: Stream::new(&file_key, &*nonce),
        file_key,
        chunk: Zeroizing::new(Vec::with_capacity(CHUNK + TAG)),
        has_failed: false,
        to,
    })
}

/// Begins to read a file with the identity that opens it.
///
/// # Errors
///
/// [`AgeError`]; of the content nothing has been looked at yet.
pub fn decrypt<R: BufRead>(identities: &[Identity], from: R) -> Result<Reader<R>, AgeError> {
    open(from, |stanzas| {
        for stanza in stanzas {
            for identity in identities {
                if let Some(file_key) = identity.unwrap(stanza)? {
                    return Ok(file_key);
                }
            }
        }
        Err(AgeError::NoMatch)
    })
}

/// Begins to read a file with its own key, as whoever has just written it may.
///
/// # Errors
///
/// [`AgeError`].
pub fn decrypt_with<R: BufRead>(file_key: &FileKey, from: R) -> Result<Reader<R>, AgeError> {
    open(from, |_| Ok(file_key.clone()))
}

fn open<R: BufRead>(
    mut from: R,
    key_of: impl FnOnce(&[Wrapped]) -> Result<FileKey, AgeError>,
) -> Result<Reader<R>, AgeError> {
    let header = Header::read(&mut from)?;
    let file_key = key_of(&header.stanzas)?;
    hmac::verify(&header_key(&file_key), &header.signed, &header.mac).map_err(|_| AgeError::Mac)?;
    let mut nonce = [0; NONCE];
    from.read_exact(&mut nonce)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => AgeError::Header,
            _ => error.into(),
        })?;
    Ok(Reader {
        stream: Stream::new(&file_key, &nonce),
        chunk: Zeroizing::new(vec![0; CHUNK + TAG]),
        plain: 0..0,
        is_over: false,
        has_failed: false,
        from,
    })
}

/// Encrypts what is written to it. What is not [finished](Writer::finish) nobody can read.
pub struct Writer<W> {
    stream: Stream,
    file_key: FileKey,
    /// Bytes that have come and may be the last chunk.
    chunk: Zeroizing<Vec<u8>>,
    /// True if a chunk could not be written, or not all of it: nothing can follow.
    has_failed: bool,
    to: W,
}

impl<W> Writer<W> {
    /// Key of the file, for [`decrypt_with`].
    #[must_use]
    pub fn file_key(&self) -> FileKey {
        self.file_key.clone()
    }
}

impl<W: Write> Writer<W> {
    /// Writes the last chunk, without which the file is taken for one that was cut off.
    ///
    /// # Errors
    ///
    /// What writing it says.
    pub fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        self.expect_intact()?;
        self.has_failed = true;
        let nonce = self.stream.next(is_last)?;
        self.stream
            .key
            .seal_in_place_append_tag(nonce, Aad::empty(), &mut *self.chunk)
            .expect("a chunk is short");
        self.to.write_all(&self.chunk)?;
        self.chunk.clear();
        self.has_failed = false;
        Ok(())
    }

    fn expect_intact(&self) -> io::Result<()> {
        match self.has_failed {
            true => Err(io::Error::other("a part before could not be written")),
            false => Ok(()),
        }
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.expect_intact()?;
        if self.chunk.len() == CHUNK && !bytes.is_empty() {
            self.seal(false)?;
        }
        let count = bytes.len().min(CHUNK - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Writes nothing: chunks are as long as they are.
    fn flush(&mut self) -> io::Result<()> {
        self.expect_intact()
    }
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// Content of a file. Only its end tells that nothing was cut off.
pub struct Reader<R> {
    stream: Stream,
    chunk: Zeroizing<Vec<u8>>,
    /// The part of `chunk` that has not been read.
    plain: std::ops::Range<usize>,
    is_over: bool,
    /// True if a chunk could not be read: what follows would be taken for another one.
    has_failed: bool,
    from: R,
}

impl<R> Reader<R> {
    /// Source that it reads from, behind what it has read.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.from
    }
}

impl<R: BufRead> Reader<R> {
    fn next(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::Error::other("a part before could not be read"));
        }
        self.has_failed = true;
        let mut length = 0;
        while length < self.chunk.len() {
            match self.from.read(&mut self.chunk[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let is_last = length < self.chunk.len() || self.from.fill_buf()?.is_empty();
        let is_first = self.stream.counter == 0;
        let nonce = self.stream.next(is_last)?;
        let part = &mut self.chunk[..length];
        let opened = self.stream.key.open_in_place(nonce, Aad::empty(), part);
        let plain = opened.map_err(|_| damaged())?.len();
        // Of an empty content alone the last chunk is empty.
        if plain == 0 && !is_first {
            return Err(damaged());
        }
        (self.plain, self.is_over, self.has_failed) = (0..plain, is_last, false);
        Ok(())
    }
}

impl<R: BufRead> Read for Reader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.plain.is_empty() && !self.is_over && !into.is_empty() {
            self.next()?;
        }
        let count = into.len().min(self.plain.len());
        let at = self.plain.start;
        into[..count].copy_from_slice(&self.chunk[at..at + count]);
        self.plain.start += count;
        Ok(count)
    }
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

fn damaged() -> io::Error {
    let why = "the content was changed or cut off";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Chunks, each with a nonce of its number and of whether it is the last one.
struct Stream {
    key: LessSafeKey,
    counter: u64,
}

impl Stream {
    fn new(file_key: &FileKey, nonce: &[u8]) -> Self {
        Self {
            key: derived(&*file_key.0, nonce, b"payload"),
            counter: 0,
        }
    }

    fn next(&mut self, is_last: bool) -> io::Result<Nonce> {
        let mut nonce = [0; 12];
        nonce[3..11].copy_from_slice(&self.counter.to_be_bytes());
        nonce[11] = is_last.into();
        self.counter = self.counter.checked_add(1).ok_or_else(damaged)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// A file key as a stanza has it.
struct Wrapped {
    share: [u8; 32],
    body: [u8; FILE_KEY + TAG],
}

/// Beginning of a file.
struct Header {
    stanzas: Vec<Wrapped>,
    /// The bytes that its code is of.
    signed: Vec<u8>,
    mac: [u8; 32],
}

impl Header {
    fn read(from: &mut impl BufRead) -> Result<Self, AgeError> {
        let mut lines = Lines {
            from: from.take(MAX_HEADER_BYTES),
            signed: Vec::new(),
        };
        if lines.next()? != VERSION {
            return Err(AgeError::Header);
        }
        let (mut stanzas, mut count, mut has_passphrase) = (Vec::new(), 0, false);
        loop {
            let line = lines.next()?;
            if let Some(mac) = line.strip_prefix("--- ") {
                let mac = base64_of(mac).ok_or(AgeError::Header)?;
                // A passphrase is alone by what the format says, or who has it could be another than who was meant.
                if count == 0 || (has_passphrase && count != 1) {
                    return Err(AgeError::Header);
                }
                let end = lines.signed.len() - line.len() - 1 + "---".len();
                lines.signed.truncate(end);
                return Ok(Self {
                    stanzas,
                    signed: lines.signed,
                    mac,
                });
            }
            let arguments = line.strip_prefix("-> ").ok_or(AgeError::Header)?;
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let is_plain =
                |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_graphic());
            if !arguments.iter().all(is_plain) {
                return Err(AgeError::Header);
            }
            let mut body = Vec::new();
            loop {
                let line = lines.next()?;
                let part = STANDARD_NO_PAD
                    .decode(&line)
                    .map_err(|_| AgeError::Header)?;
                if COLUMNS < line.len() {
                    return Err(AgeError::Header);
                }
                body.extend_from_slice(&part);
                if line.len() < COLUMNS {
                    break;
                }
            }
            count += 1;
            match arguments[..] {
                [X25519, share] => stanzas.push(Wrapped {
                    share: base64_of(share).ok_or(AgeError::Header)?,
                    body: body.try_into().map_err(|_| AgeError::Header)?,
                }),
                [X25519, ..] => return Err(AgeError::Header),
                ["scrypt", ..] => has_passphrase = true,
                // Recipients of other kinds may be beside.
                _ => {}
            }
        }
    }
}

/// Lines of a header.
struct Lines<R> {
    from: R,
    signed: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<String, AgeError> {
        let begin = self.signed.len();
        self.from.read_until(b'\n', &mut self.signed)?;
        let line = self.signed[begin..].strip_suffix(b"\n");
        let line = line.and_then(|line| str::from_utf8(line).ok());
        line.map(str::to_owned).ok_or(AgeError::Header)
    }
}

/// Bytes of a text in canonical Base64 without padding.
fn base64_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD_NO_PAD.decode(text).ok()?.try_into().ok()
}

fn wrapping_key(shared: &[u8; 32], share: &[u8; 32], recipient: &[u8; 32]) -> LessSafeKey {
    derived(shared, &[*share, *recipient].concat(), X25519_INFO)
}

fn header_key(file_key: &FileKey) -> hmac::Key {
    let derived = Salt::new(HKDF_SHA256, &[]).extract(&*file_key.0);
    let info: &[&[u8]] = &[b"header"];
    let key = derived.expand(info, HMAC_SHA256);
    key.expect("a key is short").into()
}

fn derived(secret: &[u8], salt: &[u8], info: &[u8]) -> LessSafeKey {
    let derived = Salt::new(HKDF_SHA256, salt).extract(secret);
    let info = [info];
    let key = derived.expand(&info, &CHACHA20_POLY1305 as &'static aead::Algorithm);
    LessSafeKey::new(UnboundKey::from(key.expect("a key is short")))
}

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, AgeError> {
    let mut bytes = Zeroizing::new([0; N]);
    let filled = SystemRandom::new().fill(&mut *bytes);
    filled.map_err(|_| AgeError::Randomness)?;
    Ok(bytes)
}

/// The 32 bytes of a text in Bech32; `None` if it is written otherwise than [`encoded`] writes them.
fn decoded(prefix: &str, text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let checked = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let mut bytes = Zeroizing::new([0; 32]);
    if checked.byte_iter().len() != bytes.len() {
        return None;
    }
    for (to, byte) in bytes.iter_mut().zip(checked.byte_iter()) {
        *to = byte;
    }
    let again = Zeroizing::new(encoded(prefix, &bytes));
    again.eq_ignore_ascii_case(text).then_some(bytes)
}

fn encoded(prefix: &str, bytes: &[u8; 32]) -> String {
    let prefix = Hrp::parse(prefix).expect("it is short");
    bech32::encode_lower::<Bech32>(prefix, bytes).expect("it is short")
}

#[cfg(test)]
mod tests;
