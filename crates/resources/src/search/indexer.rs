//! A thread that keeps the index as what it is of.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use adapter_skills::{Content, Skill};

use crate::{
    files::{
        folder::{Changes, Folder},
        offered::find,
        watch::Told,
    },
    search::index::{Document, Index, Kind},
};

/// The most documents of one transaction: a search that comes meanwhile does not wait for them.
const AT_ONCE: usize = 200;
/// The most bytes of a document that are searched.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Pause after an index that could not be written to, before the next try.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Changes that are not in the index yet.
#[derive(Debug, Default)]
struct Waiting {
    files: BTreeSet<String>,
    all_files: bool,
    skills: Option<Vec<Arc<Skill>>>,
    others: Option<Vec<Document>>,
    is_busy: bool,
    is_over: bool,
    failure: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Indexer {
    pub(crate) index: Index,
    folders: Arc<[Arc<Folder>]>,
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

impl Indexer {
    /// Starts with a comparison of all files with what is in the index.
    pub(crate) fn start(index: Index, folders: Arc<[Arc<Folder>]>) -> std::io::Result<Arc<Self>> {
        let indexer = Arc::new(Self {
            index,
            folders,
            waiting: Mutex::new(Waiting {
                all_files: true,
                ..Waiting::default()
            }),
            woken: Condvar::new(),
        });
        let worker = Arc::clone(&indexer);
        thread::Builder::new()
            .name("search-index".to_owned())
            .spawn(move || worker.run())?;
        Ok(indexer)
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut waiting);
        self.woken.notify_all();
    }

    pub(crate) fn has_skills(&self, skills: Vec<Arc<Skill>>) {
        self.change(|it| it.skills = Some(skills));
    }

    pub(crate) fn has_others(&self, others: Vec<Document>) {
        self.change(|it| it.others = Some(others));
    }

    pub(crate) fn end(&self) {
        self.change(|it| it.is_over = true);
    }

    /// The reason for which the index is not as it should be.
    pub(crate) fn failure(&self) -> Option<String> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.failure.clone()
    }

    /// True if all that has changed is in the index.
    pub(crate) fn is_current(&self) -> bool {
        let it = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        !it.is_busy
            && !it.all_files
            && it.files.is_empty()
            && it.skills.is_none()
            && it.others.is_none()
    }

