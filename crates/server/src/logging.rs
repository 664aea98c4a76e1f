//! The log: lines to standard error that never keep a call waiting.
//!
//! A client that starts the server and never reads its standard error fills the pipe, and the next
//! write to it blocks for ever. So lines go into a bounded queue and a thread of its own writes
//! them; when the queue is full a line is dropped and counted, and the count is the first thing
//! written when there is a reader again.
//!
//! The same thread takes secrets out of every line: whatever handlers print, clients send or errors
//! quote, none of it is written as it is.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redaction::{OpenKey, Redactor};
use serde::Serialize;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer, fmt as text, reload};

use config::{LogFormat, LogLevel, LogOutput, Logging};

/// Most bytes that may wait to be written, the lines' own overhead included.
const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// Memory that a line takes besides its text.
const LINE_OVERHEAD_BYTES: usize = 64;
/// Time for which a line waits for others, so that they are written together.
const GATHERING: Duration = Duration::from_millis(1);
/// Time that the end of the program waits for the reader.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// Redactor of the server, which takes secrets out of lines; there is one log in a process.
static REDACTOR: OnceLock<Arc<Redactor>> = OnceLock::new();

/// Takes the same secrets out of the log as out of the record from now on, with the same digests.
/// Until then, and in commands that serve nothing, it is those that are known by default. The first
/// redactor stays.
pub(crate) fn redact_with(redactor: Arc<Redactor>) {
    let _ = REDACTOR.set(redactor);
}

/// A text without the secrets that the log would not show.
pub(crate) fn without_secrets(text: &str) -> String {
    let without = |redactor: &Redactor| redactor.text(text).into_owned();
    match REDACTOR.get() {
        Some(redactor) => without(redactor),
        None => without(&mcp_server::redactor_of_this_process()),
    }
}

/// Of the log of this process, once there is one.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Figures of the log of this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Lines that were dropped since the start.
    pub(crate) dropped: u64,
    /// Bytes that wait to be written.
    pub(crate) queued_bytes: u64,
}

/// Figures of the log of this process; all zero if none was started.
pub(crate) fn figures() -> Figures {
    let Some(queue) = QUEUE.get() else {
        return Figures::default();
    };
    let waiting = queue.lock();
    Figures {
        dropped: waiting.dropped_ever,
        queued_bytes: waiting.bytes as u64,
    }
}

/// The running log. Dropping it waits, within reason, until everything is written.
#[derive(Debug)]
pub struct Log {
    queue: Queue,
    format: LogFormat,
}

/// Changes the level of a running log.
#[derive(Clone)]
pub struct LevelHandle(Arc<dyn Fn(LogLevel) + Send + Sync>);

impl LevelHandle {
    /// Handle for a log that another library owns: changes of its level have no effect.
    pub(crate) fn of_no_log() -> Self {
        Self(Arc::new(|_| {}))
    }

    /// Logs from `level` on, from the next event.
    pub fn set(&self, level: LogLevel) {
        (self.0)(level);
    }
}

impl std::fmt::Debug for LevelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LevelHandle")
    }
}

impl Log {
    /// Starts the writer and makes this the log of the process. If there is one already, that one
    /// stays and this takes [announcements](Self::announce) only.
    pub fn start(config: &Logging) -> Self {
        Self::start_adjustable(config).0
    }

    /// The same, with what changes its level.
    pub fn start_adjustable(config: &Logging) -> (Self, LevelHandle) {
        let output: Box<dyn Write + Send> = match config.output {
            LogOutput::Stderr => Box::new(io::stderr()),
        };
        let log = Self::to(output, config.format);
        let (dispatch, level) = log.dispatch(config.level);
        let _ = QUEUE.set(log.queue.clone());
        let _ = tracing::dispatcher::set_global_default(dispatch);
        (log, level)
    }

    /// Destination of events, and the handle that changes the level of those written.
    fn dispatch(&self, level: LogLevel) -> (Dispatch, LevelHandle) {
        let (adjustable, handle) = reload::Layer::new(filter(level));
        let filtered = tracing_subscriber::registry().with(adjustable);
        let queue = self.queue.clone();
        let dispatch = match self.format {
            LogFormat::Json => filtered.with(JsonLines(queue)).into(),
            LogFormat::Text => {
                let lines = text::layer().with_ansi(false).with_writer(queue);
                filtered.with(lines).into()
            }
        };
        // That a log is gone is no failure.
        let set = move |level| drop(handle.reload(filter(level)));
        (dispatch, LevelHandle(Arc::new(set)))
    }

