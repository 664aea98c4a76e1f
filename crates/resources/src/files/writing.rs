//! Tools that write to files.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use adapter_skills::Content;
use adapter_tools::{
    Annotations, Arguments, Executor, RiskClass, TaskSupport, Tool, ToolCx, ToolError, ToolOutput,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json, value::to_raw_value};

use crate::{
    files::{
        address::Relative,
        folder::Folder,
        offered::find,
        root::{Found, RootError, Writing},
        watch::Told,
    },
    store::{KeepError, Of, Store},
};

/// Directories that can be written to, and the old states of their files.
#[derive(Debug)]
pub(crate) struct Writers {
    pub(crate) folders: Arc<[Arc<Folder>]>,
    pub(crate) store: Option<Arc<Store>>,
    /// Told of what was written.
    pub(crate) told: Arc<dyn Told>,
}

/// The kinds of writing, each a tool of its own, so that rules can tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Write,
    Delete,
    Move,
    Undo,
}

struct WriteTool {
    kind: Kind,
    writers: Arc<Writers>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    uri: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    if_match: Option<String>,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default)]
    dry_run: bool,
}

/// The tools for the directories that can be written to; none if there is no such directory.
pub(crate) fn tools(writers: &Arc<Writers>) -> Vec<Tool> {
    let mut writable = writers.folders.iter().filter(|it| it.options.writable);
    if writable.next().is_none() {
        return Vec::new();
    }
    let kinds = [
        Kind::Create,
        Kind::Write,
        Kind::Delete,
        Kind::Move,
        Kind::Undo,
    ];
    let kinds = kinds
        .into_iter()
        .filter(|it| *it != Kind::Undo || writers.store.is_some());
    kinds.map(|it| tool(it, writers)).collect()
}

fn tool(kind: Kind, writers: &Arc<Writers>) -> Tool {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let mut properties = json!({
        "uri": text("Address of the file, spelt as resources/list has it."),
        "dryRun": {
            "type": "boolean",
            "description": "Say what would be done, and do nothing.",
        },
    });
    if kind != Kind::Create {
        properties["ifMatch"] = text(
            "Do nothing unless this is the file's `etag`, as resources/read or an earlier write has told it.",
        );
    }
    let mut required = vec!["uri"];
    let (name, description, hints) = match kind {
        Kind::Create => (
            "resource-create",
            "Creates a file, with the directories above it. Fails if there is one of this address.",
            (false, false),
        ),
        Kind::Write => (
            "resource-write",
            "Replaces the content of a file.",
            (writers.store.is_none(), true),
        ),
        Kind::Delete => ("resource-delete", "Deletes a file.", (true, false)),
        Kind::Move => (
            "resource-move",
            "Moves a file to an address of the same root where there is none.",
            (false, false),
        ),
        Kind::Undo => (
            "resource-undo",
            "Puts an earlier state of a file back: the one before the last write, or the one given. \
             The state that is replaced is kept, too.",
            (true, false),
        ),
    };
    match kind {
        Kind::Create | Kind::Write => {
            properties["text"] = text("The content, if it is text.");
            properties["blob"] = text("The content in base64, if it is no text.");
        }
        Kind::Move => {
            properties["to"] = text("The new address.");
            required.push("to");
        }
        Kind::Undo => {
            properties["version"] = json!({
                "type": "integer",
                "description": "Number of the state, as `versions` of an earlier answer has it.",
            });
        }
        Kind::Delete => {}
    }
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let executor = WriteTool {
        kind,
        writers: Arc::clone(writers),
    };
    let (is_destructive, is_idempotent) = hints;
    let tool = Tool::new(name, schema, executor)
        .describe(description)
        .with_annotations(Annotations {
            read_only: Some(false),
            destructive: Some(is_destructive),
            idempotent: Some(is_idempotent),
            open_world: Some(false),
        })
        .with_risk(RiskClass::Mutating)
        .with_task_support(TaskSupport::Forbidden)
        .with_context(true)
        .with_dry_run("dryRun");
    // What destroys is confirmed by its user, whatever else the rules say.
    match is_destructive {
        true => tool.with_rules(vec![json!({ "requires_confirmation": true })]),
        false => tool,
    }
}

