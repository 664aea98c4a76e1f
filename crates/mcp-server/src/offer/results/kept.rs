//! Results that are kept for a while, each for the client that has got a part of it.

use crate::offer::{
    resources::{ReadFailure, ResourceEntry, Resources, names},
    results::{BadResultLimits, ResultLimit, ResultOptions, excerpt::Document},
};
use adapter_tools::ToolCx;
use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use ledger::Digest;
use mcp_protocol::model::{
    ByteRange, CacheHint, CacheScope, ListResources, ReadResource, ReadResourceResult,
    ResourceContents, ResultMeta,
};
use redaction::Redactor;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// Scheme of the URIs.
const SCHEME: &str = "result://";
/// End of the names of files.
const FILE_END: &str = ".result";
/// The file that is locked by the server whose results are in the directory.
const LOCK: &str = "lock";
/// The fewest bytes that a result counts as, so that there cannot be too many.
const LEAST_BYTES: u64 = 4 << 10;
/// The most bytes that are read at once.
pub(super) const MAX_PART: u64 = 8 << 20;
/// Bytes of a file that are searched for lines at once.
const CHUNK: usize = 64 << 10;

/// The results that are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    options: ResultOptions,
    all: Mutex<All>,
    /// Locked as long as the directory is this server's.
    _lock: Option<File>,
}

#[derive(Debug, Default)]
struct All {
    by_id: HashMap<Box<str>, Arc<KeptResult>>,
    /// The oldest first. Some may be gone.
    order: VecDeque<Box<str>>,
    bytes: u64,
    by_client: HashMap<Arc<str>, u64>,
    is_swept: bool,
}

/// A result that is kept.
#[derive(Debug)]
pub(crate) struct KeptResult {
    id: Box<str>,
    principal: Arc<str>,
    pub(super) capability: Arc<str>,
    /// The limit that the call had.
    pub(super) limit: ResultLimit,
    pub(super) mime_type: &'static str,
    pub(super) expires_us: u64,
    etag: String,
    bytes: u64,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Memory(Box<str>),
    File(OwnFile),
}

/// A file that is removed when nobody reads it any more.
#[derive(Debug)]
struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                path = %self.0.display(),
                "the file of a result could not be removed"
            );
        }
    }
}

/// Outcome for a result that was to be kept.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) kept: Option<Arc<KeptResult>>,
    pub(super) why_not: Option<NotKept>,
    pub(super) sha256: String,
    /// The same digest for the ledger: with the key of its redaction, if the result has secrets.
    pub(super) digest: Digest,
}

/// Reason why a result is not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKept {
    #[error("it is longer than the {0} bytes that are kept for a client")]
    TooLong(u64),
    #[error("the server could not write it")]
    Unwritable(#[source] io::Error),
}

/// Room that was taken for a result that is still being written.
struct Reserved<'a> {
    kept: &'a Kept,
    principal: &'a Arc<str>,
    bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.kept.lock().release(self.principal, self.bytes);
    }
}

impl All {
    fn take(&mut self, principal: &Arc<str>, bytes: u64) {
        self.bytes += bytes;
        *self.by_client.entry(Arc::clone(principal)).or_default() += bytes;
    }

    fn release(&mut self, principal: &str, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_client) = self.by_client.get_mut(principal) {
            *of_client = of_client.saturating_sub(bytes);
            if *of_client == 0 {
                self.by_client.remove(principal);
            }
        }
    }

    fn remove(&mut self, at: usize) -> Option<Arc<KeptResult>> {
        let id = self.order.remove(at)?;
        let gone = self.by_id.remove(&id)?;
        self.release(&gone.principal, gone.charged());
        Some(gone)
    }

    /// Removes the oldest result of a client.
    fn remove_oldest(&mut self, principal: &str) -> Option<Arc<KeptResult>> {
        let at = self.order.iter().position(|id| {
            let kept = self.by_id.get(id);
            kept.is_some_and(|it| &*it.principal == principal)
        })?;
        self.remove(at)
    }

    fn expired(&mut self, now_us: u64) -> Vec<Arc<KeptResult>> {
        let mut gone = Vec::new();
        while let Some(id) = self.order.front() {
            let kept = self.by_id.get(id);
            if kept.is_some_and(|it| now_us < it.expires_us) {
                break;
            }
            gone.extend(self.remove(0));
        }
        gone
    }
}