    fn to(output: Box<dyn Write + Send>, format: LogFormat) -> Self {
        let queue = Queue::default();
        let writer = queue.clone();
        let spawned = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.write_to(output, format));
        if spawned.is_err() {
            // Without its thread the log is silent; the server is worth more than its log.
            queue.lock().is_closed = true;
        }
        Self { queue, format }
    }

    /// Writes some lines for the operator, whatever the level: as they are, or under JSON as one
    /// object, so that every line stays one.
    pub fn announce(&self, subject: &str, lines: &[String]) {
        match self.format {
            LogFormat::Text => {
                for line in lines {
                    let line = [line, "\n"].concat();
                    self.queue.push(Line::new(line.into_bytes()));
                }
            }
            LogFormat::Json => {
                let line = json_line("INFO", subject, "lines", json!(lines));
                self.queue.push(Line::new(line));
            }
        }
    }

    /// Waits until everything is written, for a second at most.
    pub fn flush(&self) {
        self.queue.wait_until_written(FLUSH_PATIENCE);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    EnvFilter::default().add_directive(level.into())
}

/// Writes each event as a line of JSON: its time, its level, its fields and its target. Beside a field with an error, such
/// as `error`, there is `error.sources`, the nearest cause first. Spans are not written.
struct JsonLines(Queue);

impl<S: tracing::Subscriber> Layer<S> for JsonLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut members = Members {
            line: Vec::with_capacity(USUAL_LINE_BYTES),
            strings: Vec::with_capacity(USUAL_STRINGS),
            is_flat: true,
            text: String::new(),
        };
        members.line.extend_from_slice(b"{\"timestamp\":\"");
        write_timestamp(&mut members.line);
        members.line.extend_from_slice(b"\",\"level\":\"");
        let level = metadata.level().as_str();
        members.line.extend_from_slice(level.as_bytes());
        members.line.push(b'"');
        event.record(&mut members);
        members.begin("target");
        members.value(metadata.target());
        members.line.extend_from_slice(b"}\n");
        // Room that a long line has not used counts as if it were full.
        if LONG_LINE_BYTES < members.line.len() {
            members.line.shrink_to_fit();
            members.strings.shrink_to_fit();
        }
        let strings = members.is_flat.then_some((metadata, members.strings));
        self.0.push(Line {
            text: members.line,
            strings,
        });
    }
}

/// Bytes of a line about a request.
const USUAL_LINE_BYTES: usize = 768;
/// Bytes from which on a line is long.
const LONG_LINE_BYTES: usize = 64 * 1024;
/// Strings in a line about a request.
const USUAL_STRINGS: usize = 24;
/// Numbers from here on have as many digits as that of a card.
const LONG_NUMBER: u64 = 1_000_000_000_000;

/// Writes the fields of an event as members of JSON.
struct Members {
    line: Vec<u8>,
    /// Insides of the strings that are fields' values, in order.
    strings: Vec<Range<u32>>,
    /// False if there is more to look through than the strings.
    is_flat: bool,
    /// Room for what is formatted.
    text: String,
}

impl Members {
    fn begin(&mut self, name: &str) {
        self.line.push(b',');
        self.value(name);
        self.line.push(b':');
    }

    /// Writing to memory cannot fail, and neither can texts and numbers.
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) {
        let _ = serde_json::to_writer(&mut self.line, value);
    }

    fn string(&mut self, name: &str, value: &str) {
        self.begin(name);
        let start = self.line.len() + 1;
        self.value(value);
        let end = self.line.len() - 1;
        match (u32::try_from(start), u32::try_from(end)) {
            (Ok(start), Ok(end)) => self.strings.push(start..end),
            _ => self.is_flat = false,
        }
    }
}

impl Visit for Members {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.string(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let _ = write!(text, "{value:?}");
        self.string(field.name(), &text);
        self.text = text;
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.begin(field.name());
        self.value(&value);
        self.is_flat &= value < LONG_NUMBER;
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.begin(field.name());
        self.value(&value);
        self.is_flat &= value.unsigned_abs() < LONG_NUMBER;
    }