impl Executor for WriteTool {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let asked: Asked = serde_json::from_value(crate::with_integers(&arguments))
                .map_err(|error| ToolError::failed(error.to_string()))?;
            let (writers, kind) = (Arc::clone(&self.writers), self.kind);
            // Carried out to its end, even if nobody waits for it any more: what is begun is on record.
            let writing = tokio::task::spawn_blocking(move || writers.carry_out(kind, &asked, &cx));
            writing.await.map_err(ToolError::broken)?
        })
    }
}

/// A place that a caller may write to.
struct Place<'f> {
    folder: &'f Arc<Folder>,
    path: Relative,
    uri: String,
}

/// Names by which states of a file are kept.
struct KeptAs<'f> {
    place: String,
    uri: &'f str,
}

impl Place<'_> {
    fn kept_as(&self) -> KeptAs<'_> {
        KeptAs {
            place: self.folder.place(),
            uri: &self.uri,
        }
    }
}

impl KeptAs<'_> {
    fn as_ref(&self) -> Of<'_> {
        Of {
            place: &self.place,
            uri: self.uri,
        }
    }
}

/// A state of a file.
type State = Option<(String, Vec<u8>)>;

impl Writers {
    fn carry_out(&self, kind: Kind, asked: &Asked, cx: &ToolCx) -> Result<ToolOutput, ToolError> {
        let place = self.place(&asked.uri, cx)?;
        let _turn = place.folder.write_turn();
        let before = state(&place)?;
        check_match(asked.if_match.as_deref(), &before, &place.uri)?;
        let max_bytes = place.folder.options.max_bytes;
        match kind {
            Kind::Create if before.is_some() => Err(refused(
                format!(
                    "{} is there already; use resource-write to replace it",
                    place.uri
                ),
                "exists",
                &place.uri,
            )),
            Kind::Create => {
                let bytes = content(asked, max_bytes)?;
                self.change(&place, &None, Some(bytes), asked.dry_run, "created", cx)
            }
            Kind::Write | Kind::Delete | Kind::Move if before.is_none() => {
                Err(not_found(&place.uri))
            }
            Kind::Write => {
                let bytes = content(asked, max_bytes)?;
                self.change(&place, &before, Some(bytes), asked.dry_run, "updated", cx)
            }
            Kind::Delete => self.change(&place, &before, None, asked.dry_run, "deleted", cx),
            Kind::Move => self.move_to(&place, before, asked, cx),
            Kind::Undo => self.undo(&place, &before, asked, cx),
        }
    }

