//! Definitions of tools, prompts and templates as they were first seen, or as an operator has approved them.
//!
//! A server of others can change overnight what a tool says about itself, which a model reads and obeys, or what it
//! takes and does. So a definition is pinned at first sight. One that differs later is held: clients see the pinned
//! one, and calls are refused, until an operator has seen the difference and approves it.

mod definition;
mod judge;
#[cfg(test)]
mod tests;

pub(crate) use self::definition::{cleaned_definition, further};
pub(crate) use self::judge::{Listed, Terms, Verdict};

use self::definition::{compare, ordered, unhex};
use self::judge::judge;
use crate::store::{Store, with_causes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The file of the pins.
const FILE: &str = "pins.json";
/// The file that is locked while the pins are changed.
const LOCK: &str = "pins.lock";
/// Most pins of definitions that an upstream lists no more. With so many, what is new is held.
const MAX_GONE: usize = 1000;

/// Most pins of pages that an upstream does not list, and of those that one of its templates stands for. With so many,
/// another page is held.
const MAX_PAGES: usize = 1000;
const MAX_PAGES_OF_TEMPLATE: usize = 250;

/// Digits of a digest that name a definition well enough.
const MIN_DIGEST: usize = 8;

/// Kind of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinKind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A template of resources.
    Template,
    /// The page of an app, which hosts show: its media type, `_meta`, and the digest of its content.
    Page,
    /// The entry of such a page in the list of resources, whose `_meta` hosts heed where the page has none.
    Resource,
}

/// Part of a definition that has changed, by what the change can do.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A definition that was not there when the upstream was first seen.
    New,
    /// A definition that was there under another name, which is no longer listed.
    Renamed,
    /// Texts that a model reads: title, description, and those of parameters.
    Words,
    /// Input schema, or arguments.
    Input,
    /// Output schema.
    Output,
    /// Hints about what it does.
    Annotations,
    /// Pictures.
    Icons,
    /// Other members, such as the user interface of a tool.
    Meta,
}

impl ChangeKind {
    /// Weight of such a change.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::Icons => Severity::Low,
            Self::New | Self::Renamed | Self::Output => Severity::Medium,
            Self::Words | Self::Input | Self::Annotations | Self::Meta => Severity::High,
        }
    }

    /// Name, as in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Renamed => "renamed",
            Self::Words => "words",
            Self::Input => "input",
            Self::Output => "output",
            Self::Annotations => "annotations",
            Self::Icons => "icons",
            Self::Meta => "meta",
        }
    }
}

impl Pin {
    /// True if it waits for an operator, or one holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some() || self.stopped.is_some()
    }

    /// True if there is something of it that is not on record yet.
    fn has_event(&self) -> bool {
        let is_decided = self.stopped.is_some() || self.approved.is_some();
        let is_held = self.held.as_ref().is_some_and(|it| !it.is_noted);
        is_held || (is_decided && !self.is_noted)
    }
}

impl PinKind {
    /// Name, as in `upstream pins`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Template => "template",
            Self::Page => "page",
            Self::Resource => "resource",
        }
    }
}

/// Weight of a change, by what it can make a model or a host do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// People see it: icons.
    Low,
    /// New, renamed, or another form of results.
    Medium,
    /// A model reads it, or a client acts on it: texts, parameters, hints, user interfaces.
    High,
}

impl Severity {
    /// Name, as in `upstream diff`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Choice of held definitions that an operator approves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approved<'a> {
    /// All that is held of the upstream now.
    All,
    /// One definition.
    Item {
        /// The item's own name, or its kind and name as in `tool/echo`.
        name: &'a str,
        /// Beginning of the digest of the definition that was looked at; at least 8 hexadecimal digits.
        digest: &'a str,
    },
}

/// Decision of an operator on a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinApproval {
    /// Name that the operator gave.
    pub by: String,
    /// Reason that the operator gave.
    pub reason: String,
    /// Seconds since the epoch.
    pub at: u64,
}

/// Definition that waits for an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldDefinition {
    /// The definition, as the upstream has it now.
    pub definition: Value,
    /// SHA-256 of its canonical form (RFC 8785), in hexadecimal digits.
    pub digest: String,
    /// The same of the part that revisions of the protocol have; `None` as for [`Pin::plain_digest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_digest: Option<String>,
    /// Seconds since the epoch at which it was first seen.
    pub since: u64,
    /// Kinds of changes.
    pub changes: BTreeSet<ChangeKind>,
    /// Kind and name of the item that it takes the place of, if it is a renamed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Predicate that says what that item was guarded by, if this is the reason, and not that the two are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    #[serde(default)]
    is_noted: bool,
}

