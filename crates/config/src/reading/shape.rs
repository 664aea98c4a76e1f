//! Values that each place of a configuration may hold: the JSON Schema of [`Config`], made easy to
//! walk.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::sections::Config;

/// The only key at the top of the file.
pub(crate) const ROOT_KEY: &str = "mcp_server";

/// Keys by name.
pub(crate) type Keys = BTreeMap<String, Shape>;

/// Values that a key may hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// Named keys and no others.
    Section(Keys),
    /// Names the operator chooses, each with the same shape behind it.
    Table(Box<Shape>),
    /// The same, with patterns over names in the place of names.
    Patterns(Box<Shape>),
    /// Any number of the same.
    List(Leaf),
    /// The same, some of them in groups: lists within the list.
    Groups(Leaf),
    /// Any JSON value, taken as it is: `${NAME}` has no meaning in it.
    Json,
    /// One value.
    Single(Leaf),
}

/// One value, without what its place says about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Leaf {
    Boolean,
    Integer {
        min: u64,
        max: u64,
    },
    /// An integer that may be written with a unit, as in `60s`.
    Measure {
        unit: Unit,
        min: u64,
        max: u64,
    },
    /// An amount of money; zero is one unless it says otherwise.
    Amount {
        is_zero_allowed: bool,
    },
    /// A part of everything, from 0 to 1.
    Share,
    Choice(Vec<String>),
    Text(Format),
}

/// Unit of a number, by the end of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds,
    Seconds,
    Minutes,
    Bytes,
}

const TIMES: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("min", 60_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

impl Unit {
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Some(match key.rsplit_once('_').map_or(key, |(_, last)| last) {
            "milliseconds" => Self::Milliseconds,
            "seconds" => Self::Seconds,
            "minutes" => Self::Minutes,
            "bytes" => Self::Bytes,
            // That of a header, which is in seconds.
            _ if key == "max_age" => Self::Seconds,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
            Self::Minutes => "minutes",
            Self::Bytes => "bytes",
        }
    }

    /// The units that a number may be written with, and how many of the smallest they are.
    pub(crate) fn suffixes(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Bytes => &SIZES,
            _ => &TIMES,
        }
    }

    fn smallest(self) -> u64 {
        match self {
            Self::Milliseconds | Self::Bytes => 1,
            Self::Seconds => 1_000,
            Self::Minutes => 60_000,
        }
    }

    /// The value of `text` in this unit, with or without a unit of its own; `None` if that is no whole
    /// number.
    pub(crate) fn read(self, text: &str) -> Option<u64> {
        let is_part = |it: &u8| it.is_ascii_digit() || *it == b'.';
        let (number, suffix) = text.split_at(text.bytes().take_while(is_part).count());
        if suffix.is_empty() {
            return number.parse().ok();
        }
        let suffix = suffix.strip_prefix(' ').unwrap_or(suffix);
        let mut known = self.suffixes().iter();
        let (_, factor) = known.find(|(known, _)| known.eq_ignore_ascii_case(suffix))?;
        let smallest = times(number, *factor)?;
        (smallest % self.smallest() == 0).then(|| smallest / self.smallest())
    }
}

/// A decimal multiplied by `factor`, exactly; `None` if the product is no whole number.
fn times(decimal: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, "0"));
    let whole: u64 = whole.parse().ok()?;
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction: u128 = fraction.parse().ok()?;
    let product = fraction.checked_mul(factor.into())?;
    let rest = (product % scale == 0).then(|| product / scale)?;
    whole
        .checked_mul(factor)?
        .checked_add(u64::try_from(rest).ok()?)
}

/// Format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A file or directory, made absolute.
    Path,
    /// An interpreter: made absolute if it is a path and not a bare name.
    Program,
    /// `module[:attribute]` or `path.py[:attribute]`, the path made absolute.
    Application,
    /// An IP address or `localhost`.
    Host,
    /// A host name or address with an optional port.
    Authority,
    /// `https://host[:port]`.
    Origin,
    /// The same, or `*`.
    OriginOrAny,
    /// A method or header name.
    Token,
    /// Three capital letters.
    Currency,
    /// Pattern by which governance matches names.
    Pattern,
    /// Hours in which something may be done: `Mon-Fri 09:30-15:00 Asia/Shanghai`.
    Window,
    /// A JSON Pointer in which `*` stands for any element.
    Pointer,
    /// Any text at all, with line ends and spaces where it likes.
    Prose,
    /// The same, without control characters.
    Word,
    /// A text whose references to the environment are followed where it is used and no sooner, so
    /// that nothing that shows the configuration shows what they stand for.
    Secret,
    /// Any text with something in it.
    Name,
}