    /// The place at an address, if the caller may write there. What it may not read it cannot tell from what is not
    /// there.
    fn place(&self, uri: &str, cx: &ToolCx) -> Result<Place<'_>, ToolError> {
        let found = find(&self.folders, uri);
        let spelt = found.as_ref().map(|(folder, path)| folder.address(path));
        // Asked in every case.
        let reads = cx.resources();
        let is_permitted = reads.is_some_and(|it| it.permits(spelt.as_deref().unwrap_or(uri)));
        let (Some((folder, path)), Some(spelt), true) = (found, spelt, is_permitted) else {
            return Err(not_found(uri));
        };
        if spelt != uri {
            // Rules may be about the text of this argument.
            let why = format!("the address of this file is spelt {spelt}");
            return Err(refused(why, "misspelt", uri));
        }
        if !folder.options.writable {
            let why = format!("the files of `{}` are not to be written to", folder.name);
            return Err(refused(why, "read_only", uri));
        }
        Ok(Place {
            folder,
            path,
            uri: spelt,
        })
    }

    /// Puts a file into another state (`None`: it is not there), and says so.
    fn change(
        &self,
        place: &Place<'_>,
        before: &State,
        after: Option<Vec<u8>>,
        is_dry: bool,
        done: &str,
        cx: &ToolCx,
    ) -> Result<ToolOutput, ToolError> {
        let etag_before = before.as_ref().map(|(etag, _)| etag.clone());
        let after = after.map(|bytes| Content::new(bytes, None));
        let etag_after = after.as_ref().map(|it| it.etag.clone());
        let is_same = etag_before == etag_after;
        let mut said = json!({
            "uri": place.uri,
            "status": if is_same { "unchanged" } else { done },
            "etagBefore": etag_before,
            "etag": etag_after,
            "size": after.as_ref().map(Content::size),
            "dryRun": is_dry,
        });
        let how = match before {
            Some(_) => Writing::Replace,
            None => Writing::New,
        };
        let root = place.folder.current();
        let root = root.map_err(|error| failure(error, &place.uri))?;
        if is_dry && !is_same {
            let possible = root.check(&place.path, how);
            possible.map_err(|error| failure(error, &place.uri))?;
            self.check_keeping(place, before)?;
        }
        if !is_dry && !is_same {
            let kept = self.keep(place, before)?;
            let changed = match &after {
                Some(after) => root.write(&place.path, &after.bytes, how),
                None => root.delete(&place.path),
            };
            self.or_forget(kept, changed, &place.uri)?;
            place.folder.wrote(&[&place.path], &*self.told);
            note(
                cx,
                done,
                &place.uri,
                etag_before.as_deref(),
                etag_after.as_deref(),
            );
        }
        if !is_dry && let Some(at) = last_modified(place) {
            said["lastModified"] = at.into();
        }
        said["versions"] = self.versions(place)?;
        answer(&said)
    }

    fn move_to(
        &self,
        from: &Place<'_>,
        before: State,
        asked: &Asked,
        cx: &ToolCx,
    ) -> Result<ToolOutput, ToolError> {
        let to = self.place(asked.to.as_deref().unwrap_or_default(), cx)?;
        if !Arc::ptr_eq(from.folder, to.folder) {
            return Err(ToolError::failed(
                "a file is moved within its root; to another one, create it there and delete it here",
            ));
        }
        if state(&to)?.is_some() {
            let why = format!("{} is there already", to.uri);
            return Err(refused(why, "exists", &to.uri));
        }
        let (etag, _) = before.as_ref().ok_or_else(|| not_found(&from.uri))?;
        let root = from.folder.current();
        let root = root.map_err(|error| failure(error, &from.uri))?;
        let kept = match asked.dry_run {
            true => [None, None],
            false => {
                let first = self.keep(from, &before)?;
                let second = self.keep(&to, &None);
                [first, second.inspect_err(|_| self.forget(first))?]
            }
        };
        let moved = match asked.dry_run {
            true => root
                .check(&to.path, Writing::New)
                .map_err(|error| match error {
                    RootError::NotAFile => RootError::Exists,
                    error => error,
                })
                .and_then(|()| root.check(&from.path, Writing::Replace))
                .and_then(|()| root.check_move(&from.path, &to.path)),
            false => root.rename(&from.path, &to.path),
        };
        let mut kept = kept.into_iter().flatten();
        let (first, second) = (kept.next(), kept.next());
        if moved.is_err() {
            self.forget(second);
        }
        // The file itself was there: what is wrong is where it should go.
        let is_there = matches!(root.look(&from.path), Ok(Some(Found::File(_))));
        match moved {
            Err(RootError::NotFound | RootError::NotAFile) if is_there => {
                self.forget(first);
                let why = format!(
                    "{} cannot be made: a part of its path is no directory",
                    to.uri
                );
                return Err(refused(why, "no_directory", &to.uri));
            }
            Err(RootError::Exists) => self.or_forget(first, moved, &to.uri)?,
            moved => self.or_forget(first, moved, &from.uri)?,
        }
        if asked.dry_run {
            self.check_keeping(from, &before)?;
        } else {
            from.folder.wrote(&[&from.path, &to.path], &*self.told);
            note(
                cx,
                &format!("moved to {}", to.uri),
                &from.uri,
                Some(etag),
                Some(etag),
            );
        }
        answer(&json!({
            "uri": to.uri,
            "from": from.uri,
            "status": "moved",
            "etagBefore": etag,
            "etag": etag,
            "dryRun": asked.dry_run,
        }))
    }

    fn undo(
        &self,
        place: &Place<'_>,
        before: &State,
        asked: &Asked,
        cx: &ToolCx,
    ) -> Result<ToolOutput, ToolError> {
        let store = self.store.as_ref().ok_or_else(|| not_found(&place.uri))?;
        let of = place.kept_as();
        let kept = store.of(of.as_ref()).map_err(ToolError::broken)?;
        let wanted = asked.version.or_else(|| kept.first().map(|it| it.number));
        let bytes = match wanted {
            Some(number) => store
                .bytes(of.as_ref(), number)
                .map_err(ToolError::broken)?,
            None => None,
        };
        let Some(bytes) = bytes else {
            let why = format!("no such earlier state of {} is kept", place.uri);
            return Err(refused(why, "no_version", &place.uri));
        };
        self.change(place, before, bytes, asked.dry_run, "restored", cx)
    }

    fn keep(&self, place: &Place<'_>, before: &State) -> Result<Option<i64>, ToolError> {
        let most = place.folder.options.versions;
        let Some(store) = self.store.as_ref().filter(|_| 0 < most) else {
            return Ok(None);
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
        let state = before.as_ref();
        let state = state.map(|(etag, bytes)| (etag.as_str(), bytes.as_slice()));
        let kept = store.keep(place.kept_as().as_ref(), now, state, most);
        kept.map(Some).map_err(|error| unkept(error, &place.uri))
    }

    /// Tests if the state of a file could be kept, as far as that is known without doing it.
    fn check_keeping(&self, place: &Place<'_>, before: &State) -> Result<(), ToolError> {
        let store = self
            .store
            .as_ref()
            .filter(|_| 0 < place.folder.options.versions);
        let size = before.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
        let checked = store.map_or(Ok(()), |it| it.check(size));
        checked.map_err(|error| unkept(error, &place.uri))
    }

    /// The outcome of a write; what was kept for it goes if it has not happened.
    fn or_forget(
        &self,
        kept: Option<i64>,
        outcome: Result<(), RootError>,
        uri: &str,
    ) -> Result<(), ToolError> {
        outcome.map_err(|error| {
            self.forget(kept);
            failure(error, uri)
        })
    }

    fn forget(&self, kept: Option<i64>) {
        if let (Some(store), Some(id)) = (&self.store, kept)
            && let Err(error) = store.forget(id)
        {
            tracing::warn!(%error, "a state of a file stays kept that was never replaced");
        }
    }

    fn versions(&self, place: &Place<'_>) -> Result<Value, ToolError> {
        let Some(store) = &self.store else {
            return Ok(json!([]));
        };
        let kept = store
            .of(place.kept_as().as_ref())
            .map_err(ToolError::broken)?;
        let kept = kept.into_iter().map(|it| {
            let at = u64::try_from(it.at_ms).unwrap_or(0);
            let at = UNIX_EPOCH + std::time::Duration::from_millis(at);
            json!({
                "version": it.number,
                "until": mcp_server::rfc3339(at),
                "etag": it.etag,
                "size": it.size,
            })
        });
        Ok(kept.collect())
    }
}