/// A pinned definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pin {
    /// The definition that is offered; `None` of one that was held when it was first seen.
    pub definition: Option<Value>,
    /// SHA-256 of its canonical form (RFC 8785), in hexadecimal digits.
    pub digest: Option<String>,
    /// The same of the part that revisions of the protocol have. `None` of a pin that was made of no more than that, by an
    /// earlier version: what is the same in it is pinned anew as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plain_digest: Option<String>,
    /// Seconds since the epoch at which it was pinned.
    pub since: u64,
    /// Definition that waits for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldDefinition>,
    /// Decision by which it was pinned; `None` of what was pinned at first sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<PinApproval>,
    /// Decision of an operator to hold it, whatever it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<PinApproval>,
    /// True of an item that its upstream lists no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
    #[serde(default)]
    is_noted: bool,
}

/// Item of an upstream whose pin is shown or decided on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PinnedItem {
    /// Name of the upstream.
    pub upstream: String,
    /// Kind.
    pub kind: PinKind,
    /// The item's own name; of a template its URI template.
    pub name: String,
    /// The pin.
    pub pin: Pin,
}

/// Choice of pins.
#[derive(Clone, Copy, Debug, Default)]
pub struct PinsWanted<'a> {
    /// Only those of this upstream.
    pub upstream: Option<&'a str>,
    /// Only those that wait for an operator, or that one holds.
    pub only_held: bool,
}

/// Event that belongs on record.
#[derive(Clone, Debug, PartialEq)]
pub enum PinEvent {
    /// A definition is held.
    Held(PinnedItem),
    /// A definition was approved, or accepted by the configuration.
    Approved(PinnedItem),
}

/// Difference of two definitions at one place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// JSON pointer.
    pub at: String,
    /// Value that is pinned.
    pub before: Option<Value>,
    /// Value that the upstream has now.
    pub after: Option<Value>,
}

/// Pins cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The file is there and cannot be used.
    #[error("the pins {} cannot be read", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("the pins {} cannot be stored", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// There is nothing to approve.
    #[error("{0}")]
    NothingHeld(String),
    /// The digits are too few to name a definition.
    #[error(
        "`{0}` are too few digits of a digest: give {MIN_DIGEST} or more of what `owlclaw-mcp upstream diff` shows"
    )]
    Short(String),
    /// The digest is that of no definition that is held.
    #[error(
        "`{name}` of `{upstream}` waits for {awaits}, which the given digest does not begin; look at it again"
    )]
    Another {
        /// Name of the item.
        name: String,
        /// Name of the upstream.
        upstream: String,
        /// Words on what it waits for, with the digests (SHA-256, in hexadecimal digits).
        awaits: String,
    },
}

/// Pins of one upstream, by kind and name.
type OfUpstream = BTreeMap<String, Pin>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct File {
    upstreams: BTreeMap<String, OfUpstream>,
}

/// Pins of all upstreams, in a directory, or in memory alone.
pub struct Pins {
    directory: Option<PathBuf>,
    /// The pins as they were last read or written.
    known: File,
    /// The file that these are the content of; `None` if they were never read, or there was no file.
    of: Option<Seen>,
    /// True once they were read.
    is_read: bool,
    /// True if another process was found to have changed them, and nobody has asked yet.
    is_other: bool,
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pins").field(&self.directory).finish()
    }
}