    #[expect(clippy::cast_precision_loss)]
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.begin(field.name());
        self.value(&value);
        self.is_flat &= value.abs() < LONG_NUMBER as f64;
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.begin(field.name());
        self.value(&value);
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        self.string(field.name(), &error.to_string());
        let mut causes = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        if !causes.is_empty() {
            self.begin(&format!("{}.sources", field.name()));
            self.value(&causes);
            self.is_flat = false;
        }
    }
}

/// A line, and where a redactor has to look.
#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Of an event that has nothing to look through but strings, what it is and the insides of the strings.
    strings: Option<(&'static Metadata<'static>, Vec<Range<u32>>)>,
}

impl Line {
    /// A line of which nothing is known.
    fn new(text: Vec<u8>) -> Self {
        Self {
            text,
            strings: None,
        }
    }

    /// Bytes of memory that it takes.
    fn cost(&self) -> usize {
        let strings = self.strings.as_ref().map_or(0, |(_, strings)| {
            strings.capacity() * size_of::<Range<u32>>()
        });
        self.text.capacity() + strings + LINE_OVERHEAD_BYTES
    }
}

/// Lines that wait to be written.
#[derive(Debug, Clone, Default)]
struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Signalled when there is something to write.
    filled: Condvar,
    /// Signalled when everything is written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Line>,
    /// Of `lines` and of what is being written; at most [`MAX_QUEUED_BYTES`].
    bytes: usize,
    dropped: u64,
    /// The same, since the start.
    dropped_ever: u64,
    /// True when the writing thread has ended.
    is_closed: bool,
    /// True while the writing thread waits for a line.
    is_idle: bool,
}

impl Queue {
    /// The lock is held for the time of a push or a swap, never while anything is written.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Line) {
        let cost = line.cost();
        let mut waiting = self.lock();
        if waiting.is_closed || waiting.bytes + cost > MAX_QUEUED_BYTES {
            waiting.dropped += 1;
            waiting.dropped_ever += 1;
            return;
        }
        waiting.bytes += cost;
        waiting.lines.push_back(line);
        let was_idle = std::mem::take(&mut waiting.is_idle);
        drop(waiting);
        if was_idle {
            self.0.filled.notify_one();
        }
    }

    fn write_to(&self, mut output: Box<dyn Write + Send>, format: LogFormat) {
        let default = mcp_server::redactor_of_this_process();
        let mut cleaning = Cleaning::default();
        loop {
            let mut waiting = self.lock();
            while waiting.lines.is_empty() && waiting.dropped == 0 {
                waiting.is_idle = true;
                let waited = self.0.filled.wait(waiting);
                waiting = waited.unwrap_or_else(PoisonError::into_inner);
            }
            waiting.is_idle = false;
            drop(waiting);
            // For a length and not until a time, which a clock that is set would move away.
            std::thread::sleep(GATHERING);
            let mut waiting = self.lock();
            let lines = std::mem::take(&mut waiting.lines);
            let dropped = std::mem::take(&mut waiting.dropped);
            drop(waiting);

            let cost: usize = lines.iter().map(Line::cost).sum();
            let mut text = Vec::with_capacity(lines.iter().map(|it| it.text.len()).sum());
            let redactor = cleaning.redactor(&default);
            for line in lines {
                text.extend_from_slice(cleaning.redacted(redactor, &line, format).as_bytes());
            }
            if dropped > 0 {
                text.extend(drop_notice(dropped, format));
            }
            // A reader that has gone is no reason to end: the next one to fail is told nothing.
            let _ = output.write_all(&text).and_then(|()| output.flush());

            let mut waiting = self.lock();
            waiting.bytes -= cost;
            if waiting.bytes == 0 {
                self.0.emptied.notify_all();
            }
        }
    }

    /// Waits at most `patience`; returns true if everything is written then.
    fn wait_until_written(&self, patience: Duration) -> bool {
        let is_left = |it: &mut Waiting| it.bytes > 0 && !it.is_closed;
        let waited = self
            .0
            .emptied
            .wait_timeout_while(self.lock(), patience, is_left);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !is_left(&mut waiting)
    }
}

/// State of the writing thread from one line to the next.
#[derive(Default)]
struct Cleaning {
    open_key: OpenKey,
    /// True once it is the server's redactor that `plain` is of.
    is_servers: bool,
    /// Events by the address of what describes them, and whether no name of a field makes a value a secret.
    plain: BTreeMap<usize, bool>,
}