fn state(place: &Place<'_>) -> Result<State, ToolError> {
    match place.folder.read(&place.path) {
        Ok((bytes, _)) => {
            let content = Content::new(bytes, None);
            Ok(Some((content.etag, content.bytes)))
        }
        Err(RootError::NotFound) => Ok(None),
        Err(error) => Err(failure(error, &place.uri)),
    }
}

/// Time of the last change of a file, as lists have it.
fn last_modified(place: &Place<'_>) -> Option<String> {
    match place.folder.root().look(&place.path) {
        Ok(Some(Found::File(signature))) => mcp_server::rfc3339(signature.last_modified()?),
        _ => None,
    }
}

/// RFC 9110, 13.1.1: `*` is any state of a file that is there.
fn check_match(if_match: Option<&str>, before: &State, uri: &str) -> Result<(), ToolError> {
    let Some(wanted) = if_match else {
        return Ok(());
    };
    let etag = before.as_ref().map(|(etag, _)| etag.as_str());
    let mut wanted = wanted.split(',').map(|it| it.trim().trim_matches('"'));
    if wanted.any(|it| etag.is_some() && (it == "*" || Some(it) == etag)) {
        return Ok(());
    }
    let reason = match etag {
        Some(_) => "changed",
        None => "not_found",
    };
    let details = json!({ "reason": reason, "uri": uri, "etag": etag });
    let why = match etag {
        Some(etag) => format!("{uri} has changed: its etag is {etag} now; nothing was done"),
        None => format!("{uri} is not there; nothing was done"),
    };
    Err(ToolError::failed_with(why, details))
}