impl Pins {
    /// Pins that are kept in `directory` (`pins.json`, 0600), or in memory without one.
    #[must_use]
    pub fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            known: File::default(),
            of: None,
            is_read: false,
            is_other: false,
        }
    }

    /// Path of the file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(FILE))
    }

    /// All pins, by upstream, kind and name.
    ///
    /// # Errors
    ///
    /// [`PinError::Unreadable`].
    pub fn items(&self) -> Result<Vec<PinnedItem>, PinError> {
        let file = match &self.directory {
            Some(directory) => read(&directory.join(FILE))?.0,
            None => self.known.clone(),
        };
        let of = |(upstream, pins): (String, OfUpstream)| {
            pins.into_iter()
                .filter_map(move |(key, pin)| item(&upstream, &key, pin))
        };
        Ok(file.upstreams.into_iter().flat_map(of).collect())
    }

    /// One pin, as it was last read or written.
    pub(crate) fn known(&self, upstream: &str, kind: PinKind, name: &str) -> Option<PinnedItem> {
        let key = format!("{}/{name}", kind.as_str());
        let pin = self.known.upstreams.get(upstream)?.get(&key)?;
        item(upstream, &key, pin.clone())
    }

    /// A page of the pins that are `wanted`, as they were last read or written, by upstream, kind and name; those after
    /// `after`, `most` of them at most; and the number of all that are wanted.
    pub(crate) fn known_page(
        &self,
        wanted: PinsWanted<'_>,
        after: Option<(&str, &str)>,
        most: usize,
    ) -> (Vec<PinnedItem>, usize) {
        let (mut page, mut count) = (Vec::new(), 0);
        for (upstream, pins) in &self.known.upstreams {
            if wanted.upstream.is_some_and(|it| it != upstream) {
                continue;
            }
            for (key, pin) in pins {
                if wanted.only_held && !pin.is_held() {
                    continue;
                }
                count += 1;
                let is_after = after.is_none_or(|after| after < (upstream, key));
                if is_after && page.len() < most {
                    page.extend(item(upstream, key, pin.clone()));
                }
            }
        }
        (page, count)
    }

    /// True if another process has changed the file since this was last asked, or it cannot be read. What was read of it
    /// meanwhile, to compare other lists, counts as well: lists that were compared before are as they were.
    pub(crate) fn has_changed(&mut self) -> bool {
        let Some(path) = self.path() else {
            return false;
        };
        match self.look(&path) {
            Ok(()) => std::mem::take(&mut self.is_other),
            Err(_) => true,
        }
    }

    /// Digests of what is pinned of an upstream, by kind and name.
    pub(crate) fn digests(&self, upstream: &str) -> BTreeMap<String, [u8; 32]> {
        let pins = self.known.upstreams.get(upstream).into_iter().flatten();
        let there = pins.filter(|(_, pin)| pin.definition.is_some() && !pin.is_gone);
        let digests = there.filter_map(|(key, pin)| {
            let digest = unhex(pin.digest.as_deref()?)?;
            Some((key.clone(), digest))
        });
        digests.collect()
    }

    /// Digest of what is pinned of one item.
    pub(crate) fn digest(&self, upstream: &str, key: &str) -> Option<[u8; 32]> {
        let pin = self.known.upstreams.get(upstream)?.get(key)?;
        unhex(pin.digest.as_deref()?)
    }

    /// Approves what is held of an upstream. The definition that was held is the pinned one from now on. If so many pins of
    /// the upstream are of items that it lists no more that what is new is held, the approval of all forgets those, and
    /// likewise pins of pages that it does not list.
    ///
    /// The approval of a changed definition does not end an operator's hold of the item; the digest of its pin does.
    ///
    /// # Errors
    ///
    /// [`PinError`]: `NothingHeld` names what there is, `Another` says that the item was changed again since it
    /// was looked at, and `Short` that the digest has too few digits.
    pub fn approve(
        &mut self,
        upstream: &str,
        which: Approved<'_>,
        approval: &PinApproval,
    ) -> Result<Vec<PinnedItem>, PinError> {
        self.change(|file| {
            let mut approved = Vec::new();
            let (mut is_emptied, mut another) = (false, None);
            if let Some(pins) = file.upstreams.get_mut(upstream)
                && matches!(which, Approved::All)
            {
                // A decision of a person is not forgotten.
                if is_full(pins) {
                    is_emptied = true;
                    pins.retain(|key, pin| {
                        is_page_key(key) || !pin.is_gone || pin.stopped.is_some()
                    });
                }
                let unlisted = unlisted_pages(pins);
                if room_for_page(&unlisted, pins, None).is_err() {
                    is_emptied = true;
                    let is_unlisted = |key: &String| unlisted.binary_search(key).is_ok();
                    pins.retain(|key, pin| !is_unlisted(key) || pin.stopped.is_some());
                }
            }
            for (key, pin) in file.upstreams.get_mut(upstream).into_iter().flatten() {
                let changed = pin.held.as_ref().map(|it| &it.digest);
                let pinned = pin.stopped.as_ref().and(pin.digest.as_ref());
                let (frees, named) = match which {
                    _ if changed.is_none() && pinned.is_none() => continue,
                    // A person has held it by its name, and frees it by its name.
                    Approved::All if pin.stopped.is_some() => continue,
                    Approved::All => (false, ""),
                    Approved::Item { name, .. } if !is_named(key, name) => continue,
                    Approved::Item { digest, .. } if digest.len() < MIN_DIGEST => {
                        return Err(PinError::Short(digest.to_owned()));
                    }
                    Approved::Item { name, digest } => {
                        let is_meant = |it: &String| it.starts_with(digest);
                        (
                            !changed.is_some_and(is_meant) && pinned.is_some_and(is_meant),
                            name,
                        )
                    }
                };
                if let Approved::Item { digest, .. } = which
                    && !frees
                    && !changed.is_some_and(|it| it.starts_with(digest))
                {
                    // A tool and a prompt may have one name.
                    another.get_or_insert_with(|| PinError::Another {
                        name: named.to_owned(),
                        upstream: upstream.to_owned(),
                        awaits: awaits(pin),
                    });
                    continue;
                }
                pin.approved = Some(approval.clone());
                pin.is_noted = false;
                if frees {
                    pin.stopped = None;
                } else if let Some(held) = pin.held.take() {
                    pin.digest = Some(held.digest);
                    pin.plain_digest = held.plain_digest;
                    pin.definition = Some(held.definition);
                }
                pin.since = approval.at;
                approved.extend(item(upstream, key, pin.clone()));
            }
            match (which, approved.is_empty()) {
                (_, false) => Ok(approved),
                (Approved::All, true) if is_emptied => Ok(approved),
                (Approved::All, true) => Err(PinError::NothingHeld(format!(
                    "nothing of `{upstream}` is held"
                ))),
                (Approved::Item { name, .. }, true) => Err(another.unwrap_or_else(|| {
                    PinError::NothingHeld(format!("nothing of `{name}` of `{upstream}` is held"))
                })),
            }
        })?
    }

    /// Holds an item of an upstream until it is approved by its name and the digest of its pin, whatever it says.
    ///
    /// # Errors
    ///
    /// [`PinError`]: `NothingHeld` if nothing of that name is pinned.
    pub fn hold(
        &mut self,
        upstream: &str,
        name: &str,
        decision: &PinApproval,
    ) -> Result<Vec<PinnedItem>, PinError> {
        self.change(|file| {
            let mut stopped = Vec::new();
            for (key, pin) in file.upstreams.get_mut(upstream).into_iter().flatten() {
                if is_named(key, name) {
                    pin.stopped = Some(decision.clone());
                    pin.is_noted = false;
                    stopped.extend(item(upstream, key, pin.clone()));
                }
            }
            match stopped.is_empty() {
                false => Ok(stopped),
                true => Err(PinError::NothingHeld(format!(
                    "nothing of the name `{name}` is pinned of `{upstream}`"
                ))),
            }
        })?
    }

    /// Compares what an upstream lists, all of it or one page, with the pins, pins what is seen for the first time, and
    /// holds what has changed otherwise than `terms` accept.
    pub(crate) fn judge(
        &mut self,
        upstream: &str,
        terms: &dyn Terms,
        listed: &[Listed],
    ) -> Vec<Verdict> {
        let asked = (upstream, terms, listed);
        let verdicts = self.judge_all(&[asked]).into_iter().next();
        verdicts.unwrap_or_default()
    }

    /// The same for several upstreams, with their terms, whose pins are stored once for all.
    pub(crate) fn judge_all(
        &mut self,
        asked: &[(&str, &dyn Terms, &[Listed])],
    ) -> Vec<Vec<Verdict>> {
        let judged = self.change(|file| {
            let judged = asked.iter().map(|(upstream, terms, listed)| {
                let is_first = !file.upstreams.contains_key(*upstream);
                let pins = file.upstreams.entry((*upstream).to_owned()).or_default();
                judge(upstream, pins, is_first, *terms, listed)
            });
            judged.collect()
        });
        judged.unwrap_or_else(|error| {
            // What cannot be compared is not to be believed.
            let why = with_causes(&error);
            let upstreams: Vec<_> = asked.iter().map(|it| it.0).collect();
            tracing::error!(
                upstream = upstreams.join(", "),
                error = why,
                "definitions cannot be compared with their pins"
            );
            let held = || Verdict::Held {
                pinned: None,
                why: why.clone(),
            };
            let all_held = |listed: &[Listed]| listed.iter().map(|_| held()).collect();
            asked.iter().map(|it| all_held(it.2)).collect()
        })
    }

    /// Pages of an upstream that are held, by kind and name.
    pub(crate) fn held_pages(&self, upstream: &str) -> Vec<String> {
        let pins = self.known.upstreams.get(upstream).into_iter().flatten();
        let held = pins.filter(|(key, pin)| key.starts_with("page/") && pin.is_held());
        held.map(|(key, _)| key.clone()).collect()
    }

    /// Events that were not taken yet. They are not told again.
    pub(crate) fn take_events(&mut self) -> Vec<PinEvent> {
        let looked = self.path().is_none_or(|path| self.look(&path).is_ok());
        let pins = self.known.upstreams.values().flat_map(BTreeMap::values);
        if looked && !pins.into_iter().any(Pin::has_event) {
            return Vec::new();
        }
        let taken = self.change(|file| {
            let mut events = Vec::new();
            for (upstream, pins) in &mut file.upstreams {
                for (key, pin) in pins {
                    if !pin.has_event() {
                        continue;
                    }
                    if !pin.is_noted {
                        pin.is_noted = true;
                        // The later of the two is news: what is approved may be held by an operator all the same.
                        let at = |it: &Option<PinApproval>| it.as_ref().map(|it| it.at);
                        let (stopped, approved) = (at(&pin.stopped), at(&pin.approved));
                        if stopped.is_some() && approved <= stopped {
                            events.extend(item(upstream, key, pin.clone()).map(PinEvent::Held));
                        }
                        if approved.is_some() && stopped <= approved {
                            events.extend(item(upstream, key, pin.clone()).map(PinEvent::Approved));
                        }
                    }
                    if let Some(held) = pin.held.as_mut().filter(|it| !it.is_noted) {
                        held.is_noted = true;
                        events.extend(item(upstream, key, pin.clone()).map(PinEvent::Held));
                    }
                }
            }
            events
        });
        taken.unwrap_or_default()
    }

    /// Changes the pins, one process at a time, and stores them if they are others afterwards.
    fn change<T>(&mut self, change: impl FnOnce(&mut File) -> T) -> Result<T, PinError> {
        let Some(directory) = &self.directory else {
            return Ok(change(&mut self.known));
        };
        let path = directory.join(FILE);
        let unwritable = |source| PinError::Unwritable {
            path: path.clone(),
            source,
        };
        let store = Store::new(directory.clone());
        let lock = store.lock_file(LOCK).map_err(unwritable)?;
        lock.lock().map_err(unwritable)?;
        self.look(&path)?;
        let before = self.known.clone();
        let done = change(&mut self.known);
        if self.known != before {
            let bytes = serde_json::to_vec(&self.known).map_err(io::Error::other);
            let written = bytes.and_then(|bytes| store.write_durably(FILE, &bytes));
            match written.and_then(Seen::of) {
                Ok(of) => self.of = Some(of),
                Err(error) => {
                    self.known = before;
                    return Err(unwritable(error));
                }
            }
        }
        Ok(done)
    }

    /// Reads the file, unless it is the one that was last read or written.
    fn look(&mut self, path: &Path) -> Result<(), PinError> {
        if self.of.as_ref().is_some_and(|it| it.is_at(path)) {
            return Ok(());
        }
        let (file, of) = read(path).inspect_err(|_| {
            // Whatever is read next, lists were compared with nothing meanwhile.
            self.of = None;
            self.is_other = true;
        })?;
        self.is_other |= self.is_read && file != self.known;
        self.is_read = true;
        self.known = file;
        self.of = of;
        Ok(())
    }
}

