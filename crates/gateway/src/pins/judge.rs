//! Comparison of what an upstream lists with its pins.

use super::definition::{Likeness, changes, digest, whole};
use super::{
    ChangeKind, HeldDefinition, MAX_GONE, OfUpstream, Pin, PinApproval, PinKind, is_full,
    room_for_page, unlisted_pages,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{SystemTime, UNIX_EPOCH},
};

/// Definition as an upstream lists it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub(crate) kind: PinKind,
    pub(crate) name: String,
    /// The part that revisions of the protocol have.
    pub(crate) definition: Value,
    /// The other members that were sent ([`further`]); `None` if they are not known.
    pub(crate) further: Option<Value>,
}

impl Listed {
    /// Kind and name.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.kind.as_str(), self.name)
    }
}

/// Definition as it is compared with its pin.
struct Offered {
    /// All that was sent of it.
    definition: Value,
    digest: String,
    plain: Value,
    plain_digest: String,
    /// False if only the part that revisions of the protocol have is known.
    is_whole: bool,
}

impl Offered {
    fn of(listed: &Listed) -> Self {
        let plain = listed.definition.clone();
        let plain_digest = digest(&plain);
        let more = listed.further.as_ref();
        let more = more.filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
        let definition = match more {
            Some(more) => whole(plain.clone(), more),
            None => plain.clone(),
        };
        Self {
            digest: match more {
                Some(_) => digest(&definition),
                None => plain_digest.clone(),
            },
            definition,
            plain,
            plain_digest,
            is_whole: listed.further.is_some(),
        }
    }

    /// True if it is what is pinned, as far as both say.
    fn is_pinned(&self, pin: &Pin) -> bool {
        match (&pin.digest, &pin.plain_digest) {
            (Some(digest), None) => *digest == self.plain_digest,
            (Some(_), Some(plain)) if !self.is_whole => *plain == self.plain_digest,
            (Some(digest), Some(_)) => *digest == self.digest,
            (None, _) => false,
        }
    }

    /// Kinds of the changes from what is pinned.
    fn changes_of(&self, before: &Value, pin: &Pin) -> BTreeSet<ChangeKind> {
        let is_plain = pin.plain_digest.is_none() || !self.is_whole;
        let after = if is_plain {
            &self.plain
        } else {
            &self.definition
        };
        changes(before, after)
    }

    /// True if it is what is held already, as far as both say.
    fn is_held(&self, held: &HeldDefinition) -> bool {
        match &held.plain_digest {
            None => held.digest == self.plain_digest,
            Some(plain) if !self.is_whole => *plain == self.plain_digest,
            Some(_) => held.digest == self.digest,
        }
    }
}

/// As many digits of a digest as people compare.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Settings of an upstream by which its definitions are judged.
pub(crate) trait Terms {
    /// Kinds of changes that are accepted.
    fn accepted(&self) -> &BTreeSet<ChangeKind>;

    /// The setting that names an item of this kind, and leaves the new one of this name freer.
    fn frees(&self, kind: PinKind, item: &str, new: &str) -> Option<String>;
}

/// Verdict on a definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The definition is the pinned one.
    Good,
    /// Not to be called; clients see the pinned definition, if there is one.
    Held { pinned: Option<Value>, why: String },
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|it| it.as_secs()).unwrap_or_default()
}

