//! Files as they are offered.

use std::sync::Arc;

use adapter_skills::Content;
use adapter_tools::ToolError;
use futures_util::future::{BoxFuture, ready};
use mcp_protocol::model::{
    CacheHint, CacheScope, ListResources, ReadResource, ReadResourceResult, Resource,
    ResourceTemplate,
};
use mcp_server::{ReadFailure, ResourceEntry, Resources, UNHEARD, content_result, rfc3339};

use crate::files::{
    address::{Relative, SCHEME, parse},
    folder::Folder,
    root::RootError,
};

/// Variable of the templates.
pub(crate) const VARIABLE: &str = "path";

/// The files of all directories as they were when this was made; read as they are.
#[derive(Debug)]
pub(crate) struct FileResources {
    folders: Arc<[Arc<Folder>]>,
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
}

/// Template of the addresses of a directory's files.
pub(crate) fn template(folder: &Folder) -> String {
    format!("{SCHEME}{}/{{+{VARIABLE}}}", folder.name)
}

impl FileResources {
    pub(crate) fn new(folders: Arc<[Arc<Folder>]>) -> Self {
        let mut entries = Vec::new();
        for folder in folders.iter() {
            let seen = folder.seen().into_iter();
            entries.extend(seen.map(|(path, signature)| ResourceEntry {
                resource: Resource {
                    uri: folder.address(&path),
                    name: path.as_str().to_owned(),
                    mime_type: folder.listed_type(&path),
                    size: Some(signature.size),
                    last_modified: signature.last_modified().and_then(rfc3339),
                    ..Resource::default()
                },
                category: folder.name.clone(),
                ..ResourceEntry::default()
            }));
        }
        let templates = folders.iter().map(|folder| ResourceTemplate {
            uri_template: template(folder),
            name: folder.name.clone(),
            title: Some(format!("Files of {}", folder.name)),
            description: Some(format!(
                "A file of `{}` by its path, names joined by `/`.",
                folder.name
            )),
            ..ResourceTemplate::default()
        });
        Self {
            templates: templates.collect(),
            folders,
            entries,
        }
    }

    /// The directory and the path of an address; `None` if no file there would be served.
    fn find(&self, uri: &str) -> Option<(&Arc<Folder>, Relative)> {
        find(&self.folders, uri)
    }

    fn read_now(&self, read: &ReadResource) -> Result<ReadResourceResult, ReadFailure> {
        let (folder, path) = self.find(&read.uri).ok_or(ReadFailure::NotFound)?;
        let (bytes, signature) = folder.read(&path).map_err(|error| match error {
            RootError::NotFound | RootError::NotAFile => ReadFailure::NotFound,
            error @ RootError::TooLarge { .. } => {
                ReadFailure::Handler(ToolError::failed(error.to_string()))
            }
            error => ReadFailure::Unreadable(error.into()),
        })?;
        let content = Content::new(bytes, signature.last_modified());
        let media_type = folder.media_type(&path, content.is_text);
        let cache = CacheHint {
            // It may change at any time, by the reader itself, too. Who reads again has `ifNoneMatch`.
            ttl_ms: 0,
            scope: CacheScope::Private,
        };
        content_result(&content, &media_type, read, cache)
    }
}

/// The directory and the path of an address; `None` if no file there would be served.
pub(crate) fn find<'f>(
    folders: &'f [Arc<Folder>],
    uri: &str,
) -> Option<(&'f Arc<Folder>, Relative)> {
    let (root, path) = parse(uri)?;
    let folder = folders.iter().find(|it| it.name == root)?;
    folder.serves(&path).then_some((folder, path))
}

impl Resources for FileResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    /// A category is the name of a directory of files, as configured.
    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        Ok(crate::matching(&self.entries, filter))
    }

    /// Not whether a file is there, which may change at any time: reading finds out.
    fn canonical(&self, uri: &str) -> Option<String> {
        let (folder, path) = self.find(uri)?;
        Some(folder.address(&path))
    }

    /// A file may come, so that its directory decides.
    fn family(&self, uri: &str) -> Option<String> {
        let (folder, _) = self.find(uri)?;
        Some(template(folder))
    }

    fn tells_of_changes(&self, uri: &str) -> bool {
        let found = self.find(uri);
        found.is_some_and(|(folder, path)| folder.follows(&path) && folder.address(&path) == uri)
    }

    fn hear_absent(&self, uri: &str) -> Result<(), String> {
        let (folder, path) = self.find(uri).ok_or_else(|| UNHEARD.to_owned())?;
        crate::heard(folder.follows_all(), &folder.address(&path), uri)
    }

    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let heard = match self.find(uri) {
            Some((folder, path)) => {
                crate::heard(folder.follows(&path), &folder.address(&path), uri)
            }
            None => Err(UNHEARD.to_owned()),
        };
        Box::pin(ready(heard))
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            // Disks can be slow, network file systems even hang: not on the threads that serve.
            let reading = tokio::task::spawn_blocking(move || self.read_now(&read));
            match reading.await {
                Ok(result) => result,
                Err(error) => Err(ReadFailure::Unreadable(error.into())),
            }
        })
    }
}