/// A file as it was when it was read or written. It is kept open, so that no later one has its number.
struct Seen {
    file: std::fs::File,
    state: (u64, u64, u64, SystemTime),
}

impl Seen {
    fn of(file: std::fs::File) -> io::Result<Self> {
        let state = state(&file.metadata()?)?;
        Ok(Self { file, state })
    }

    /// True if it is the file at `path`, and was not changed since.
    fn is_at(&self, path: &Path) -> bool {
        let there = std::fs::metadata(path).and_then(|it| state(&it));
        there.is_ok_and(|it| it == self.state)
    }
}

/// Device, number, length and time of a file.
fn state(of: &std::fs::Metadata) -> io::Result<(u64, u64, u64, SystemTime)> {
    Ok((of.dev(), of.ino(), of.len(), of.modified()?))
}

fn read(path: &Path) -> Result<(File, Option<Seen>), PinError> {
    let unreadable = |source| PinError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = match regular_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((File::default(), None));
        }
        Err(source) => return Err(unreadable(source)),
    };
    // Before it is read: what is written into it meanwhile is another state.
    let seen = Seen::of(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    (&seen.file).read_to_end(&mut bytes).map_err(unreadable)?;
    let file = serde_json::from_slice(&bytes).map_err(|it| unreadable(io::Error::other(it)))?;
    Ok((file, Some(seen)))
}