impl KeptResult {
    pub(super) fn uri(&self) -> String {
        format!("{SCHEME}{}", self.id)
    }

    fn charged(&self) -> u64 {
        self.bytes.max(LEAST_BYTES)
    }
}

impl Kept {
    pub(super) fn open(options: ResultOptions) -> Result<Self, BadResultLimits> {
        let prepared = options.directory.as_deref().map(|directory| {
            prepare(directory).map_err(|source| BadResultLimits::Directory {
                directory: directory.to_owned(),
                source,
            })
        });
        Ok(Self {
            _lock: prepared.transpose()?,
            options,
            all: Mutex::default(),
        })
    }

    pub(super) fn keep(&self) -> Duration {
        self.options.keep
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result at `uri`, if it is kept for this client. Nothing else can be told from a result that never was.
    pub(super) fn find(&self, principal: &str, uri: &str) -> Option<Arc<KeptResult>> {
        let (id, _) = parts(uri)?;
        let kept = self.lock().by_id.get(id).cloned()?;
        let is_there = *kept.principal == *principal && (self.options.clock)() < kept.expires_us;
        is_there.then_some(kept)
    }

    /// Keeps a result, if there is room for it, and makes a digest of it.
    pub(super) async fn save(
        self: Arc<Self>,
        principal: Arc<str>,
        (capability, limit): (Arc<str>, ResultLimit),
        document: Document,
        redactor: &Arc<Redactor>,
    ) -> Saved {
        let bytes = document.text.len() as u64;
        let id = new_id();
        let reserved = match &id {
            Ok(_) => self.reserve(&principal, bytes.max(LEAST_BYTES)),
            Err(_) => None,
        };
        let path = match &id {
            Ok(id) if self.options.memory_bytes < document.text.len() => {
                let directory = self.options.directory.as_ref();
                directory.map(|it| it.join(format!("{id}{FILE_END}")))
            }
            _ => None,
        };
        let (is_kept, redactor) = (reserved.is_some(), Arc::clone(redactor));
        let mime_type = document.mime_type;
        let of = Arc::clone(&capability);
        let prepared = move || {
            let text = document.text;
            let sha256 = Sha256::digest(&text).into();
            let digest = digest_on_record(&redactor, &of, &text, sha256);
            let body = is_kept.then(|| match path {
                Some(path) => write(path, &text).map(Body::File),
                None => Ok(Body::Memory(text.into_boxed_str())),
            });
            (body.transpose(), sha256, digest)
        };
        let prepared = match bytes < CHUNK as u64 {
            true => Ok(prepared()),
            // Neither the disk nor digests of much are for the threads that serve.
            false => tokio::task::spawn_blocking(prepared).await,
        };
        let mut saved = Saved {
            kept: None,
            why_not: None,
            sha256: String::new(),
            digest: Digest::default(),
        };
        let (body, sha256, digest) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                saved.why_not = Some(NotKept::Unwritable(error.into()));
                return saved;
            }
        };
        (saved.sha256, saved.digest) = (HEXLOWER.encode(&sha256), digest);
        let (body, id) = match (body, id) {
            (Ok(Some(body)), Ok(id)) => (body, id),
            (Ok(_), Ok(_)) => {
                saved.why_not = Some(NotKept::TooLong(self.options.max_bytes_per_client));
                return saved;
            }
            (Err(error), _) | (_, Err(error)) => {
                saved.why_not = Some(NotKept::Unwritable(error));
                return saved;
            }
        };
        let keep_us = u64::try_from(self.options.keep.as_micros()).unwrap_or(u64::MAX);
        let kept = Arc::new(KeptResult {
            id,
            principal: Arc::clone(&principal),
            capability,
            limit,
            mime_type,
            expires_us: (self.options.clock)().saturating_add(keep_us),
            etag: saved.sha256.clone(),
            bytes,
            body,
        });
        {
            let mut all = self.lock();
            all.take(&principal, kept.charged());
            all.order.push_back(kept.id.clone());
            all.by_id.insert(kept.id.clone(), Arc::clone(&kept));
        }
        drop(reserved);
        self.sweep_later();
        saved.kept = Some(kept);
        saved
    }

    /// Takes room for a result, of older ones if need be.
    fn reserve<'a>(&'a self, principal: &'a Arc<str>, bytes: u64) -> Option<Reserved<'a>> {
        let (most, most_of_client) = (self.options.max_bytes, self.options.max_bytes_per_client);
        if most.min(most_of_client) < bytes {
            return None;
        }
        let mut gone;
        let has_room = {
            let mut all = self.lock();
            gone = all.expired((self.options.clock)());
            loop {
                let of_client = all.by_client.get(principal).copied().unwrap_or(0);
                let whose = if most_of_client < of_client + bytes {
                    Arc::clone(principal)
                } else if most < all.bytes + bytes {
                    let clients = all.by_client.iter().max_by_key(|(_, bytes)| **bytes);
                    match clients {
                        Some((whose, _)) => Arc::clone(whose),
                        None => break true,
                    }
                } else {
                    break true;
                };
                match all.remove_oldest(&whose) {
                    Some(removed) => gone.push(removed),
                    // What is being written now cannot be removed.
                    None => break false,
                }
            }
            .then(|| all.take(principal, bytes))
        };
        // Their files are removed here, and not while others wait.
        drop(gone);
        has_room.map(|()| Reserved {
            kept: self,
            principal,
            bytes,
        })
    }

    /// Removes results when they have expired.
    fn sweep_later(self: &Arc<Self>) {
        if std::mem::replace(&mut self.lock().is_swept, true) {
            return;
        }
        let (kept, keep): (Weak<Self>, _) = (Arc::downgrade(self), self.options.keep);
        tokio::spawn(async move {
            let pause = (keep / 16).max(Duration::from_secs(1));
            loop {
                tokio::time::sleep(pause).await;
                let Some(kept) = kept.upgrade() else { return };
                let (gone, is_over) = {
                    let mut all = kept.lock();
                    let gone = all.expired((kept.options.clock)());
                    all.is_swept = !all.order.is_empty();
                    (gone, !all.is_swept)
                };
                drop(gone);
                if is_over {
                    return;
                }
            }
        });
    }
}