impl Cleaning {
    fn redactor<'a>(&mut self, default: &'a Arc<Redactor>) -> &'a Redactor {
        let servers = REDACTOR.get();
        if servers.is_some() && !self.is_servers {
            self.is_servers = true;
            self.plain.clear();
        }
        servers.unwrap_or(default)
    }

    /// A line without secrets and without what a terminal obeys, and still one line.
    fn redacted<'a>(
        &mut self,
        redactor: &Redactor,
        line: &'a Line,
        format: LogFormat,
    ) -> Cow<'a, str> {
        let (text, end) = match line.text.strip_suffix(b"\n") {
            Some(text) => (text, "\n"),
            None => (&*line.text, ""),
        };
        // What is no UTF-8 was not written by us; nothing in it is lost that could be read.
        let text = match std::str::from_utf8(text) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(text),
        };
        let without_secrets = match (format, &line.strings) {
            (LogFormat::Text, _) => redactor.text(&text),
            (LogFormat::Json, Some((metadata, strings))) if self.is_plain(redactor, metadata) => {
                let places = strings.iter().map(|it| it.start as usize..it.end as usize);
                redactor.flat_json("log", &text, places)
            }
            (LogFormat::Json, _) => redactor.json("log", &text),
        };
        let without_secrets = self.open_key.go_on(redactor, &text, without_secrets);
        let mut line = match format {
            _ if is_plain(&without_secrets) || !without_secrets.contains(is_obeyed) => {
                without_secrets.into_owned()
            }
            LogFormat::Json => json_text(&without_secrets),
            LogFormat::Text => without_secrets.replace(is_obeyed, "\u{fffd}"),
        };
        line.push_str(end);
        line.into()
    }

    fn is_plain(&mut self, redactor: &Redactor, metadata: &'static Metadata<'static>) -> bool {
        let names = || metadata.fields().iter().map(|it| it.name());
        let address = std::ptr::from_ref(metadata).addr();
        let plain = self.plain.entry(address);
        *plain.or_insert_with(|| redactor.has_plain_names(names()))
    }
}

/// True for a text of printable ASCII characters, which nearly every line is; quicker than a look at each character.
fn is_plain(text: &str) -> bool {
    let mut chunks = text.as_bytes().chunks(64);
    chunks.all(|chunk| {
        let plain = |all, byte: &u8| all & matches!(byte, b' '..=b'~');
        chunk.iter().fold(true, plain)
    })
}

/// Returns true for characters that terminals obey or that make a line look like another one. Line
/// ends and tabs stay.
fn is_obeyed(character: char) -> bool {
    !matches!(character, '\n' | '\t') && redaction::is_misleading(character)
}

fn drop_notice(dropped: u64, format: LogFormat) -> Vec<u8> {
    const NOTICE: &str = "log lines were dropped, since they were not read in time";
    match format {
        LogFormat::Json => json_line("WARN", NOTICE, "count", json!(dropped)),
        LogFormat::Text => format!("{}  WARN {NOTICE} count={dropped}\n", timestamp()).into_bytes(),
    }
}

/// The same members as an event has.
fn json_line(level: &str, message: &str, field: &str, value: serde_json::Value) -> Vec<u8> {
    let line = json!({
        "timestamp": timestamp(),
        "level": level,
        "message": message,
        field: value,
        "target": "owlclaw_mcp",
    });
    format!("{line}\n").into_bytes()
}