fn item(upstream: &str, key: &str, pin: Pin) -> Option<PinnedItem> {
    let (kind, name) = key.split_once('/')?;
    let kinds = [
        PinKind::Tool,
        PinKind::Prompt,
        PinKind::Template,
        PinKind::Page,
        PinKind::Resource,
    ];
    Some(PinnedItem {
        upstream: upstream.to_owned(),
        kind: kinds.into_iter().find(|it| it.as_str() == kind)?,
        name: name.to_owned(),
        pin,
    })
}

/// True if a name, or kind and name as in `tool/echo`, is that of a pin.
fn is_named(key: &str, name: &str) -> bool {
    key == name || key.split_once('/').is_some_and(|it| it.1 == name)
}

/// Words on the digests by which an item is approved.
fn awaits(pin: &Pin) -> String {
    let changed = pin.held.as_ref().map(|it| {
        let digest = &it.digest;
        format!("the approval of the digest {digest}")
    });
    let freed = pin.stopped.as_ref().zip(pin.digest.as_ref());
    let freed = freed.map(|(hold, digest)| {
        format!(
            "the end of the hold by {}, by the digest {digest} of its pin",
            hold.by
        )
    });
    let words: Vec<_> = changed.into_iter().chain(freed).collect();
    words.join(", and for ")
}