/// Makes the directory of results, takes it for this server, and removes what is in it of an earlier one.
fn prepare(directory: &Path) -> io::Result<File> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(directory.join(LOCK))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::Error(error) => error,
        TryLockError::WouldBlock => io::Error::other("another server keeps its results there"),
    })?;
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        if path.to_string_lossy().ends_with(FILE_END) {
            fs::remove_file(path)?;
        }
    }
    Ok(lock)
}

fn new_id() -> io::Result<Box<str>> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(HEXLOWER.encode(&bytes).into_boxed_str())
}

/// A file for its owner alone.
fn write(path: PathBuf, text: &str) -> io::Result<OwnFile> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    let own = OwnFile(path);
    file.write_all(text.as_bytes())?;
    Ok(own)
}

/// A digest for the ledger. A plain one of a text with a secret would confirm guesses of it.
fn digest_on_record(redactor: &Redactor, capability: &str, text: &str, sha256: Digest) -> Digest {
    match redactor.json(capability, text) {
        Cow::Borrowed(_) => sha256,
        Cow::Owned(_) => redactor.digest(&json!(HEXLOWER.encode(&sha256)).to_string()),
    }
}

/// Id and query of a URI.
fn parts(uri: &str) -> Option<(&str, Option<&str>)> {
    let rest = uri.strip_prefix(SCHEME)?;
    let (id, query) = match rest.split_once('?') {
        Some((id, query)) => (id, Some(query)),
        None => (rest, None),
    };
    let is_id = id.len() == 32 && id.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then_some((id, query))
}