/// Compares what is listed with `pins`, pins what is seen for the first time, and holds what has changed otherwise than
/// `terms` accept.
pub(super) fn judge(
    upstream: &str,
    pins: &mut OfUpstream,
    is_first: bool,
    terms: &dyn Terms,
    listed: &[Listed],
) -> Vec<Verdict> {
    let key_of = Listed::key;
    let present: BTreeSet<String> = listed.iter().map(key_of).collect();
    // A page that is read says nothing of what is listed.
    let is_page = matches!(listed, [it] if it.kind == PinKind::Page);
    let mut went = BTreeSet::new();
    for (key, pin) in pins.iter_mut().filter(|_| !is_page) {
        let listed = key.strip_prefix("page/");
        let listed = listed.map(|uri| format!("{}/{uri}", PinKind::Resource.as_str()));
        let is_gone = !present.contains(listed.as_ref().unwrap_or(key));
        if is_gone && !pin.is_gone {
            went.insert(key.clone());
        }
        pin.is_gone = is_gone;
    }
    if is_full(pins) {
        // What was never offered frees nothing by being forgotten: it is new again when it comes back.
        // An operator's hold is a decision, and stays.
        pins.retain(|_, pin| pin.definition.is_some() || !pin.is_gone || pin.stopped.is_some());
    }
    let is_full = is_full(pins);
    let is_new = |it: &&Listed| {
        let pin = pins.get(&key_of(it));
        !is_first && pin.map_or(!is_full, |it| it.definition.is_none())
    };
    let renamed: BTreeMap<String, Former> = match listed.iter().any(|it| is_new(&it)) {
        true => {
            let others = Others::among(pins, &went);
            let new = listed.iter().filter(is_new);
            new.filter_map(|it| Some((key_of(it), others.former(it, terms)?)))
                .collect()
        }
        false => BTreeMap::new(),
    };
    let mut verdicts = Vec::with_capacity(listed.len());
    for it in listed {
        let offered = Offered::of(it);
        let digest = offered.digest.clone();
        let item = format!("`{}` of `{upstream}`", key_of(it).escape_debug());
        let pin = pins.get(&key_of(it));
        let mut former = renamed.get(&key_of(it)).cloned();
        if let Some(pin) = pin.filter(|it| it.definition.is_none())
            && let Some(held) = pin.held.as_ref().filter(|it| offered.is_held(it))
        {
            // It stays held when the list is looked at again, whatever has gone since.
            former = former.or_else(|| {
                let key = held.same_as.clone()?;
                let guard = held.guard.clone();
                Some(Former { key, guard })
            });
        }
        if pin.is_none() && it.kind == PinKind::Page {
            let unlisted = unlisted_pages(pins);
            let entry = pins.get(&format!("{}/{}", PinKind::Resource.as_str(), it.name));
            let is_listed = entry.is_some_and(|it| !it.is_gone);
            if !is_listed && let Err(full) = room_for_page(&unlisted, pins, Some(&it.name)) {
                let why = format!(
                    "{item} is new, and {full}. `owlclaw-mcp upstream approve --all` forgets pages that are not listed"
                );
                tracing::warn!(upstream, page = it.name, "a page is held: {full}");
                verdicts.push(Verdict::Held { pinned: None, why });
                continue;
            }
        } else if pin.is_none() && is_full && !is_first {
            let why = format!(
                "{item} is new, and {MAX_GONE} items that were pinned are gone: the upstream has other names each time. \
                 `owlclaw-mcp upstream approve --all` forgets what is gone"
            );
            verdicts.push(Verdict::Held { pinned: None, why });
            continue;
        }
        let pinned = pin.and_then(|pin| Some((pin.definition.as_ref()?, pin)));
        let changes = match (pinned, &former) {
            (Some((_, pin)), _) if offered.is_pinned(pin) => BTreeSet::new(),
            (Some((before, pin)), _) => offered.changes_of(before, pin),
            (None, Some(_)) => [ChangeKind::Renamed].into(),
            (None, None) if is_first => BTreeSet::new(),
            (None, None) => [ChangeKind::New].into(),
        };
        let pinned = pinned.map(|(definition, _)| definition.clone());
        let before = pin.cloned();
        let before_stop = pin.and_then(|it| it.stopped.clone());
        let is_pinned = pinned.is_some();
        let (pin, verdict) = if changes.is_subset(terms.accepted()) {
            let new = Pin {
                definition: Some(offered.definition),
                digest: Some(digest),
                plain_digest: offered.is_whole.then_some(offered.plain_digest),
                since: now(),
                held: None,
                stopped: None,
                // Told, so that it is on record when it came; what is seen first is the beginning of the record.
                approved: (!changes.is_empty()).then(|| PinApproval {
                    by: "configuration".to_owned(),
                    reason: format!("accept_changes: {}", words(&changes)),
                    at: now(),
                }),
                is_gone: false,
                is_noted: false,
            };
            match before {
                // As it was, or as it is again.
                Some(pin) if changes.is_empty() && is_pinned => {
                    // An earlier version may have made the digest otherwise, or of less. What is known of less is no reason
                    // to pin less.
                    let pin = match pin.plain_digest.is_none() || offered.is_whole {
                        true => Pin {
                            definition: new.definition,
                            digest: new.digest,
                            plain_digest: new.plain_digest,
                            ..pin
                        },
                        false => pin,
                    };
                    (Pin { held: None, ..pin }, Verdict::Good)
                }
                _ => (new, Verdict::Good),
            }
        } else {
            let mut why = match &former {
                Some(Former { key, guard: None }) => {
                    format!("{item} is `{key}` under another name")
                }
                Some(Former {
                    key,
                    guard: Some(guard),
                }) => {
                    format!("{item} is new, and came as `{key}` went, which {guard}")
                }
                None if is_pinned => {
                    format!("the definition of {item} has changed: {}", words(&changes))
                }
                None => format!("{item} is new"),
            };
            let pinned_digest = before.as_ref().and_then(|it| it.digest.as_deref());
            let offered_digest = short(&digest);
            why.push_str(&match pinned_digest.filter(|_| is_pinned) {
                Some(pinned) => format!(" (pinned {}, now {offered_digest})", short(pinned)),
                None => format!(" ({offered_digest})"),
            });
            why.push_str(", and waits for `owlclaw-mcp upstream approve`");
            let known = before.as_ref().and_then(|it| it.held.clone());
            let known = known.filter(|it| offered.is_held(it));
            let plain_digest = offered.is_whole.then_some(offered.plain_digest);
            let held = known.map(|it| match (&it.plain_digest, &plain_digest) {
                (None, Some(_)) => HeldDefinition {
                    definition: offered.definition.clone(),
                    digest: digest.clone(),
                    plain_digest: plain_digest.clone(),
                    ..it
                },
                _ => it,
            });
            let held = held.unwrap_or_else(|| HeldDefinition {
                definition: offered.definition,
                digest,
                plain_digest,
                since: now(),
                changes,
                guard: former.as_ref().and_then(|it| it.guard.clone()),
                same_as: former.map(|it| it.key),
                is_noted: false,
            });
            let pin = Pin {
                held: Some(held),
                ..before.unwrap_or(Pin {
                    definition: None,
                    digest: None,
                    plain_digest: None,
                    since: now(),
                    held: None,
                    stopped: None,
                    approved: None,
                    is_gone: false,
                    is_noted: false,
                })
            };
            (pin, Verdict::Held { pinned, why })
        };
        let stopped = before_stop.or(pin.stopped.clone());
        let verdict = match &stopped {
            Some(by) => Verdict::Held {
                pinned: pin.definition.clone(),
                why: format!(
                    "{} holds {item} ({}){}, until `owlclaw-mcp upstream approve` with the digest of its pin{}",
                    by.by,
                    by.reason,
                    match &pin.digest {
                        Some(pinned) => format!(" (pinned {})", short(pinned)),
                        None => String::new(),
                    },
                    match &pin.held {
                        Some(held) => format!(
                            "; besides, it has changed ({}, now {})",
                            words(&held.changes),
                            short(&held.digest)
                        ),
                        None => String::new(),
                    }
                ),
            },
            None => verdict,
        };
        pins.insert(key_of(it), Pin { stopped, ..pin });
        verdicts.push(verdict);
    }
    verdicts
}