/// True if no more definitions are pinned at first sight. Pages have room of their own.
fn is_full(pins: &OfUpstream) -> bool {
    let gone = pins
        .iter()
        .filter(|(key, pin)| pin.is_gone && !is_page_key(key));
    MAX_GONE <= gone.count()
}

fn is_page_key(key: &str) -> bool {
    key.starts_with("page/")
}

/// Pins of pages that their upstream does not list, in order.
fn unlisted_pages(pins: &OfUpstream) -> Vec<String> {
    let pages = pins.keys().filter(|key| is_page_key(key));
    let is_listed = |uri: &str| {
        let entry = pins.get(&format!("{}/{uri}", PinKind::Resource.as_str()));
        entry.is_some_and(|it| !it.is_gone)
    };
    let unlisted = pages.filter(|key| !is_listed(&key["page/".len()..]));
    unlisted.cloned().collect()
}

/// Tests if there is room for the pin of another page that is not listed, or, without an address, for one of any template.
///
/// # Errors
///
/// Words on what there is too much of.
fn room_for_page(unlisted: &[String], pins: &OfUpstream, uri: Option<&str>) -> Result<(), String> {
    if MAX_PAGES <= unlisted.len() {
        return Err(format!(
            "{MAX_PAGES} pages that the upstream does not list are pinned"
        ));
    }
    if unlisted.len() < MAX_PAGES_OF_TEMPLATE {
        return Ok(());
    }
    let templates = pins.iter().filter(|(_, pin)| !pin.is_gone);
    for template in templates.filter_map(|(key, _)| key.strip_prefix("template/")) {
        let fixed = template.split('{').next().unwrap_or_default();
        if !fixed.contains(':') || uri.is_some_and(|it| !it.starts_with(fixed)) {
            continue;
        }
        let is_of = |key: &&String| key["page/".len()..].starts_with(fixed);
        if MAX_PAGES_OF_TEMPLATE <= unlisted.iter().filter(is_of).count() {
            return Err(format!(
                "{MAX_PAGES_OF_TEMPLATE} pages of the template `{}` are pinned",
                template.escape_debug()
            ));
        }
    }
    Ok(())
}

/// Differences of a held definition from the pinned one, place by place.
#[must_use]
pub fn differences(pin: &Pin) -> Vec<Difference> {
    let mut found = Vec::new();
    if let Some(held) = &pin.held {
        let nothing = Value::Object(Map::new());
        let before = pin.definition.as_ref().unwrap_or(&nothing);
        compare("", &ordered(before), &ordered(&held.definition), &mut found);
    }
    found
}
