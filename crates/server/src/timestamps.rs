//! Time-stamps of checkpoints by an authority (RFC 3161): asked for as each checkpoint comes, kept in a file beside the
//! ledger, and verified offline.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_client::{Client, ClientOptions, Reach};
use ledger::{Checkpoint, ContinuityError, ReadLedger, Witnessed, check_stamped};
use timestamps::{Authorities, Stamp};

use crate::{Failure, with_causes};
use config::Config;

/// Longest time of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of an answer, and of a line of the file: a token has a few certificates at most.
const MAX_ANSWER: usize = 64 * 1024;
const MAX_LINE: u64 = 128 * 1024;

/// Authority that stamps checkpoints.
pub(super) struct Authority {
    client: Client,
    url: Uri,
    authorities: Authorities,
    file: PathBuf,
    /// Last line of the file.
    stamped: Witnessed,
}

/// Checkpoint with the token of its time-stamp: a line of the file.
struct Stamped {
    checkpoint: Checkpoint,
    token: Vec<u8>,
}

impl Stamped {
    fn to_line(&self) -> Result<String, Failure> {
        let mut line: serde_json::Value = serde_json::from_str(&self.checkpoint.to_json())?;
        line["token"] = STANDARD.encode(&self.token).into();
        Ok(format!("{line}\n"))
    }

    fn of(line: &str) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(Self {
            token: STANDARD.decode(value["token"].as_str()?).ok()?,
            checkpoint: Checkpoint::from_json(line)?,
        })
    }
}

impl Authority {
    /// The authority of a configuration, if it has one.
    ///
    /// # Errors
    ///
    /// When the address or the certificates cannot be used.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Failure> {
        let settings = &config.ledger.timestamps;
        let Some(url) = &settings.url else {
            return Ok(None);
        };
        let url = url.reveal(&config.environment);
        let url = url.ok_or("ledger.timestamps.url refers to a variable that is not set")?;
        let url = http_client::parse_url(url.trim(), &["https", "http"])
            .map_err(|why| format!("ledger.timestamps.url cannot be used: {why}"))?;
        let authorities = authorities(config)?;
        let authorities = authorities.ok_or("ledger.timestamps.certificates is not set")?;
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            max_body: MAX_ANSWER,
            ..ClientOptions::default()
        })?;
        let file = config.ledger.timestamps_file();
        let stamped = Witnessed::new(&file);
        // What cannot be read keeps a server from starting.
        stamped.has(last_sequence(&file).unwrap_or_default());
        Ok(Some(Self {
            client,
            url,
            authorities,
            file,
            stamped,
        }))
    }

    /// Last line that the file is known to have, also later.
    pub(super) fn stamped(&self) -> Witnessed {
        self.stamped.clone()
    }

    /// Has a checkpoint stamped, and keeps the token if it is believed.
    pub(super) async fn tell(&self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce)?;
        let nonce = u64::from_le_bytes(nonce);
        let digest = checkpoint.digest();
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.url.clone())
            .header(header::CONTENT_TYPE, timestamps::QUERY_TYPE)
            .body(Bytes::from(timestamps::request(&digest, nonce)))?;
        let answer = self.client.send(request).await?;
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(format!("the time-stamping authority has answered {status}").into());
        }
        let token = timestamps::token(answer.body())?;
        timestamps::verify(&token, &digest, Some(nonce), &self.authorities)?;
        let stamped = Stamped {
            checkpoint: checkpoint.clone(),
            token,
        };
        let (path, line) = (self.file.clone(), stamped.to_line()?);
        let after = self.stamped.sequence();
        let appended = tokio::task::spawn_blocking(move || append(&path, &line, after)).await?;
        appended.map_err(|error| {
            let path = self.file.display();
            format!("the time-stamp cannot be written to {path}: {error}")
        })?;
        self.stamped.has(checkpoint.sequence);
        Ok(())
    }
}

/// The certificates that are believed, if the configuration names them.
fn authorities(config: &Config) -> Result<Option<Authorities>, Failure> {
    let Some(path) = &config.ledger.timestamps.certificates else {
        return Ok(None);
    };
    let failed = |why: &dyn std::fmt::Display| {
        Failure::from(format!(
            "ledger.timestamps.certificates: {}: {why}",
            path.display()
        ))
    };
    let text = regular_file::read(path, regular_file::MAX_BYTES).map_err(|error| failed(&error))?;
    let read = Authorities::from_pem(&text);
    read.map(Some).map_err(|error| failed(&error))
}

/// Adds a line, durably, behind the one of the entry `after`, if there must be one: a file that was emptied, cut off or
/// taken away is not gone on with, so that it shows. What a crash has left of a line stays by itself.
fn append(path: &Path, line: &str, after: Option<u64>) -> io::Result<()> {
    if let Some(after) = after
        && last_sequence(path)? < after
    {
        return Err(io::Error::other(format!(
            "its last line, of entry {after}, is gone: put the file back as it was"
        )));
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(after.is_none());
    // For its owner alone, as the ledger is.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut text = String::new();
    if file.seek(SeekFrom::End(0))? != 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(line);
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Lines of a file; `None` for one that is no time-stamp.
fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Option<Stamped>>>> {
    let mut file = BufReader::new(regular_file::open(path)?);
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        match (&mut file).take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => {
                let text = std::str::from_utf8(&line).unwrap_or_default();
                Some(Ok(Stamped::of(text.trim_end())))
            }
            Err(error) => Some(Err(error)),
        }
    }))
}