/// The JSON Schema of a whole configuration file.
pub(crate) fn file_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // Without references, what stands at a key is found where the key is.
        settings.inline_subschemas = true;
    });
    let config = settings
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value();
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mcp-server.yaml",
        "type": "object",
        "additionalProperties": false,
        "properties": { ROOT_KEY: without_dialect(config) },
    })
}

fn without_dialect(mut schema: Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
    }
    schema
}

/// The keys that may stand under [`ROOT_KEY`].
pub(crate) fn root() -> &'static Keys {
    // Made once: a server reads its configuration again and again.
    static ROOT: LazyLock<Keys> =
        LazyLock::new(|| keys(&file_schema()["properties"][ROOT_KEY]["properties"]));
    &ROOT
}

fn keys(properties: &Value) -> Keys {
    let entry = |(name, schema): (&String, &Value)| {
        let shape = match (shape(schema), Unit::of_key(name)) {
            (Shape::Single(Leaf::Integer { min, max }), Some(unit)) => {
                Shape::Single(Leaf::Measure { unit, min, max })
            }
            (shape, _) => shape,
        };
        (name.clone(), shape)
    };
    properties
        .as_object()
        .into_iter()
        .flatten()
        .map(entry)
        .collect()
}

fn shape(schema: &Value) -> Shape {
    if schema["x-json"] == true {
        return Shape::Json;
    }
    if schema["properties"].is_object() {
        return Shape::Section(keys(&schema["properties"]));
    }
    if schema["additionalProperties"].is_object() {
        let entry = Box::new(shape(&schema["additionalProperties"]));
        return match schema["x-patterns"] == true {
            true => Shape::Patterns(entry),
            false => Shape::Table(entry),
        };
    }
    // `Option<Section>` is spelled as a choice between the section and null.
    if let Some(some) = schema["anyOf"].as_array().and_then(|any| any.first()) {
        return shape(some);
    }
    match first_type(schema) {
        Some("array") => {
            let leaf = match schema["x-items"].as_str() {
                Some(format) => Leaf::Text(Format::named(format)),
                None => leaf(&schema["items"]),
            };
            match schema["x-groups"] == true {
                true => Shape::Groups(leaf),
                false => Shape::List(leaf),
            }
        }
        _ => Shape::Single(leaf(schema)),
    }
}

fn leaf(schema: &Value) -> Leaf {
    if let Some(variants) = schema["oneOf"].as_array() {
        let name = |variant: &Value| variant["const"].as_str().map(str::to_owned);
        return Leaf::Choice(variants.iter().filter_map(name).collect());
    }
    match (first_type(schema), schema["format"].as_str()) {
        (Some("boolean"), _) => Leaf::Boolean,
        (Some("integer"), _) => Leaf::Integer {
            min: schema["minimum"].as_u64().unwrap_or(0),
            max: schema["maximum"].as_u64().unwrap_or(u64::MAX),
        },
        (_, Some("decimal")) => Leaf::Amount {
            is_zero_allowed: schema["exclusiveMinimum"].is_null(),
        },
        (_, Some("share")) => Leaf::Share,
        (_, format) => Leaf::Text(Format::named(format.unwrap_or("name"))),
    }
}

/// `Option<T>` is `[T, null]`.
fn first_type(schema: &Value) -> Option<&str> {
    schema["type"]
        .as_str()
        .or_else(|| schema["type"].get(0)?.as_str())
}

impl Format {
    fn named(name: &str) -> Self {
        match name {
            "path" => Self::Path,
            "program" => Self::Program,
            "application" => Self::Application,
            "host" => Self::Host,
            "authority" => Self::Authority,
            "origin" => Self::Origin,
            "origin-or-any" => Self::OriginOrAny,
            "token" => Self::Token,
            "currency" => Self::Currency,
            "pattern" => Self::Pattern,
            "window" => Self::Window,
            "pointer" => Self::Pointer,
            "prose" => Self::Prose,
            "word" => Self::Word,
            "secret" => Self::Secret,
            _ => Self::Name,
        }
    }
}

