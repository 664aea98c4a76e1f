//! Addresses of what is in databases.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Scheme of the addresses of databases.
pub const DATABASE_SCHEME: &str = "db://";

const MAX_URI_BYTES: usize = 4_096;

/// All but the unreserved characters of RFC 3986, 2.3.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Place in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `schema`
    Schema,
    /// `tables/TABLE?offset=N`
    Table { table: String, offset: u64 },
    /// `tables/TABLE/KEY`
    Row { table: String, key: String },
    /// `queries/QUERY?NAME=VALUE&…`, in the order of their names.
    Query {
        query: String,
        values: Vec<(String, String)>,
    },
}

pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

fn decoded(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?.into_owned();
    (!text.contains('\0')).then_some(text)
}

/// Name of the database and the place that an address means; `None` if it is no address of a database.
pub(crate) fn parse(uri: &str) -> Option<(&str, Place)> {
    let scheme = uri.get(..DATABASE_SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(DATABASE_SCHEME)
        || MAX_URI_BYTES < uri.len()
        || uri.contains('#')
    {
        return None;
    }
    let (database, rest) = uri[DATABASE_SCHEME.len()..].split_once('/')?;
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, query),
        None => (rest, ""),
    };
    let mut values = Vec::new();
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        values.push((decoded(name)?, decoded(value)?));
    }
    values.sort();
    if values.windows(2).any(|it| it[0].0 == it[1].0) {
        return None;
    }
    let names = path.split('/').map(decoded).collect::<Option<Vec<_>>>()?;
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let place = match names[..] {
        ["schema"] if values.is_empty() => Place::Schema,
        ["tables", table] if !table.is_empty() => {
            let offset = match &values[..] {
                [] => 0,
                [(name, value)] if name == "offset" => value.parse().ok()?,
                _ => return None,
            };
            Place::Table {
                table: table.to_owned(),
                offset,
            }
        }
        ["tables", table, key] if !table.is_empty() && values.is_empty() => Place::Row {
            table: table.to_owned(),
            key: key.to_owned(),
        },
        ["queries", query] if !query.is_empty() => Place::Query {
            query: query.to_owned(),
            values,
        },
        _ => return None,
    };
    Some((database, place))
}

impl Place {
    /// The one address of this place.
    pub(crate) fn address(&self, database: &str) -> String {
        let mut address = self.governed_by(database);
        let values: Vec<_> = match self {
            Self::Table { offset, .. } if 0 < *offset => {
                vec![("offset".to_owned(), offset.to_string())]
            }
            Self::Query { values, .. } => values.clone(),
            _ => Vec::new(),
        };
        for (at, (name, value)) in values.iter().enumerate() {
            address.push(if at == 0 { '?' } else { '&' });
            address += &format!("{}={}", encoded(name), encoded(value));
        }
        address
    }

    /// The address by which rules know it: without values.
    pub(crate) fn governed_by(&self, database: &str) -> String {
        let path = match self {
            Self::Schema => "schema".to_owned(),
            Self::Table { table, .. } => format!("tables/{}", encoded(table)),
            Self::Row { table, key } => format!("tables/{}/{}", encoded(table), encoded(key)),
            Self::Query { query, .. } => format!("queries/{}", encoded(query)),
        };
        format!("{DATABASE_SCHEME}{database}/{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_place_has_one_address() {
        for (spelt, expected) in [
            ("db://shop/schema", Some("db://shop/schema")),
            ("DB://shop/tables/orders", Some("db://shop/tables/orders")),
            (
                "db://shop/tables/orders?offset=0",
                Some("db://shop/tables/orders"),
            ),
            (
                "db://shop/tables/orders?offset=007",
                Some("db://shop/tables/orders?offset=7"),
            ),
            (
                "db://shop/tables/a%2Fb/x%20y",
                Some("db://shop/tables/a%2Fb/x%20y"),
            ),
            (
                "db://shop/queries/q?b=2&a=%31",
                Some("db://shop/queries/q?a=1&b=2"),
            ),
            ("db://shop/queries/q?a=1&a=2", None),
            ("db://shop/queries/q?a", None),
            ("db://shop/tables/orders?limit=1", None),
            ("db://shop/tables/orders?offset=-1", None),
            ("db://shop/tables/", None),
            ("db://shop/tables/a/b/c", None),
            ("db://shop/", None),
            ("db://shop", None),
            ("db://shop/tables/a%00b", None),
            ("db://shop/schema#x", None),
            ("sql://shop/schema", None),
        ] {
            let address = parse(spelt).map(|(database, place)| place.address(database));
            assert_eq!(address.as_deref(), expected, "{spelt}");
        }
    }
}