/// Entry of the last time-stamp of a file; 0 where there is none. Of the file only the end is read.
fn last_sequence(path: &Path) -> io::Result<u64> {
    let mut file = match regular_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let bytes = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(bytes.saturating_sub(2 * MAX_LINE)))?;
    let mut end = Vec::new();
    file.take(2 * MAX_LINE).read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    let last = text.lines().rev().find_map(Stamped::of);
    Ok(last.map_or(0, |it| it.checkpoint.sequence))
}

/// The last line of the file, for a process that stamps nothing; `None` where no file is verified.
pub(super) fn stamped(config: &Config) -> Option<Witnessed> {
    config.ledger.timestamps.certificates.as_ref()?;
    let file = config.ledger.timestamps_file();
    let stamped = Witnessed::new(&file);
    stamped.has(last_sequence(&file).unwrap_or_default());
    Some(stamped)
}

/// Compares the file of time-stamps with what the ledger says was in it. Servers that share a ledger say nothing of their
/// files.
///
/// # Errors
///
/// When lines are gone, or the file or the ledger cannot be read.
pub(super) fn check_file(
    config: &Config,
    ledger: &mut dyn ReadLedger,
) -> Result<(), ContinuityError> {
    if config.ledger.timestamps.certificates.is_none() {
        return Ok(());
    }
    let file = config.ledger.timestamps_file();
    check_stamped(ledger, &file, last_sequence)
}

/// The last checkpoint that was stamped by an authority that is believed, and the file that says so.
///
/// # Errors
///
/// When the file or the certificates cannot be read, or the last line has a token that is not believed.
pub(super) fn last(config: &Config) -> Result<Option<(Checkpoint, PathBuf)>, Failure> {
    let path = config.ledger.timestamps_file();
    let Some(authorities) = authorities(config)? else {
        return Ok(None);
    };
    let unreadable = |error| Failure::from(format!("{} cannot be read: {error}", path.display()));
    let all = match lines(&path) {
        Ok(all) => all,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut last = None;
    for line in all {
        last = line.map_err(unreadable)?.or(last);
    }
    let Some(stamped) = last else {
        return Ok(None);
    };
    let digest = stamped.checkpoint.digest();
    timestamps::verify(&stamped.token, &digest, None, &authorities).map_err(|error| {
        let (path, sequence) = (path.display(), stamped.checkpoint.sequence);
        format!(
            "the time-stamp of entry {sequence} in {path} is not to be believed: {}",
            with_causes(&error)
        )
    })?;
    Ok(Some((stamped.checkpoint, path)))
}

/// Result of [`verify_timestamps`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// The file.
    pub file: PathBuf,
    /// Number of time-stamps that are believed and of entries that the ledger has.
    pub agree: u64,
    /// Entry through which the last of these seals the ledger, and its time since the epoch.
    pub last: Option<(u64, Duration)>,
    /// Lines that are no time-stamps: what a crash left of a line, or an edit.
    pub unreadable: u64,
    /// The first that is not believed, or of which the ledger has another entry.
    pub wrong: Option<String>,
}

/// Verifies the time-stamps of a ledger's checkpoints, offline; `None` where there is no file of them, or no
/// certificate to believe.
///
/// # Errors
///
/// When the file, the certificates or the ledger cannot be read.
pub fn verify_timestamps(
    config: &Config,
    ledger: &mut dyn ReadLedger,
) -> Result<Option<Stamps>, Failure> {
    let Some(authorities) = authorities(config)? else {
        return Ok(None);
    };
    let file = config.ledger.timestamps_file();
    let unreadable = |error| Failure::from(format!("{} cannot be read: {error}", file.display()));
    let mut stamps = Stamps {
        file: file.clone(),
        ..Stamps::default()
    };
    match check_file(config, ledger) {
        Ok(()) => {}
        Err(cut @ ContinuityError::FileCut { .. }) => {
            stamps.wrong = Some(cut.to_string());
            return Ok(Some(stamps));
        }
        Err(error) => return Err(error.into()),
    }
    let all = match lines(&file) {
        Ok(all) => all,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let gaps = ledger.gaps()?;
    for line in all {
        let Some(stamped) = line.map_err(unreadable)? else {
            stamps.unreadable += 1;
            continue;
        };
        let sequence = stamped.checkpoint.sequence;
        let believed = timestamps::verify(
            &stamped.token,
            &stamped.checkpoint.digest(),
            None,
            &authorities,
        );
        let Stamp { at } = match believed {
            Ok(stamp) => stamp,
            Err(error) => {
                let why = with_causes(&error);
                stamps.wrong = Some(format!("that of entry {sequence} is not believed: {why}"));
                return Ok(Some(stamps));
            }
        };
        let is_deleted =
            |gap: &ledger::Gap| (gap.first_sequence..gap.last_sequence).contains(&sequence);
        if gaps.iter().any(is_deleted) {
            continue;
        }
        if ledger.hash_after(sequence)? != Some(stamped.checkpoint.hash) {
            stamps.wrong = Some(format!(
                "the entries through {sequence} are not those that were stamped"
            ));
            return Ok(Some(stamps));
        }
        stamps.agree += 1;
        stamps.last = Some((sequence, at));
    }
    Ok(Some(stamps))
}
