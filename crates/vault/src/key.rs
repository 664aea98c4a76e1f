//! Keys of vaults, and the places they come from.

use crate::{
    VaultError,
    file::{beside, private_content, write_private},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};
use zeroize::Zeroizing;

/// Bytes of a key.
const LENGTH: usize = 32;
/// Most that is read of the output of a program.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;

/// A key of 256 bits; its text is 64 hexadecimal digits, or Base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Zeroizing<[u8; LENGTH]>);

/// The identifier alone.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.id()).finish()
    }
}

impl Key {
    /// Makes a new key.
    ///
    /// # Errors
    ///
    /// [`VaultError::Randomness`].
    pub fn generate() -> Result<Self, VaultError> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        getrandom::fill(&mut *bytes).map_err(|_| VaultError::Randomness)?;
        Ok(Self(bytes))
    }

    /// Reads the text of a key; `place` names its source in the error.
    ///
    /// # Errors
    ///
    /// [`VaultError::Key`].
    pub fn parse(text: &str, place: &str) -> Result<Self, VaultError> {
        let text = text.trim();
        let decoded = match hexadecimal(text) {
            Some(bytes) => Some(bytes),
            None => [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD]
                .iter()
                .find_map(|it| it.decode(text).ok()),
        };
        let decoded = Zeroizing::new(decoded.unwrap_or_default());
        let bytes: [u8; LENGTH] = decoded.as_slice().try_into().map_err(|_| VaultError::Key {
            place: place.to_owned(),
            why: "it is not 32 bytes as 64 hexadecimal digits or as Base64; `owlclaw-mcp vault init` makes one"
                .to_owned(),
        })?;
        if bytes == [0; LENGTH] {
            return Err(VaultError::Key {
                place: place.to_owned(),
                why: "it has nothing but zeros".to_owned(),
            });
        }
        Ok(Self(Zeroizing::new(bytes)))
    }

    /// Reads a key from a file, which must be for its owner alone.
    ///
    /// # Errors
    ///
    /// [`VaultError`] if the file cannot be read, is open to others, or holds no key.
    pub fn read(path: &Path) -> Result<Self, VaultError> {
        let place = format!("in {}", path.display());
        let Some(text) = private_content(path)? else {
            let why = "the file is not there; put it back, or name another with `vault.key_file`";
            return Err(VaultError::Key {
                place,
                why: why.to_owned(),
            });
        };
        Self::parse(&text, &place)
    }

    /// Runs a program, without a shell, that prints a key; it has ten seconds.
    ///
    /// # Errors
    ///
    /// [`VaultError::Key`].
    pub fn of_command(words: &[String]) -> Result<Self, VaultError> {
        let text = output_of(words, Duration::from_secs(10)).map_err(|why| VaultError::Key {
            place: format!("from `{}`", words.first().map_or("", String::as_str)),
            why: format!("{why}; run `vault.key_command` by hand to see what is wrong"),
        })?;
        Self::parse(&text, "from `vault.key_command`")
    }

    /// Identifier of the key, which does not tell the key.
    #[must_use]
    pub fn id(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(b"owlclaw-vault key id\0");
        digest.update(*self.0);
        HEXLOWER.encode(&digest.finalize()[..8])
    }

    /// The key as text.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(*self.0))
    }

    pub(crate) fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

/// Standard output, as text, of a program that is run without a shell, has `patience` and must end well. Its standard
/// error goes nowhere, since it may have secrets.
///
/// # Errors
///
/// The reason why there is none.
pub fn output_of(words: &[String], patience: Duration) -> Result<Zeroizing<String>, String> {
    let (program, arguments) = words.split_first().ok_or("no program is named")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let Some(output) = child.stdout.take() else {
        return Err("it has no output".to_owned());
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Zeroizing::new(String::new());
        let read = output.take(MAX_OUTPUT_BYTES).read_to_string(&mut text);
        // The receiver has gone if the time is over.
        let _ = sender.send(read.map(|_| text));
    });
    let deadline = std::time::Instant::now() + patience;
    let read = receiver.recv_timeout(patience);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            _ if read.is_err() || deadline <= std::time::Instant::now() => break None,
            _ => thread::sleep(Duration::from_millis(5)),
        }
    };
    let Some(status) = ended else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it has not ended after {} s", patience.as_secs()));
    };
    match read {
        _ if !status.success() => Err(format!("it ended with {status}")),
        Ok(Ok(text)) => Ok(text),
        _ => Err("its output is no text".to_owned()),
    }
}

/// Writes a new key to a file that does not exist, for its owner alone.
///
/// # Errors
///
/// [`VaultError::Exists`] if there is a file; otherwise errors of the file system, or of the random numbers.
pub fn write_new_key(path: &Path) -> Result<Key, VaultError> {
    let key = Key::generate()?;
    write_private(path, &text_of(&key), false)?;
    Ok(key)
}

/// Content of a file with this key.
pub(crate) fn text_of(key: &Key) -> Zeroizing<String> {
    let mut text = key.text();
    text.push('\n');
    text
}

/// The file with the next key, while a vault is being sealed with it.
pub(crate) fn next(path: &Path) -> PathBuf {
    beside(path, ".next")
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * LENGTH {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect()
}
