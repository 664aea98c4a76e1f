//! Lists of an upstream: as they were read, and without what their pins hold.

use crate::{
    catalogue::{Catalogue, Digest as PinDigest},
    pins::{Listed, PinKind, Pins, Verdict},
    upstream::{Upstream, locked, now, slot::Live},
};
use data_encoding::HEXLOWER;
use mcp_protocol::model::ResourceContents;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// Lists as they were read, and without what their pins hold.
pub(super) type Judged = Mutex<Option<(Arc<Catalogue>, Arc<Catalogue>)>>;

/// Items that are not to be used, each with the reason.
pub(super) type Held = Arc<BTreeMap<String, String>>;

/// Lists with more items held than they say, and what they were made of.
pub(super) struct WithHeld {
    of: (Arc<Catalogue>, Held),
    made: Arc<Catalogue>,
}

impl Upstream {
    /// Takes over what was read of its lists.
    pub(crate) fn listed(&self, catalogue: Catalogue, problem: Option<String>) {
        if let Some(problem) = &problem {
            tracing::warn!(
                upstream = self.spec.name,
                problem,
                "not all of an upstream is known"
            );
        }
        let mut record = locked(&self.record);
        match &problem {
            Some(problem) => record.last_error = Some((now(), problem.clone())),
            // All of them are answers.
            None => {
                record.error = None;
                record.cure = None;
                record.wants_login = false;
            }
        }
        record.lists_error = problem;
        drop(record);
        let before = self.catalogue();
        let is_same = before
            .as_ref()
            .is_some_and(|it| it.lists_the_same(&catalogue));
        if let Some(store) = &self.store {
            catalogue.save(store, &self.spec.name, &self.spec.identity());
        }
        // The same value stays where its tools are still good.
        let catalogue = match (is_same, before) {
            (true, Some(before)) => Arc::new(Catalogue {
                read_at: catalogue.read_at,
                ..(*before).clone()
            }),
            _ => Arc::new(catalogue),
        };
        if is_same && let Some((read, _)) = &mut *locked(&self.judged) {
            *read = Arc::clone(&catalogue);
        }
        self.known.store(Some(catalogue));
        self.note();
        self.heard.send_replace(true);
        if !is_same {
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// Lists of the upstream without what their pins hold, as far as they are known. What is another definition for one
    /// client is held for all.
    pub(crate) fn offered(&self) -> Option<Arc<Catalogue>> {
        let offered = self.judge(&self.judged, self.catalogue()?);
        let of_clients = locked(&self.held_for_clients).clone();
        if of_clients.keys().all(|it| offered.held.contains_key(it)) {
            return Some(offered);
        }
        let mut with_held = locked(&self.with_held);
        if let Some(WithHeld { of, made }) = &*with_held
            && Arc::ptr_eq(&of.0, &offered)
            && Arc::ptr_eq(&of.1, &of_clients)
        {
            return Some(Arc::clone(made));
        }
        let mut made = (*offered).clone();
        for (item, why) in &*of_clients {
            let held = made.held.entry(item.clone());
            held.or_insert_with(|| why.clone());
        }
        let made = Arc::new(made);
        *with_held = Some(WithHeld {
            of: (offered, of_clients),
            made: Arc::clone(&made),
        });
        Some(made)
    }

    /// Reason why an item is held, by what its lists say on this connection, or on that of another client.
    pub(crate) fn holds(&self, live: &Live, kind: &str, name: &str) -> Option<String> {
        let own = live.lists.load_full();
        let own = own.map(|own| self.judge(&live.judged, own));
        let lists = [own, self.offered()];
        let mut lists = lists.iter().flatten().filter(|it| !it.held.is_empty());
        lists.find_map(|it| it.held.get(&format!("{kind}/{name}")).cloned())
    }

    /// Definitions that wait for an operator, by kind and name, each with the reason as far as it is known.
    pub(crate) fn held(&self) -> BTreeMap<String, String> {
        let of_clients = Arc::clone(&locked(&self.held_for_clients));
        let mut held = (*of_clients).clone();
        if let Some((_, judged)) = &*locked(&self.judged) {
            held.extend(judged.held.clone());
        }
        // What is held for one client alone.
        let own: Vec<_> = match self.has_own() {
            true => locked(&self.of_clients)
                .iter()
                .filter_map(|(key, slot)| Some((Arc::clone(&key.principal), slot.live()?)))
                .collect(),
            false => Vec::new(),
        };
        for (client, live) in own {
            if let Some((_, judged)) = &*locked(&live.judged) {
                for (item, why) in &judged.held {
                    let why = || format!("{why} (for client `{}`)", client.escape_debug());
                    held.entry(item.clone()).or_insert_with(why);
                }
            }
        }
        for page in locked(&self.pins).held_pages(&self.spec.name) {
            let why = format!(
                "`{}` of `{}` is held, and waits for `owlclaw-mcp upstream approve`",
                page.escape_debug(),
                self.spec.name
            );
            held.entry(page).or_insert(why);
        }
        held
    }

    /// Digest of the pinned definition of the resource at an address of the upstream, if it is the page of an app: that of
    /// the page, or else that of its entry in the list.
    pub(crate) fn pin_of_page(&self, uri: &str) -> Option<PinDigest> {
        let pins = locked(&self.pins);
        let pin = |kind: PinKind| pins.digest(&self.spec.name, &format!("{}/{uri}", kind.as_str()));
        pin(PinKind::Page).or_else(|| pin(PinKind::Resource))
    }

    /// Compares the lists of connections for one client each with the pins, and holds for all what is held for one.
    /// Definitions that an upstream shows to a client with a credential of its own are held for this client alone: they
    /// may differ by its rights.
    pub(crate) fn judge_for_clients(&self) {
        if self.has_own() {
            return;
        }
        let mut held = BTreeMap::new();
        let own: Vec<_> = locked(&self.of_clients).values().cloned().collect();
        for slot in own {
            if let Some(live) = slot.live()
                && let Some(lists) = live.lists.load_full()
            {
                held.extend(self.judge(&live.judged, lists).held.clone());
            }
        }
        let mut known = locked(&self.held_for_clients);
        if **known != held {
            *known = Arc::new(held);
            drop(known);
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// Compares the page of an app with its pin.
    ///
    /// # Errors
    ///
    /// The reason why it is held.
    pub(crate) fn judge_page(
        &self,
        uri: &str,
        contents: &[ResourceContents],
    ) -> Result<(), String> {
        let contents = contents.iter().map(|it| {
            let content = it.text.as_ref().or(it.blob.as_ref());
            let content = content.map_or("", String::as_str);
            let meta = it
                .meta
                .as_ref()
                .map(|it| serde_json::from_slice(it.as_bytes()));
            let mut page = json!({
                "mimeType": it.mime_type,
                "sha256": HEXLOWER.encode(&Sha256::digest(content)),
                "bytes": content.len(),
                "_meta": meta.and_then(Result::<Value, _>::ok),
            });
            if it.text.is_none() {
                // The same characters are another page when they are decoded.
                page["encoding"] = json!("base64");
            }
            page
        });
        let page = Listed {
            kind: PinKind::Page,
            name: uri.to_owned(),
            definition: json!({ "contents": contents.collect::<Vec<_>>() }),
            further: Some(json!({})),
        };
        let spec = &self.spec;
        let mut pins = locked(&self.pins);
        let before = pins.held_pages(&spec.name);
        let verdicts = pins.judge(&spec.name, spec, &[page]);
        if before != pins.held_pages(&spec.name) {
            // For the record.
            self.changes.send_modify(|version| *version += 1);
        }
        match verdicts.into_iter().next() {
            Some(Verdict::Held { why, .. }) => Err(why),
            _ => Ok(()),
        }
    }

    /// Compares lists with their pins when they are next looked at, since the pins have changed.
    pub(crate) fn judge_anew(&self) {
        *locked(&self.judged) = None;
        let own: Vec<_> = locked(&self.of_clients).values().cloned().collect();
        for slot in own {
            let Some(live) = slot.live() else { continue };
            match live.desk.calls() {
                // It may be of before the change that was approved; a new connection tells.
                0 => slot.leave(&live),
                _ => *locked(&live.judged) = None,
            }
        }
        self.judge_for_clients();
    }

    /// Lists without what their pins hold, compared once.
    fn judge(&self, judged: &Judged, known: Arc<Catalogue>) -> Arc<Catalogue> {
        let mut judged = locked(judged);
        if let Some((of, judged)) = &*judged
            && Arc::ptr_eq(of, &known)
        {
            return Arc::clone(judged);
        }
        let offered = known.judged(&mut locked(&self.pins), &self.spec);
        let offered = self.offerable(&known, offered);
        *judged = Some((known, Arc::clone(&offered)));
        offered
    }

    /// Compares the lists of several upstreams that were not compared yet, in order of their names, so that their pins are
    /// stored once and not once for each.
    pub(crate) fn judge_together(pins: &Mutex<Pins>, upstreams: &[Arc<Self>]) {
        let waiting = upstreams.iter().filter_map(|upstream| {
            let known = upstream.catalogue()?;
            let judged = locked(&upstream.judged);
            let of = judged.as_ref().map(|(of, _)| of);
            let is_judged = of.is_some_and(|it| Arc::ptr_eq(it, &known));
            (!is_judged).then_some((upstream, known, judged))
        });
        let waiting: Vec<_> = waiting.collect();
        let lists = waiting.iter().map(|(it, known, _)| (&it.spec, &**known));
        let lists: Vec<_> = lists.collect();
        if lists.is_empty() {
            return;
        }
        let offered = Catalogue::judged_all(&mut locked(pins), &lists);
        for ((upstream, known, mut judged), offered) in waiting.into_iter().zip(offered) {
            let offered = upstream.offerable(&known, offered);
            *judged = Some((known, offered));
        }
    }

    /// Lists that were compared with their pins; nothing that is pinned, if they could not be.
    fn offerable(&self, known: &Catalogue, judged: Result<Catalogue, String>) -> Arc<Catalogue> {
        Arc::new(judged.unwrap_or_else(|error| {
            tracing::error!(
                upstream = self.spec.name,
                error,
                "the lists of an upstream cannot be compared with their pins, and are not offered"
            );
            Catalogue {
                tools: Vec::new(),
                prompts: Vec::new(),
                templates: Vec::new(),
                ..known.clone()
            }
        }))
    }
}