    fn run(&self) {
        loop {
            let mut taken = {
                let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let is_idle = |it: &mut Waiting| {
                    it.is_busy = false;
                    let is_idle = it.files.is_empty()
                        && !it.all_files
                        && it.skills.is_none()
                        && it.others.is_none();
                    !it.is_over && is_idle
                };
                let waiting = self.woken.wait_while(waiting, is_idle);
                let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
                if waiting.is_over {
                    return;
                }
                waiting.is_busy = true;
                let failure = waiting.failure.take();
                let taken = std::mem::take(&mut *waiting);
                waiting.is_busy = true;
                waiting.failure = failure;
                taken
            };
            let outcome = self.take_up(&mut taken);
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(()) => waiting.failure = None,
                Err(error) => {
                    tracing::error!(%error, "the index of searches cannot be written to");
                    waiting.failure = Some(error.to_string());
                    // All of it again: what was done of it is found to be so.
                    waiting.all_files |= taken.all_files || !taken.files.is_empty();
                    waiting.skills = waiting.skills.take().or(taken.skills);
                    waiting.others = waiting.others.take().or(taken.others);
                    let is_over = |it: &mut Waiting| !it.is_over;
                    drop(
                        self.woken
                            .wait_timeout_while(waiting, AFTER_FAILURE, is_over),
                    );
                }
            }
        }
    }

    fn take_up(&self, taken: &mut Waiting) -> rusqlite::Result<()> {
        if taken.all_files {
            self.compare_files()?;
        }
        if let Some(skills) = &taken.skills {
            let now = skills
                .iter()
                .map(|it| (it.uri().as_str(), it.etag().to_owned()));
            let (news, gone) = self.compare(Kind::Skill, now.collect())?;
            let skills = skills.iter().filter(|it| news.contains(it.uri().as_str()));
            self.put(skills.map(|it| of_skill(it)), gone)?;
        }
        if let Some(others) = &taken.others {
            let now = others.iter().map(|it| (it.uri.as_str(), it.state.clone()));
            let (news, gone) = self.compare(Kind::Other, now.collect())?;
            let others = others.iter().filter(|it| news.contains(it.uri.as_str()));
            self.put(others.cloned().map(Some), gone)?;
        }
        let uris: Vec<_> = taken.files.iter().cloned().collect();
        for uris in uris.chunks(AT_ONCE) {
            let documents: Vec<_> = uris.iter().filter_map(|it| self.of_file(it)).collect();
            let gone = uris
                .iter()
                .filter(|uri| !documents.iter().any(|it| it.uri == **uri));
            self.index
                .change(&documents, &gone.cloned().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn compare_files(&self) -> rusqlite::Result<()> {
        let mut now = HashMap::new();
        for folder in self.folders.iter() {
            let seen = folder.seen().into_iter();
            now.extend(seen.map(|(path, signature)| (folder.address(&path), signature.text())));
        }
        let now = now.iter().map(|(uri, state)| (uri.as_str(), state.clone()));
        let (news, gone) = self.compare(Kind::File, now.collect())?;
        self.put(news.into_iter().map(|it| self.of_file(it)), gone)
    }

    /// Addresses that are new or have another state, and those that are gone.
    fn compare<'n>(
        &self,
        kind: Kind,
        now: HashMap<&'n str, String>,
    ) -> rusqlite::Result<(HashSet<&'n str>, Vec<String>)> {
        let before = self.index.states(kind)?;
        let gone = before.keys().filter(|it| !now.contains_key(it.as_str()));
        let gone = gone.cloned().collect();
        let news = now
            .into_iter()
            .filter(|(uri, state)| before.get(*uri) != Some(state));
        Ok((news.map(|(uri, _)| uri).collect(), gone))
    }

    fn put(
        &self,
        documents: impl Iterator<Item = Option<Document>>,
        gone: Vec<String>,
    ) -> rusqlite::Result<()> {
        self.index.change(&[], &gone)?;
        let mut some = Vec::with_capacity(AT_ONCE);
        for document in documents.flatten() {
            some.push(document);
            if some.len() == AT_ONCE {
                self.index.change(&some, &[])?;
                some.clear();
            }
        }
        self.index.change(&some, &[])
    }

    /// A file as it is now; `None` if it is not there, or cannot be read.
    fn of_file(&self, uri: &str) -> Option<Document> {
        let (folder, path) = find(&self.folders, uri)?;
        let (bytes, signature) = folder.read(&path).ok()?;
        let content = Content::new(bytes, signature.last_modified());
        let media_type = folder.media_type(&path, content.is_text);
        Some(Document {
            uri: uri.to_owned(),
            kind: Kind::File,
            state: signature.text(),
            name: path.as_str().to_owned(),
            title: None,
            description: None,
            size: Some(content.size()),
            modified: signature.last_modified().and_then(mcp_server::rfc3339),
            body: body(content),
            media_type: Some(media_type),
            category: folder.name.clone(),
            tags: Vec::new(),
        })
    }
}

impl Told for Indexer {
    fn changed(&self, folder: &Arc<Folder>, changes: &Changes) {
        let uris = changes.iter().map(|(path, _)| folder.address(path));
        self.change(|it| it.files.extend(uris));
    }

    fn listed(&self) {}
}

fn of_skill(skill: &Skill) -> Option<Document> {
    let content = skill.read().ok()?;
    Some(Document {
        uri: skill.uri().as_str().to_owned(),
        kind: Kind::Skill,
        state: skill.etag().to_owned(),
        name: skill.name().to_owned(),
        title: skill.title().map(str::to_owned),
        description: Some(skill.description().to_owned()),
        size: Some(content.size()),
        modified: content.last_modified.and_then(mcp_server::rfc3339),
        body: body(content),
        media_type: Some(skill.mime_type().to_owned()),
        category: skill.category(),
        tags: skill.tags().to_vec(),
    })
}

fn body(content: Content) -> String {
    if !content.is_text {
        return String::new();
    }
    let mut text = String::from_utf8(content.bytes).unwrap_or_default();
    text.truncate(text.floor_char_boundary(MAX_BODY_BYTES));
    text
}