fn content(asked: &Asked, max_bytes: u64) -> Result<Vec<u8>, ToolError> {
    let bytes = match (&asked.text, &asked.blob) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(blob)) => STANDARD
            .decode(blob)
            .map_err(|error| ToolError::failed(format!("`blob` is no base64: {error}")))?,
        _ => return Err(ToolError::failed("give either `text` or `blob`")),
    };
    match bytes.len() as u64 <= max_bytes {
        true => Ok(bytes),
        false => {
            let bytes = bytes.len();
            let why = format!("the content has {bytes} bytes; {max_bytes} are allowed here");
            Err(refused(why, "too_large", &asked.uri))
        }
    }
}

fn not_found(uri: &str) -> ToolError {
    let why = format!("there is no resource {uri} that you can write to");
    refused(why, "not_found", uri)
}

/// Failure with its reason and address for programs.
fn refused(why: String, reason: &str, uri: &str) -> ToolError {
    ToolError::failed_with(why, json!({ "reason": reason, "uri": uri }))
}

/// Failure of what was to keep the state that a write replaces.
fn unkept(error: KeepError, uri: &str) -> ToolError {
    match error {
        KeepError::Full(_) => {
            tracing::error!(uri, %error, "an earlier state of a file cannot be kept");
            let why = format!(
                "{uri}: there is no room left to keep what would be replaced; nothing was done"
            );
            refused(why, "no_room", uri)
        }
        error @ KeepError::Other(..) => ToolError::broken(error),
    }
}

fn failure(error: RootError, uri: &str) -> ToolError {
    match error {
        RootError::NotFound => not_found(uri),
        RootError::NotAFile => {
            let why = format!("at {uri} is something that is no file");
            refused(why, "not_a_file", uri)
        }
        RootError::Io(cause) if cause.kind() == std::io::ErrorKind::PermissionDenied => {
            failure(RootError::ReadOnly, uri)
        }
        RootError::ReadOnly => {
            tracing::warn!(uri, "the system does not let a file be written");
            refused(format!("{uri}: {error}"), "read_only", uri)
        }
        RootError::Full => {
            tracing::error!(uri, "there is no room left for a file");
            refused(format!("{uri}: {error}"), "no_room", uri)
        }
        RootError::Code => refused(format!("{uri}: {error}"), "read_only", uri),
        RootError::Elsewhere => refused(format!("{uri}: {error}"), "other_file_system", uri),
        RootError::Exists => refused(format!("{uri}: {error}"), "exists", uri),
        RootError::TooLarge { .. } => refused(format!("{uri}: {error}"), "too_large", uri),
        error @ RootError::Io(_) => ToolError::broken(error),
    }
}

/// Tells the record what was done, with the digests of the content before and after.
fn note(cx: &ToolCx, done: &str, uri: &str, before: Option<&str>, after: Option<&str>) {
    let (before, after) = (before.unwrap_or("none"), after.unwrap_or("none"));
    let meter = cx.meter();
    meter.note(format!(
        "{uri} {done}: SHA-256 before {before}, after {after}"
    ));
}

fn answer(said: &Value) -> Result<ToolOutput, ToolError> {
    to_raw_value(said)
        .map(ToolOutput::from_raw)
        .map_err(ToolError::broken)
}
