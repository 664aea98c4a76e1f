//! The index: a file that can be made anew at any time.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, Row, ToSql, params, params_from_iter};
use sqlite_file::{Access, FileLock, Format, create, keep_a_log};

use crate::{search::words::spaced, store::StoreError};

const FORMAT: Format = Format {
    // "owlF"
    application_id: 0x6F77_6C46,
    version: 1,
};

const MAX_LOG_BYTES: i64 = 16 * 1024 * 1024;

const TABLES: &str = "
    CREATE TABLE document (
        id         INTEGER PRIMARY KEY,
        uri        TEXT NOT NULL UNIQUE,
        kind       TEXT NOT NULL,
        state      TEXT NOT NULL,
        title      TEXT,
        media_type TEXT,
        category   TEXT NOT NULL,
        tags       TEXT NOT NULL,
        size       INTEGER,
        modified   TEXT
    ) STRICT;
    CREATE VIRTUAL TABLE content USING fts5(
        name, title, description, body,
        tokenize = \"porter unicode61 remove_diacritics 2\"
    );
";

/// Origin of a document, by which it is compared with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Skill,
    /// Known by name alone.
    Other,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Skill => "skill",
            Self::Other => "other",
        }
    }
}

/// Knowledge of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) uri: String,
    pub(crate) kind: Kind,
    /// Changes whenever the rest does.
    pub(crate) state: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) body: String,
    pub(crate) media_type: Option<String>,
    pub(crate) category: String,
    pub(crate) tags: Vec<String>,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<String>,
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hit {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) media_type: Option<String>,
    pub(crate) category: String,
    pub(crate) size: Option<i64>,
    pub(crate) modified: Option<String>,
    pub(crate) excerpt: String,
    /// Larger is better.
    pub(crate) score: f64,
}

/// Conditions on documents besides words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) kind: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) tag: Option<String>,
    /// A beginning, such as `text/`.
    pub(crate) media_type: Option<String>,
    /// A beginning.
    pub(crate) uri: Option<String>,
    /// RFC 3339, UTC.
    pub(crate) modified_since: Option<String>,
}

/// Documents that were found, of those that the searcher may know of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub(crate) hits: Vec<Hit>,
    /// Number of all, as far as they were counted.
    pub(crate) total: usize,
    pub(crate) is_exact: bool,
    /// Score of the best.
    pub(crate) best: f64,
}

/// A search never counts further.
const MAX_COUNTED: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Index {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    _lock: FileLock,
}

