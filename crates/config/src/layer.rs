//! A layer of configuration: what one source says, each value checked, its origin noted.

use std::collections::{BTreeMap, BTreeSet};

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use crate::environment::interpolate::Reference;
use crate::problem::Origin;

/// Origins by key; a key is the path from the root.
pub(crate) type Origins = BTreeMap<String, Origin>;

/// Values of one source.
#[derive(Debug)]
pub(crate) struct Layer {
    name: &'static str,
    values: Dict,
    pub(crate) origins: Origins,
    /// The lines of the file that secrets are written out on, from 1.
    pub(crate) secret_lines: BTreeSet<usize>,
    /// The references, by the keys whose values they stand in.
    pub(crate) references: Vec<(String, Reference)>,
    /// Reasons why upstreams cannot be used, by their names: a reference of theirs cannot be resolved.
    pub(crate) unresolved: Vec<(String, String)>,
}

impl Layer {
    pub(crate) fn new(name: &'static str, values: Dict, origins: Origins) -> Self {
        Self {
            name,
            values,
            origins,
            secret_lines: BTreeSet::new(),
            references: Vec::new(),
            unresolved: Vec::new(),
        }
    }

    pub(crate) fn empty(name: &'static str) -> Self {
        Self::new(name, Dict::new(), Origins::new())
    }

    /// Sets what stands at `path`, which has at least one segment.
    pub(crate) fn set(&mut self, path: &[&str], value: Value, origin: Origin) {
        self.origins.insert(join(path), origin);
        insert(&mut self.values, path, value);
    }

    /// The boolean at `path`, if there is one.
    pub(crate) fn flag(&self, path: &[&str]) -> Option<bool> {
        let (last, sections) = path.split_last()?;
        let mut values = &self.values;
        for section in sections {
            values = values.get(*section)?.as_dict()?;
        }
        values.get(*last)?.to_bool()
    }
}

fn insert(values: &mut Dict, path: &[&str], value: Value) {
    match path {
        [] => {}
        [key] => {
            values.insert((*key).to_owned(), value);
        }
        [key, rest @ ..] => {
            let section = values
                .entry((*key).to_owned())
                .or_insert_with(|| Dict::new().into());
            if let Value::Dict(_, section) = section {
                insert(section, rest, value);
            }
        }
    }
}

/// The layer as [`figment`] merges it.
impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// Origin of `key`, or of a key beside it: a missing key is reported where its neighbours are.
pub(crate) fn origin_near(origins: &Origins, key: &str) -> Origin {
    let section = key.rsplit_once('.').map_or("", |(section, _)| section);
    let is_beside = |(other, _): &(&String, &Origin)| {
        let rest = other.strip_prefix(section);
        rest.is_some_and(|rest| rest.starts_with('.') || rest.starts_with('['))
    };
    let origin = origins
        .get(key)
        .or_else(|| Some(origins.iter().find(is_beside)?.1));
    origin.cloned().unwrap_or(Origin::Default)
}

/// `a.b.c`, as messages and `config show` write a path.
pub(crate) fn join(path: &[&str]) -> String {
    path.iter()
        .fold(String::new(), |path, segment| child(&path, segment))
}

/// `path.name`; a name that could be mistaken for more than one segment is quoted.
pub(crate) fn child(path: &str, name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let name = match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    };
    match path {
        "" => name,
        path => format!("{path}.{name}"),
    }
}
