//! Answers of the routes, a file for each family.

pub(crate) mod approvals;
pub(crate) mod credentials;
pub(crate) mod health;
pub(crate) mod keys;
pub(crate) mod ledger;
pub(crate) mod offer;
pub(crate) mod pins;
pub(crate) mod rules;
pub(crate) mod secrets;
pub(crate) mod session;
pub(crate) mod tasks;
pub(crate) mod tools;
pub(crate) mod upstreams;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use crate::reply::Problem;

/// Items of a page unless asked for otherwise, and the most that may be asked for.
const PAGE: usize = 50;
const MAX_PAGE: usize = 500;

/// Number in the query of a URL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 0 })
    }
}

/// Size of a page that is asked for.
fn limit(asked: Option<Count>) -> Result<usize, Problem> {
    match asked {
        None => Ok(PAGE),
        Some(Count(count)) => usize::try_from(count)
            .ok()
            .filter(|it| (1..=MAX_PAGE).contains(it))
            .ok_or_else(|| Problem::bad(format!("`limit` is from 1 to {MAX_PAGE}"))),
    }
}

/// Refuses a text of a query that is none of `all`: it would meet nothing, which would read like a fact.
fn one_of(name: &str, text: &str, all: &[&str]) -> Result<(), Problem> {
    match all.contains(&text) {
        true => Ok(()),
        false => Err(Problem::bad(format!(
            "`{name}` is one of: {}",
            all.join(", ")
        ))),
    }
}

/// A text of a query as what it means.
fn read<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &str,
    text: Option<&String>,
) -> Result<Option<T>, Problem> {
    let read = text.map(|text| text.parse().map_err(|error: T::Err| error.to_string()));
    read.transpose()
        .map_err(|why| Problem::bad(format!("`{name}`: {why}")))
}