/// A part of a result that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Exactly so many bytes.
    Bytes(ByteRange),
    /// About these bytes: whole characters.
    Characters(ByteRange),
    /// Lines from `first` on, counted from 1.
    Lines { first: u64, count: u64 },
}

impl Span {
    /// The part that the query of a URI names: `offset=0&length=8000` or `lines=1-100`.
    fn of_query(query: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "`{query}` names no part of a result: `offset=0&length=8000` and `lines=1-100` do"
            )
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let (mut offset, mut length) = (None, None);
        for member in query.split('&') {
            match member.split_once('=') {
                Some(("lines", lines)) if member == query => {
                    let (first, last) = lines.split_once('-').ok_or_else(bad)?;
                    let (first, last) = (number(first)?, number(last)?);
                    return match 1 <= first && first <= last {
                        true => Ok(Self::Lines {
                            first,
                            count: last - first + 1,
                        }),
                        false => Err(bad()),
                    };
                }
                Some(("offset", text)) if offset.is_none() => offset = Some(number(text)?),
                Some(("length", text)) if length.is_none() => length = Some(number(text)?),
                _ => return Err(bad()),
            }
        }
        Ok(Self::Characters(ByteRange {
            offset: offset.unwrap_or(0),
            length,
        }))
    }
}

/// A part of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    /// The place of its first byte.
    pub(super) offset: u64,
    /// The size of the whole.
    pub(super) size: u64,
}

impl KeptResult {
    /// Reads a part, of at most `most` bytes. Without a span: all.
    pub(super) async fn part(
        self: Arc<Self>,
        span: Option<Span>,
        most: u64,
    ) -> Result<Part, ReadFailure> {
        match &self.body {
            Body::Memory(_) => self.part_now(span, most),
            Body::File(_) => {
                let reading = tokio::task::spawn_blocking(move || self.part_now(span, most));
                reading
                    .await
                    .unwrap_or_else(|error| Err(ReadFailure::Unreadable(error.into())))
            }
        }
    }

    fn part_now(&self, span: Option<Span>, most: u64) -> Result<Part, ReadFailure> {
        match &self.body {
            Body::Memory(text) => self.cut_out(&mut io::Cursor::new(text.as_bytes()), span, most),
            Body::File(OwnFile(path)) => {
                let mut file = File::open(path).map_err(unreadable)?;
                self.cut_out(&mut file, span, most)
            }
        }
    }

    fn cut_out(
        &self,
        source: &mut (impl Read + Seek),
        span: Option<Span>,
        most: u64,
    ) -> Result<Part, ReadFailure> {
        let range = match span {
            None => ByteRange {
                offset: 0,
                length: None,
            },
            Some(Span::Bytes(range) | Span::Characters(range)) => range,
            Some(Span::Lines { first, count }) => lines(source, first, count)?,
        };
        let range = adapter_skills::ByteRange {
            offset: range.offset,
            length: range.length,
        };
        let size = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let within = range.within(size);
        let within = within.map_err(|error| ReadFailure::Range(error.to_string()))?;
        let (mut offset, mut length) = (within.start as u64, within.len() as u64);
        if most < length {
            match span {
                Some(Span::Characters(_) | Span::Lines { .. }) => length = most,
                _ => {
                    let why = format!(
                        "the result has {} bytes; at most {most} can be read at once, by `range` or with \
                         `?offset=0&length={most}` behind the URI",
                        self.bytes
                    );
                    return Err(ReadFailure::Range(why));
                }
            }
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        source.seek(SeekFrom::Start(offset)).map_err(unreadable)?;
        source.read_exact(&mut bytes).map_err(unreadable)?;
        if !matches!(span, Some(Span::Bytes(_))) {
            // The whole is text: what is no character here was cut at one of the two ends.
            let begin = bytes.iter().take_while(|it| is_inside(**it)).count();
            bytes.drain(..begin);
            offset += begin as u64;
            if let Err(error) = std::str::from_utf8(&bytes) {
                bytes.truncate(error.valid_up_to());
            }
        }
        Ok(Part {
            bytes,
            offset,
            size: self.bytes,
        })
    }
}

/// True of a byte that is not the first of a character.
fn is_inside(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The bytes of some lines.
fn lines(source: &mut impl Read, first: u64, count: u64) -> Result<ByteRange, ReadFailure> {
    let (mut line, mut at) = (1_u64, 0_u64);
    let mut start = (first == 1).then_some(0);
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = source.read(&mut chunk).map_err(unreadable)?;
        if read == 0 {
            break;
        }
        for byte in &chunk[..read] {
            at += 1;
            if *byte != b'\n' {
                continue;
            }
            line += 1;
            if line == first {
                start = Some(at);
            }
            if line == first.saturating_add(count)
                && let Some(start) = start
            {
                return Ok(ByteRange {
                    offset: start,
                    length: Some(at - start),
                });
            }
        }
    }
    match start.filter(|start| *start < at) {
        Some(start) => Ok(ByteRange {
            offset: start,
            length: None,
        }),
        None => Err(ReadFailure::Range(format!(
            "there is no line {first}: the result has {} lines",
            if at == 0 { 0 } else { line }
        ))),
    }
}

fn unreadable(error: io::Error) -> ReadFailure {
    ReadFailure::Unreadable(error.into())
}

/// Results as resources, which are not listed.
#[derive(Debug)]
pub(super) struct KeptResources(pub(super) Arc<Kept>);

impl Resources for KeptResources {
    fn entries(&self) -> &[ResourceEntry] {
        &[]
    }