fn timestamp() -> String {
    let mut text = Vec::new();
    write_timestamp(&mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Writes the time: RFC 3339, in microseconds, UTC.
fn write_timestamp(into: &mut Vec<u8>) {
    thread_local! {
        /// The second that was written last, and its text.
        static SECOND: RefCell<(u64, String)> = RefCell::default();
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    SECOND.with_borrow_mut(|(second, text)| {
        if *second != now.as_secs() {
            *second = now.as_secs();
            let time = UNIX_EPOCH + Duration::from_secs(*second);
            *text = mcp_server::rfc3339(time).unwrap_or_default();
        }
        into.extend_from_slice(text.trim_end_matches('Z').as_bytes());
    });
    let _ = write!(into, ".{:06}Z", now.subsec_micros());
}

/// Each event is one call of `write_all` on a writer of its own.
impl<'a> MakeWriter<'a> for Queue {
    type Writer = Queue;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(Line::new(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON with misleading characters as escapes, which leaves its value as it is. Line ends between values
/// stay.
pub fn json_text(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            character if character.is_ascii() && character != '\u{7f}' => text.push(character),
            character if redaction::is_misleading(character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = fmt::Write::write_fmt(&mut text, format_args!("\\u{unit:04x}"));
                }
            }
            character => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_with_escaped_characters_has_the_same_value() {
        let json = "{\n  \"a\u{9b}2J\u{7f}\": \"\u{202e}é😀\u{e0041}\"\n}";
        let text = json_text(json);
        assert_eq!(
            text,
            "{\n  \"a\\u009b2J\\u007f\": \"\\u202eé😀\\udb40\\udc41\"\n}"
        );
        let value = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&text), value(json));
    }
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Writer that writes nothing until it is released, like a pipe that is full.
    struct Stuck {
        release: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Stuck {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            // An error means that the test is over.
            let _ = self.release.recv();
            let _ = self.written.send(text.to_vec());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stuck(format: LogFormat) -> (Log, Sender<()>, Receiver<Vec<u8>>) {
        let (releaser, release) = channel();
        let (written, texts) = channel();
        (
            Log::to(Box::new(Stuck { release, written }), format),
            releaser,
            texts,
        )
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_not_time() {
        let (log, release, texts) = stuck(LogFormat::Text);
        let line = "x".repeat(1_000);
        for _ in 0..10_000 {
            log.announce("", std::slice::from_ref(&line));
        }
        assert!(!log.queue.wait_until_written(Duration::ZERO));
        assert!(log.queue.lock().bytes <= MAX_QUEUED_BYTES);

        drop(release);
        assert!(log.queue.wait_until_written(Duration::from_secs(60)));
        let text: Vec<u8> = texts.try_iter().flatten().collect();
        let text = String::from_utf8(text).unwrap();
        let (kept, notices): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with('x'));
        // Two if the writer first looks when lines have been dropped already.
        assert!((1..=2).contains(&notices.len()), "{notices:?}");
        let counts = notices.iter().map(|it| it.rsplit_once("count=").unwrap().1);
        let count: usize = counts.map(|it| it.parse::<usize>().unwrap()).sum();
        assert_eq!(kept.len() + count, 10_000);
        assert!(kept.len() >= MAX_QUEUED_BYTES / 1_100, "{}", kept.len());
    }

    #[test]
    fn an_announcement_is_one_object_under_json() {
        let (log, release, texts) = stuck(LogFormat::Json);
        drop(release);
        log.announce("configuration", &["a\nb".to_owned(), "c".to_owned()]);
        assert!(log.queue.wait_until_written(Duration::from_secs(60)));
        let text: Vec<u8> = texts.try_iter().flatten().collect();
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
        let object: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(object["lines"], json!(["a\nb", "c"]));
        assert_eq!(object["message"], "configuration");
        assert!(object["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn events_are_lines_from_the_configured_level_on() {
        for (format, expected) in [
            (LogFormat::Json, r#""count":3"#),
            (LogFormat::Text, "count=3"),
        ] {
            let (log, release, texts) = stuck(format);
            drop(release);
            let (dispatch, level) = log.dispatch(LogLevel::Warning);
            tracing::dispatcher::with_default(&dispatch, || {
                tracing::info!("not this one");
                tracing::warn!(count = 3, "this\none");
                level.set(LogLevel::Info);
                tracing::info!("and that one");
                level.set(LogLevel::Error);
                tracing::warn!("not this either");
            });
            assert!(log.queue.wait_until_written(Duration::from_secs(60)));
            let text: Vec<u8> = texts.try_iter().flatten().collect();
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.contains(expected)
                    && text.contains("and that one")
                    && !text.contains("not this"),
                "{text}"
            );
            assert!(
                format == LogFormat::Text || text.lines().count() == 2,
                "{text}"
            );
        }
    }

    /// The text that a log of this format has of what `tell` logs.
    fn logged(format: LogFormat, tell: impl FnOnce()) -> String {
        let (log, release, texts) = stuck(format);
        drop(release);
        let (dispatch, _level) = log.dispatch(LogLevel::Info);
        tracing::dispatcher::with_default(&dispatch, tell);
        assert!(log.queue.wait_until_written(Duration::from_secs(60)));
        let text: Vec<u8> = texts.try_iter().flatten().collect();
        String::from_utf8(text).unwrap()
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the ledger cannot be opened")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("the file \"x\" cannot be read")]
    struct Middle(#[source] io::Error);

    #[test]
    fn both_formats_log_all_causes_of_an_error_redacted() {
        let tell = || {
            let cause = io::Error::other("no space left, password=hunter2");
            let error = Outer(Middle(cause));
            tracing::error!(error = &error as &dyn Error, count = 3, "it failed");
            tracing::error!(error = &io::Error::other("alone") as &dyn Error, "again");
        };
        let text = logged(LogFormat::Text, tell);
        let json = logged(LogFormat::Json, tell);
        for said in [
            "the ledger cannot be opened",
            "cannot be read",
            "no space left",
            "alone",
        ] {
            assert!(text.contains(said), "{said} in {text}");
            assert!(json.contains(said), "{said} in {json}");
        }
        for text in [&text, &json] {
            assert!(
                text.contains("[redacted secret") && !text.contains("hunter2"),
                "{text}"
            );
        }
        let lines: Vec<serde_json::Value> = json
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2, "{json}");
        assert_eq!(lines[0]["error"], "the ledger cannot be opened");
        assert_eq!(
            (&lines[0]["count"], &lines[0]["message"]),
            (&json!(3), &json!("it failed"))
        );
        let sources = lines[0]["error.sources"].as_array().unwrap();
        assert_eq!(sources[0], "the file \"x\" cannot be read");
        assert!(sources[1].as_str().unwrap().starts_with("no space left"));
        assert_eq!(
            (sources.len(), &lines[1]["error.sources"]),
            (2, &json!(null))
        );
    }

    #[test]
    fn a_line_of_json_is_without_the_same_secrets_whether_or_not_it_is_read_as_a_whole() {
        let key = concat!("sk-", "proj-a8Kx0QmZ7rT2vL5nB9cD4eF6gH1jJ3kM");
        let tell = || {
            tracing::info!(
                text = "password=hunter2 and more",
                shown = %format!("Authorization: Bearer {key}"),
                params = format!(r#"{{"password":"hunter2","key":"{key}","a":["é\n"]}}"#),
                card = "4111 1111 1111 1111",
                part = -0.25,
                wide = 5_u128,
                yes = true,
                harmless = "-",
                "\"said\" {key}"
            );
            tracing::info!(card_number = 4_111_111_111_111_111_u64, "as a number");
            tracing::info!(
                card_number = 4_111_111_111_111_111.0,
                none = f64::NAN,
                "floats"
            );
            tracing::info!(db_password = "correct horse", "by its name");
            tracing::info!(name = "password", value = "correct horse", "by its company");
        };
        let text = logged(LogFormat::Json, tell);
        for secret in ["hunter2", key, "4111", "correct horse"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let redactor = mcp_server::redactor_of_this_process();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        for line in &lines {
            assert_eq!(redactor.json("log", line), *line);
        }
        let first: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
        let time = first["timestamp"].as_str().unwrap();
        assert_eq!((time.len(), time.find('.')), (27, Some(19)), "{time}");
        let rest = ["level", "target", "part", "wide", "yes", "harmless"];
        assert_eq!(
            rest.map(|it| &first[it]),
            [
                &json!("INFO"),
                &json!("server::logging::tests"),
                &json!(-0.25),
                &json!("5"),
                &json!(true),
                &json!("-")
            ]
        );
        let params: serde_json::Value =
            serde_json::from_str(first["params"].as_str().unwrap()).unwrap();
        assert_eq!(params["a"], json!(["é\n"]));
    }

    #[test]
    fn control_characters_in_a_log_line_are_escaped() {
        let tell = || {
            let strange = "a\u{9b}2J\u{202e}b";
            tracing::info!(line = strange, other = %strange, "said {strange}");
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, tell);
            assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{1b}']), "{text:?}");
        }
        let json: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, tell)).unwrap();
        assert_eq!(json["line"], "a\u{9b}2J\u{202e}b");
    }

    #[test]
    fn a_private_key_in_lines_does_not_reach_the_log() {
        let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
        let tell = || {
            let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
            for line in [begin, body, body, end] {
                tracing::info!(line, "a handler says");
                tracing::info!("something else");
            }
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, tell);
            assert!(!text.contains("MIIEvQ"), "{text}");
            assert_eq!(text.matches("something else").count(), 4, "{text}");
            assert_eq!(text.lines().count(), 8, "{text}");
        }
    }
}
