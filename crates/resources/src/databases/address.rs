//! Addresses of what is in databases.

use crate::addresses::{self, Values, encoded};

/// Scheme of the addresses of databases.
pub const DATABASE_SCHEME: &str = "db://";

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
    Query { query: String, values: Values },
}

/// Name of the database and the place that an address means; `None` if it is no address of a database.
pub(crate) fn parse(uri: &str) -> Option<(&str, Place)> {
    let parsed = addresses::parse(DATABASE_SCHEME, uri)?;
    let values = parsed.values;
    let names: Vec<_> = parsed.path.iter().map(String::as_str).collect();
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
    Some((parsed.name, place))
}

impl Place {
    /// The one address of this place.
    pub(crate) fn address(&self, database: &str) -> String {
        let offset;
        let values = match self {
            Self::Table { offset: from, .. } if 0 < *from => {
                offset = [("offset".to_owned(), from.to_string())];
                &offset[..]
            }
            Self::Query { values, .. } => values,
            _ => &[],
        };
        addresses::with_values(self.governed_by(database), values)
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