impl Index {
    /// Opens the index, or makes an empty one.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let path = create(path).map_err(|cause| StoreError::Create {
            path: path.to_owned(),
            cause,
        })?;
        let lock = FileLock::take(&path).map_err(|cause| StoreError::Locked {
            path: path.clone(),
            cause,
        })?;
        let unusable = |cause: sqlite_file::Unusable| StoreError::Unusable {
            path: PathBuf::from(&path),
            cause,
        };
        let (mut writer, version) = FORMAT.open(&path, Access::Write).map_err(unusable)?;
        let mut prepare = || -> rusqlite::Result<()> {
            keep_a_log(&writer, MAX_LOG_BYTES)?;
            // What is lost with a power cut is read again.
            writer.pragma_update(None, "synchronous", "NORMAL")?;
            if version < FORMAT.version {
                let transaction = writer.transaction()?;
                transaction.execute_batch(TABLES)?;
                FORMAT.mark(&transaction)?;
                transaction.commit()?;
            }
            Ok(())
        };
        prepare().map_err(|error| unusable(error.into()))?;
        let (reader, _) = FORMAT.open(&path, Access::Read).map_err(unusable)?;
        Ok(Self {
            writer: Mutex::new(writer),
            reader: Mutex::new(reader),
            _lock: lock,
        })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// States of all documents of a kind, by address.
    pub(crate) fn states(&self, kind: Kind) -> rusqlite::Result<HashMap<String, String>> {
        let reader = self.reader();
        let mut statement =
            reader.prepare_cached("SELECT uri, state FROM document WHERE kind = ?")?;
        let states = statement.query_map([kind.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        states.collect()
    }

    /// Number of documents.
    pub(crate) fn len(&self) -> rusqlite::Result<u64> {
        let reader = self.reader();
        let count = |row: &Row<'_>| row.get::<_, i64>(0);
        let count = reader.query_row("SELECT count(*) FROM document", [], count)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Puts documents in the place of those of the same addresses, and takes others out, at once.
    pub(crate) fn change(&self, put: &[Document], take: &[String]) -> rusqlite::Result<()> {
        let mut writer = self.writer();
        let transaction = writer.transaction()?;
        {
            let mut content_out = transaction.prepare_cached(
                "DELETE FROM content WHERE rowid = (SELECT id FROM document WHERE uri = ?)",
            )?;
            let mut out = transaction.prepare_cached("DELETE FROM document WHERE uri = ?")?;
            let mut put_in = transaction.prepare_cached(
                "INSERT INTO document (uri, kind, state, title, media_type, category, tags, size, modified) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;
            let mut content_in = transaction.prepare_cached(
                "INSERT INTO content (rowid, name, title, description, body) VALUES (?, ?, ?, ?, ?)",
            )?;
            for uri in take.iter().chain(put.iter().map(|it| &it.uri)) {
                content_out.execute([uri])?;
                out.execute([uri])?;
            }
            for it in put {
                let tags: String = it.tags.iter().map(|tag| format!("\n{tag}\n")).collect();
                let size = it.size.and_then(|size| i64::try_from(size).ok());
                put_in.execute(params![
                    it.uri,
                    it.kind.as_str(),
                    it.state,
                    it.title,
                    it.media_type,
                    it.category,
                    tags,
                    size,
                    it.modified
                ])?;
                content_in.execute(params![
                    transaction.last_insert_rowid(),
                    spaced(&it.name),
                    it.title.as_deref().map(spaced),
                    it.description.as_deref().map(spaced),
                    spaced(&it.body)
                ])?;
            }
        }
        transaction.commit()
    }

    /// Documents that match, the best first, without those that `may_know` denies: they are not in the count either.
    pub(crate) fn find(
        &self,
        expression: &str,
        conditions: &Conditions,
        offset: usize,
        limit: usize,
        may_know: &dyn Fn(&str) -> bool,
    ) -> rusqlite::Result<Found> {
        let mut found = Found {
            is_exact: true,
            ..Found::default()
        };
        let mut wanted = Vec::new();
        let reader = self.reader();
        // One state of the index for both statements: a document that is taken out in between is no error.
        let reader = reader.unchecked_transaction()?;
        {
            let (sql, values) = conditions.sql(expression);
            let mut statement = reader.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let (id, uri, rank): (i64, String, f64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                if !may_know(&uri) {
                    continue;
                }
                if found.total == 0 {
                    found.best = -rank;
                }
                if (offset..offset + limit).contains(&found.total) {
                    wanted.push((id, -rank));
                }
                found.total += 1;
                if MAX_COUNTED.max(offset + limit) <= found.total {
                    found.is_exact = rows.next()?.is_none();
                    break;
                }
            }
        }
        // Excerpts are made of what is shown alone: that is what takes time.
        let mut statement = reader.prepare_cached(
            "SELECT document.uri, content.name, document.title, content.description, media_type, category, size, \
             modified, snippet(content, -1, char(2), char(3), '…', 24) \
             FROM content JOIN document ON document.id = content.rowid \
             WHERE content MATCH ? AND content.rowid = ?",
        )?;
        for (id, score) in wanted {
            let hit = statement.query_row(params![expression, id], |row| hit(row, score))?;
            found.hits.push(hit);
        }
        Ok(found)
    }
}

fn hit(row: &Row<'_>, score: f64) -> rusqlite::Result<Hit> {
    Ok(Hit {
        uri: row.get(0)?,
        name: row.get(1)?,
        title: row.get(2)?,
        description: row.get(3)?,
        media_type: row.get(4)?,
        category: row.get(5)?,
        size: row.get(6)?,
        modified: row.get(7)?,
        excerpt: row.get(8)?,
        score,
    })
}

impl Conditions {
    /// The statement: its text is made of what is written here alone, and all that callers send is a value.
    fn sql<'a>(&'a self, expression: &'a str) -> (String, Vec<Box<dyn ToSql + 'a>>) {
        let mut sql = "SELECT content.rowid, document.uri, bm25(content, 10.0, 8.0, 4.0, 1.0) AS badness \
                       FROM content JOIN document ON document.id = content.rowid WHERE content MATCH ?"
            .to_owned();
        let mut values: Vec<Box<dyn ToSql + 'a>> = vec![Box::new(expression)];
        let begins = |column: &str| format!(" AND substr({column}, 1, length(?)) = ?");
        if let Some(kind) = &self.kind {
            sql += " AND kind = ?";
            values.push(Box::new(kind));
        }
        if let Some(category) = &self.category {
            sql += " AND category = ?";
            values.push(Box::new(category));
        }
        if let Some(tag) = &self.tag {
            sql += " AND instr(tags, char(10) || ? || char(10))";
            values.push(Box::new(tag));
        }
        for (column, beginning) in [("media_type", &self.media_type), ("uri", &self.uri)] {
            if let Some(beginning) = beginning {
                sql += &begins(column);
                values.push(Box::new(beginning));
                values.push(Box::new(beginning));
            }
        }
        if let Some(since) = &self.modified_since {
            sql += " AND modified >= ?";
            values.push(Box::new(since));
        }
        sql += " ORDER BY badness, document.uri";
        (sql, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_is_taken_out_while_it_is_found_is_no_error() {
        let place = tempfile::tempdir().unwrap();
        let index = Index::open(&place.path().join("search.db")).unwrap();
        let document = Document {
            uri: "files://notes/umbrellas.md".to_owned(),
            kind: Kind::File,
            state: String::new(),
            name: "umbrellas.md".to_owned(),
            title: None,
            description: None,
            body: "A green umbrella.".to_owned(),
            media_type: None,
            category: String::new(),
            tags: Vec::new(),
            size: None,
            modified: None,
        };
        let uri = document.uri.clone();
        index.change(&[document], &[]).unwrap();
        // The first statement has found it, and the second one is still to come.
        let takes_out = |_: &str| index.change(&[], std::slice::from_ref(&uri)).is_ok();
        let find = |may_know| index.find("umbrella", &Conditions::default(), 0, 10, may_know);
        let found = find(&takes_out).unwrap();
        assert_eq!((found.total, found.hits[0].uri.as_str()), (1, &*uri));
        assert_eq!(find(&|_| true).unwrap().total, 0);
    }
}