    fn matching(&self, _: &ListResources) -> Result<Vec<usize>, String> {
        Ok(Vec::new())
    }

    /// The name of any address: a read finds out if there is a result, and for which client.
    fn canonical(&self, uri: &str) -> Option<String> {
        let (id, _) = parts(uri)?;
        Some(format!("{SCHEME}{id}"))
    }

    fn tells_of_changes(&self, _: &str) -> bool {
        false
    }

    fn read(
        self: Arc<Self>,
        _: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(std::future::ready(Err(ReadFailure::NotFound)))
    }

    fn read_for(
        self: Arc<Self>,
        cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let kept = self.0.find(&cx.principal, &read.uri);
            let kept = kept.ok_or(ReadFailure::NotFound)?;
            let (etag, mime_type) = (kept.etag.clone(), kept.mime_type);
            let mut about = json!({ "etag": etag, "size": kept.bytes });
            let mut meta = ResultMeta::default();
            let cache = CacheHint {
                ttl_ms: 0,
                scope: CacheScope::Private,
            };
            let known = read.if_none_match.as_deref();
            if known.is_some_and(|etags| names(etags, &etag)) {
                about["notModified"] = json!(true);
                meta.insert("io.owlclaw/resource", &about);
                return Ok(ReadResourceResult {
                    contents: Vec::new(),
                    meta,
                    cache,
                });
            }
            let span = match (parts(&read.uri).and_then(|(_, query)| query), read.range) {
                (Some(_), Some(_)) => {
                    let why = "the URI names a part already: leave out `range`";
                    return Err(ReadFailure::Range(why.to_owned()));
                }
                (Some(query), None) => Some(Span::of_query(query).map_err(ReadFailure::Range)?),
                (None, range) => range.map(Span::Bytes),
            };
            let part = kept.part(span, MAX_PART).await?;
            if span.is_some() {
                about["range"] =
                    json!({ "offset": part.offset, "length": part.bytes.len(), "size": part.size });
            }
            meta.insert("io.owlclaw/resource", &about);
            let (text, blob) = match String::from_utf8(part.bytes) {
                Ok(text) => (Some(text), None),
                Err(error) => (None, Some(base64(error.as_bytes()))),
            };
            Ok(ReadResourceResult {
                contents: vec![ResourceContents {
                    uri: read.uri.clone(),
                    mime_type: Some(mime_type.to_owned()),
                    text,
                    blob,
                    meta: None,
                }],
                meta,
                cache,
            })
        })
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}