/// Item whose place a new one has taken.
#[derive(Clone, Debug)]
struct Former {
    key: String,
    /// Predicate of the guard of it, if that is the reason.
    guard: Option<String>,
}

/// Pins that a new item may be another name of.
struct Others<'a> {
    /// Texts and parameters of each whose item is gone, and of those that were held of it.
    gone: Vec<(&'a str, Likeness)>,
    /// Texts and parameters of each whose item is there.
    present: Vec<(&'a str, Likeness)>,
    /// Pins of items that were there until this change.
    went: Vec<(&'a str, &'a Pin)>,
}

impl<'a> Others<'a> {
    fn among(pins: &'a OfUpstream, went: &BTreeSet<String>) -> Self {
        // What was never offered has no place that could be taken.
        let offered = pins.iter().filter(|(_, pin)| pin.definition.is_some());
        let (gone, present): (Vec<_>, Vec<_>) = offered.partition(|(_, pin)| pin.is_gone);
        let said = |(key, pin): (&'a String, &'a Pin)| {
            let held = pin.held.as_ref().map(|it| &it.definition);
            let definitions = pin.definition.iter().chain(held);
            definitions.map(move |it| (key.as_str(), Likeness::of(it)))
        };
        Self {
            gone: gone.into_iter().flat_map(said).collect(),
            present: present.into_iter().flat_map(said).collect(),
            went: pins
                .iter()
                .filter(|(key, _)| went.contains(*key))
                .map(|(key, pin)| (key.as_str(), pin))
                .collect(),
        }
    }

    /// The item that a new one may be under another name: one that is gone and that it is like, or one beside which it comes
    /// with the same words and parameters, or only like it if a setting names that one alone; or else one that went as it
    /// came, and that an operator holds, or a setting names that leaves the new one free.
    fn former(&self, new: &Listed, terms: &dyn Terms) -> Option<Former> {
        let name_of = |key: &'a str| {
            let (kind, name) = key.split_once('/')?;
            (kind == new.kind.as_str() && name != new.name).then_some(name)
        };
        let likeness = Likeness::of(&new.definition);
        let mut gone = self.gone.iter().filter(|(key, _)| name_of(key).is_some());
        let mut present = self.present.iter();
        let is_beside = |(key, it): &&(&'a str, Likeness)| {
            let frees = |name| terms.frees(new.kind, name, &new.name).is_some();
            name_of(key).is_some_and(|name| {
                it.is_the_same(&likeness) || (it.is_like(&likeness) && frees(name))
            })
        };
        let same = gone.find(|(_, it)| it.is_like(&likeness));
        if let Some((key, _)) = same.or_else(|| present.find(|it| is_beside(it))) {
            let (key, guard) = ((*key).to_owned(), None);
            return Some(Former { key, guard });
        }
        self.went.iter().find_map(|(key, pin)| {
            let name = name_of(key)?;
            // What was never offered guards nothing.
            let is_held = pin.stopped.is_some() || (pin.held.is_some() && pin.definition.is_some());
            let guard = match is_held {
                true => Some("is held".to_owned()),
                false => terms
                    .frees(new.kind, name, &new.name)
                    .map(|it| format!("`{it}` names")),
            };
            let key = (*key).to_owned();
            guard.map(|guard| Former {
                key,
                guard: Some(guard),
            })
        })
    }
}

fn words(changes: &BTreeSet<ChangeKind>) -> String {
    let names: Vec<_> = changes.iter().map(|it| it.as_str()).collect();
    names.join(", ")
}