/// Every key that is not a section, with its path from the root; what is in tables excluded.
pub(crate) fn settings(keys: &Keys) -> Vec<(Vec<&str>, &Shape)> {
    let mut settings = Vec::new();
    for (name, shape) in keys {
        match shape {
            Shape::Section(keys) => {
                settings.extend(self::settings(keys).into_iter().map(|(path, shape)| {
                    ([name.as_str()].into_iter().chain(path).collect(), shape)
                }));
            }
            shape => settings.push((vec![name.as_str()], shape)),
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Shape {
        path.split('.')
            .fold(Shape::Section(root().clone()), |shape, key| match shape {
                Shape::Section(mut keys) => keys.remove(key).unwrap_or_else(|| panic!("no {key}")),
                Shape::Table(inner) | Shape::Patterns(inner) => *inner,
                other => panic!("{other:?} at {key}"),
            })
    }

    #[test]
    fn the_schema_is_understood() {
        let text = |format| Shape::Single(Leaf::Text(format));
        let texts = |format| Shape::List(Leaf::Text(format));
        let rows = [
            (
                "http.port",
                Shape::Single(Leaf::Integer {
                    min: 0,
                    max: 65_535,
                }),
            ),
            ("http.host", text(Format::Host)),
            ("http.cors.allowed_origins", texts(Format::OriginOrAny)),
            ("http.tls.cert_file", text(Format::Path)),
            ("app", text(Format::Application)),
            ("python", text(Format::Program)),
            ("development", Shape::Single(Leaf::Boolean)),
            ("commands.x.run", Shape::Groups(Leaf::Text(Format::Word))),
            ("commands.x.env.TOKEN", text(Format::Secret)),
            ("commands.x.input_schema", Shape::Json),
            ("commands.x.output_schema", Shape::Json),
            (
                "commands.x.stdin",
                Shape::Single(Leaf::Choice(vec!["json".to_owned(), "none".to_owned()])),
            ),
            (
                "commands.x.success_exit_codes",
                Shape::List(Leaf::Integer { min: 0, max: 255 }),
            ),
            (
                "commands.x.timeout_seconds",
                Shape::Single(Leaf::Measure {
                    unit: Unit::Seconds,
                    min: 1,
                    max: 86_400,
                }),
            ),
            (
                "governance.default_quota.monthly_budget",
                Shape::Single(Leaf::Amount {
                    is_zero_allowed: false,
                }),
            ),
            (
                "governance.clients.ci.quota.max_cost_per_call",
                Shape::Single(Leaf::Amount {
                    is_zero_allowed: false,
                }),
            ),
            (
                "governance.tools.x.estimated_cost",
                Shape::Single(Leaf::Amount {
                    is_zero_allowed: true,
                }),
            ),
            (
                "governance.clients.ci.quota.max_calls_per_day",
                Shape::Single(Leaf::Integer {
                    min: 1,
                    max: 1_000_000_000,
                }),
            ),
            ("governance.clients.ci.tools.deny", texts(Format::Pattern)),
            ("governance.roles.teller.tools.deny", texts(Format::Pattern)),
            ("governance.confirm", texts(Format::Pattern)),
            ("governance.conditions.x.when", text(Format::Prose)),
            (
                "governance.tools.x.risk",
                Shape::List(Leaf::Choice(
                    ["read_only", "mutating", "external", "financial"]
                        .map(str::to_owned)
                        .to_vec(),
                )),
            ),
            ("governance.tools.x.windows", texts(Format::Window)),
            ("governance.trading_hours", texts(Format::Window)),
            (
                "governance.tools.x.breaker.failures",
                Shape::Single(Leaf::Integer {
                    min: 0,
                    max: 1_000_000,
                }),
            ),
            ("governance.approvals.http_token", text(Format::Secret)),
            ("ledger.url", text(Format::Secret)),
            ("ledger.checkpoint.key", text(Format::Path)),
            ("telemetry.sample_ratio", Shape::Single(Leaf::Share)),
            ("redaction.pointers.pay-*", texts(Format::Pointer)),
            (
                "logging.level",
                Shape::Single(Leaf::Choice(
                    ["DEBUG", "INFO", "WARNING", "ERROR"]
                        .map(str::to_owned)
                        .to_vec(),
                )),
            ),
            (
                "logging.output",
                Shape::Single(Leaf::Choice(vec!["stderr".to_owned()])),
            ),
        ];
        for (path, expected) in rows {
            assert_eq!(at(path), expected, "{path}");
        }
    }
}
