//! Property 2 with real handlers: whatever a handler's signature says, its schema says, and what the
//! schema lets through arrives as what the hints promise.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use adapter_tools::ToolSet;
use bytes::Bytes;
use common::{App, Running};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fmt::Write};

/// Number of handlers of one application: one interpreter serves that many cases.
const HANDLERS: usize = 40;

/// Imports and types that the generated handlers need.
const PRELUDE: &str = r#"
import dataclasses, datetime, decimal, enum, pathlib, uuid
from typing import Annotated, Any, Dict, FrozenSet, List, Literal, NamedTuple, NewType, Optional, Set, Tuple, TypedDict, Union

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

@dataclasses.dataclass
class Item:
    sku: str
    count: int = 1
    inside: Optional["Item"] = None

class Movie(TypedDict):
    title: str

class Point(NamedTuple):
    x: int
    y: int = 0

class Between:
    ge, le = 1, 9

UserId = NewType("UserId", int)

def told(value):
    """The type and the value, as JSON."""
    name = type(value).__name__
    if value is None or isinstance(value, (bool, str)):
        return [name, value]
    if isinstance(value, enum.Enum):
        return [name, value.name]
    if isinstance(value, (int, float)):
        return [name, repr(value)]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return [name, value.isoformat()]
    if isinstance(value, (uuid.UUID, decimal.Decimal, pathlib.PurePath)):
        return ["Path" if isinstance(value, pathlib.PurePath) else name, str(value)]
    if isinstance(value, bytes):
        return [name, value.decode()]
    if isinstance(value, (list, tuple)):
        return [name, [told(one) for one in value]]
    if isinstance(value, (set, frozenset)):
        return [name, sorted((told(one) for one in value), key=str)]
    if isinstance(value, dict):
        return [name, sorted(([told(key), told(one)] for key, one in value.items()), key=lambda pair: str(pair[0]))]
    if dataclasses.is_dataclass(value):
        return [name, [told(getattr(value, field.name)) for field in dataclasses.fields(value)]]
    raise TypeError(name)

calls = 0

def report(**seen):
    global calls
    calls += 1
    return {name: told(value) for name, value in seen.items()}

@app.handler("calls")
def count_of_calls():
    return calls
"#;

/// A type hint.
#[derive(Clone, Debug)]
enum Hint {
    Any,
    Unhinted,
    Str,
    Int,
    Id,
    Bounded,
    Float,
    Bool,
    Date,
    Moment,
    Uuid,
    Decimal,
    Bytes,
    Path,
    Color,
    Level,
    Literal,
    Item,
    Movie,
    Point,
    Optional(Box<Hint>),
    /// With the newer notation if so.
    Union(Vec<Hint>),
    List(Box<Hint>),
    Set(Box<Hint>, bool),
    Dict(Box<Hint>, Box<Hint>),
    Tuple(Vec<Hint>),
    Repeated(Box<Hint>),
}

/// A value as it is sent, and how the handler tells it.
type Sent = (Value, Value);

impl Hint {
    fn text(&self) -> String {
        let list = |hints: &[Hint]| hints.iter().map(Hint::text).collect::<Vec<_>>().join(", ");
        match self {
            Self::Any => "Any".into(),
            Self::Unhinted => unreachable!("only parameters have no hint"),
            Self::Str => "str".into(),
            Self::Int => "int".into(),
            Self::Id => "UserId".into(),
            Self::Bounded => "Annotated[int, Between()]".into(),
            Self::Float => "float".into(),
            Self::Bool => "bool".into(),
            Self::Date => "datetime.date".into(),
            Self::Moment => "datetime.datetime".into(),
            Self::Uuid => "uuid.UUID".into(),
            Self::Decimal => "decimal.Decimal".into(),
            Self::Bytes => "bytes".into(),
            Self::Path => "pathlib.Path".into(),
            Self::Color => "Color".into(),
            Self::Level => "Level".into(),
            Self::Literal => "Literal['a', 7, True]".into(),
            Self::Item => "Item".into(),
            Self::Movie => "Movie".into(),
            Self::Point => "Point".into(),
            Self::Optional(hint) => format!("Optional[{}]", hint.text()),
            Self::Union(members) => format!("Union[{}]", list(members)),
            Self::List(hint) => format!("List[{}]", hint.text()),
            Self::Set(hint, false) => format!("Set[{}]", hint.text()),
            Self::Set(hint, true) => format!("FrozenSet[{}]", hint.text()),
            Self::Dict(key, hint) => format!("Dict[{}, {}]", key.text(), hint.text()),
            Self::Tuple(members) => format!("Tuple[{}]", list(members)),
            Self::Repeated(hint) => format!("Tuple[{}, ...]", hint.text()),
        }
    }

    /// A value that suits.
    fn value(&self) -> BoxedStrategy<Sent> {
        let plain = |name: &'static str| move |text: String| (json!(text), json!([name, text]));
        match self {
            Self::Any | Self::Unhinted => anything()
                .prop_map(|value| (value.clone(), told(&value)))
                .boxed(),
            Self::Str => "\\PC{0,6}".prop_map(plain("str")).boxed(),
            // 3.0 is an integer to JSON Schema, and arrives as one.
            Self::Int | Self::Id => (any::<i32>(), any::<bool>())
                .prop_map(|(n, is_float)| {
                    let sent = if is_float {
                        json!(f64::from(n))
                    } else {
                        json!(n)
                    };
                    (sent, json!(["int", n.to_string()]))
                })
                .boxed(),
            Self::Bounded => (1..=9_i32)
                .prop_map(|n: i32| (json!(n), json!(["int", n.to_string()])))
                .boxed(),
            Self::Float => any::<i32>()
                .prop_map(|n| {
                    let number = f64::from(n) / 4.0;
                    (json!(number), json!(["float", format!("{number:?}")]))
                })
                .boxed(),
            Self::Bool => any::<bool>()
                .prop_map(|b| (json!(b), json!(["bool", b])))
                .boxed(),
            Self::Date => "20[0-9]{2}-0[1-9]-[12][0-8]"
                .prop_map(plain("date"))
                .boxed(),
            Self::Moment => "20[0-9]{2}-0[1-9]-[12][0-8]T[01][0-9]:[0-5][0-9]:[0-5][0-9]"
                .prop_map(|text| {
                    (
                        json!(format!("{text}Z")),
                        json!(["datetime", format!("{text}+00:00")]),
                    )
                })
                .boxed(),
            Self::Uuid => any::<u128>()
                .prop_map(move |bits| plain("UUID")(uuid::Uuid::from_u128(bits).to_string()))
                .boxed(),
            Self::Decimal => "-?[1-9][0-9]{0,20}\\.[0-9]{1,9}"
                .prop_map(plain("Decimal"))
                .boxed(),
            Self::Bytes => "[ -~ä]{0,6}".prop_map(plain("bytes")).boxed(),
            Self::Path => "[a-z]{1,4}(/[a-z]{1,4}){0,2}"
                .prop_map(plain("Path"))
                .boxed(),
            Self::Color => select(vec![
                (json!("red"), json!(["Color", "RED"])),
                (json!("blue"), json!(["Color", "BLUE"])),
            ])
            .boxed(),
            Self::Level => select(vec![
                (json!(1), json!(["Level", "LOW"])),
                (json!(2.0), json!(["Level", "HIGH"])),
            ])
            .boxed(),
            Self::Literal => select(vec![
                (json!("a"), json!(["str", "a"])),
                (json!(7), json!(["int", "7"])),
                (json!(true), json!(["bool", true])),
            ])
            .boxed(),
            Self::Item => item(2),
            Self::Movie => "[a-z]{0,4}"
                .prop_map(|title| {
                    (
                        json!({"title": title}),
                        json!(["dict", [[["str", "title"], ["str", title]]]]),
                    )
                })
                .boxed(),
            Self::Point => (any::<i16>(), proptest::option::of(any::<i16>()))
                .prop_map(|(x, y)| {
                    let sent = y.map_or(json!([x]), |y| json!([x, y]));
                    let y = y.unwrap_or(0).to_string();
                    (sent, json!(["Point", [["int", x.to_string()], ["int", y]]]))
                })
                .boxed(),
            Self::Optional(hint) => prop_oneof![
                1 => Just((Value::Null, json!(["NoneType", null]))),
                3 => hint.value(),
            ]
            .boxed(),
            Self::Union(members) => {
                proptest::strategy::Union::new(members.iter().map(Hint::value)).boxed()
            }
            Self::List(hint) => vec(hint.value(), 0..4)
                .prop_map(|all| listed("list", all))
                .boxed(),
            Self::Repeated(hint) => vec(hint.value(), 0..4)
                .prop_map(|all| listed("tuple", all))
                .boxed(),
            Self::Tuple(members) => members
                .iter()
                .map(Hint::value)
                .collect::<Vec<_>>()
                .prop_map(|all| listed("tuple", all))
                .boxed(),
            Self::Set(hint, is_frozen) => {
                let name = if *is_frozen { "frozenset" } else { "set" };
                vec(hint.value(), 0..4)
                    .prop_map(move |all| {
                        let (sent, mut told) = listed(name, distinct(all));
                        sort(&mut told[1]);
                        (sent, told)
                    })
                    .boxed()
            }
            Self::Dict(key, hint) => vec((key.key(), hint.value()), 0..4)
                .prop_map(|pairs| {
                    let mut names = BTreeSet::new();
                    let pairs: Vec<_> = pairs
                        .into_iter()
                        .filter(|(key, _)| names.insert(key.1.to_string()))
                        .collect();
                    let sent: Map<_, _> = pairs
                        .iter()
                        .map(|(key, value)| (key.0.as_str().unwrap().to_owned(), value.0.clone()))
                        .collect();
                    let mut told: Value = pairs
                        .into_iter()
                        .map(|(key, value)| json!([key.1, value.1]))
                        .collect();
                    sort(&mut told);
                    (sent.into(), json!(["dict", told]))
                })
                .boxed(),
        }
    }

    /// A value as a key of an object.
    fn key(&self) -> BoxedStrategy<Sent> {
        match self {
            Self::Int => any::<i16>()
                .prop_map(|n| (json!(n.to_string()), json!(["int", n.to_string()])))
                .boxed(),
            Self::Level => Just((json!("2"), json!(["Level", "HIGH"]))).boxed(),
            _ => self.value(),
        }
    }

    /// A value, not null, that does not suit; some hints have none.
    fn wrong(&self) -> Option<BoxedStrategy<Value>> {
        let some = |values: Vec<Value>| Some(select(values).boxed());
        match self {
            Self::Any | Self::Unhinted => None,
            Self::Str | Self::Date | Self::Moment | Self::Uuid | Self::Bytes | Self::Path => {
                some(vec![json!(1), json!(true), json!([]), json!({})])
            }
            Self::Int | Self::Id => some(vec![json!("1"), json!(1.5), json!(true), json!([1])]),
            Self::Bounded => some(vec![json!(0), json!(10), json!("5")]),
            Self::Float => some(vec![json!("1.5"), json!(true), json!({})]),
            Self::Bool => some(vec![json!("true"), json!(1), json!([])]),
            Self::Decimal => some(vec![json!("ten"), json!(true), json!([])]),
            Self::Color => some(vec![json!("green"), json!("RED"), json!(1), json!(["red"])]),
            Self::Level => some(vec![json!(3), json!("LOW"), json!("1"), json!(true)]),
            Self::Literal => some(vec![json!("b"), json!(8), json!(false), json!({})]),
            Self::Item => some(vec![
                json!({}),
                json!([]),
                json!({"sku": 1}),
                json!({"sku": "a", "more": 1}),
                json!({"sku": "a", "inside": {"count": 2}}),
            ]),
            Self::Movie => some(vec![json!({}), json!("x"), json!({"title": 1})]),
            Self::Point => some(vec![
                json!([]),
                json!(["x"]),
                json!([1, 2, 3]),
                json!({"x": 1}),
            ]),
            Self::Optional(hint) => hint.wrong(),
            Self::Union(members) => {
                let kinds: BTreeSet<_> = members.iter().map(Hint::kind).collect();
                let others = [
                    ("string", json!("x")),
                    ("number", json!(1.5)),
                    ("boolean", json!(true)),
                    ("array", json!([])),
                    ("object", json!({})),
                ];
                let values: Vec<_> = others
                    .into_iter()
                    .filter(|(kind, _)| !kinds.contains(kind))
                    .map(|(_, value)| value)
                    .collect();
                (!values.is_empty()).then(|| select(values).boxed())
            }
            Self::List(hint) | Self::Repeated(hint) => Some(match hint.wrong() {
                None => select(vec![json!({}), json!("x")]).boxed(),
                Some(wrong) => wrong.prop_map(|wrong| json!([wrong])).boxed(),
            }),
            Self::Set(hint, _) => hint
                .value()
                .prop_map(|(value, _)| json!([value, value]))
                .boxed()
                .into(),
            Self::Dict(key, hint) => Some(match (&**key, hint.wrong()) {
                (Self::Int | Self::Color | Self::Level, _) => hint
                    .value()
                    .prop_map(|(value, _)| json!({"no such key": value}))
                    .boxed(),
                (_, Some(wrong)) => wrong.prop_map(|wrong| json!({"2026-01-02": wrong})).boxed(),
                _ => Just(json!([])).boxed(),
            }),
            Self::Tuple(members) => {
                let members = members.clone();
                let all = members.iter().map(Hint::value).collect::<Vec<_>>();
                let is_short = any::<bool>();
                Some(
                    (all, is_short)
                        .prop_map(|(all, is_short)| {
                            let mut values: Vec<_> =
                                all.into_iter().map(|(value, _)| value).collect();
                            if is_short {
                                values.pop();
                            } else {
                                values.push(Value::Null);
                            }
                            values.into()
                        })
                        .boxed(),
                )
            }
        }
    }

    /// Kind of its values in JSON.
    fn kind(&self) -> &'static str {
        match self {
            Self::Int | Self::Float => "number",
            Self::Bool => "boolean",
            Self::List(_) => "array",
            Self::Item => "object",
            _ => "string",
        }
    }
}

fn item(depth: u32) -> BoxedStrategy<Sent> {
    let inside = match depth {
        0 => Just(None).boxed(),
        _ => proptest::option::of(item(depth - 1)).boxed(),
    };
    ("[a-z]{1,3}", proptest::option::of(0..9), inside)
        .prop_map(|(sku, count, inside)| {
            let mut sent = json!({"sku": sku});
            if let Some(count) = count {
                sent["count"] = json!(count);
            }
            let mut told = json!([
                ["str", sku],
                ["int", count.unwrap_or(1).to_string()],
                ["NoneType", null]
            ]);
            if let Some((value, its_told)) = inside {
                sent["inside"] = value;
                told[2] = its_told;
            }
            (sent, json!(["Item", told]))
        })
        .boxed()
}

fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| json!(f64::from(n) / 8.0)),
        "\\PC{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec(("[a-zä]{1,3}", inner), 0..3)
                .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
    .boxed()
}

/// Form in which a handler prints a plain JSON value.
fn told(value: &Value) -> Value {
    match value {
        Value::Null => json!(["NoneType", null]),
        Value::Bool(_) => json!(["bool", value]),
        Value::Number(number) if number.is_f64() => {
            json!(["float", format!("{:?}", number.as_f64().unwrap())])
        }
        Value::Number(number) => json!(["int", number.to_string()]),
        Value::String(_) => json!(["str", value]),
        Value::Array(items) => json!(["list", items.iter().map(told).collect::<Vec<_>>()]),
        Value::Object(members) => {
            let mut pairs: Value = members
                .iter()
                .map(|(name, member)| json!([["str", name], told(member)]))
                .collect();
            sort(&mut pairs);
            json!(["dict", pairs])
        }
    }
}

fn listed(name: &str, all: Vec<Sent>) -> Sent {
    let (sent, told): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    (sent.into(), json!([name, told]))
}

fn distinct(all: Vec<Sent>) -> Vec<Sent> {
    let mut known = BTreeSet::new();
    all.into_iter()
        .filter(|one| known.insert(one.1.to_string()))
        .collect()
}

/// Sets and objects have no order: both sides are brought into the same one before they are compared.
fn sort(told: &mut Value) {
    told.as_array_mut().unwrap().sort_by_key(Value::to_string);
}

/// Sorts what is told of sets and objects, all the way down.
fn normal(mut told: Value) -> Value {
    if let Value::Array(parts) = &mut told {
        let is_unordered = matches!(
            parts.first().and_then(Value::as_str),
            Some("set" | "frozenset" | "dict")
        );
        for part in parts.iter_mut() {
            *part = normal(part.take());
        }
        if is_unordered && parts.len() == 2 && parts[1].is_array() {
            sort(&mut parts[1]);
        }
    }
    told
}

fn scalar() -> BoxedStrategy<Hint> {
    use Hint::{
        Bool, Bounded, Bytes, Color, Date, Decimal, Float, Id, Int, Level, Literal, Moment, Path,
        Str, Uuid,
    };
    select(vec![
        Str, Int, Id, Bounded, Float, Bool, Date, Moment, Uuid, Decimal, Bytes, Path, Color, Level,
        Literal,
    ])
    .boxed()
}

fn hint() -> BoxedStrategy<Hint> {
    let leaf = prop_oneof![8 => scalar(), 3 => select(vec![Hint::Any, Hint::Item, Hint::Movie, Hint::Point])];
    let hashable = || {
        select(vec![
            Hint::Str,
            Hint::Int,
            Hint::Date,
            Hint::Color,
            Hint::Uuid,
        ])
    };
    let key = || {
        select(vec![
            Hint::Str,
            Hint::Int,
            Hint::Date,
            Hint::Color,
            Hint::Level,
        ])
    };
    // Alternatives whose JSON differs in kind, so that it is clear what a value is to become.
    let alternatives = (
        select(vec![Hint::Str, Hint::Date, Hint::Color]),
        vec(
            select(vec![
                Hint::Int,
                Hint::Bool,
                Hint::Item,
                Hint::List(Box::new(Hint::Int)),
            ]),
            1..3,
        ),
    );
    leaf.prop_recursive(3, 8, 3, move |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            2 => boxed().prop_filter("null already", |hint| !matches!(**hint, Hint::Any)).prop_map(Hint::Optional),
            2 => boxed().prop_map(Hint::List),
            1 => (hashable().prop_map(Box::new), any::<bool>()).prop_map(|(hint, frozen)| Hint::Set(hint, frozen)),
            2 => (key().prop_map(Box::new), boxed()).prop_map(|(key, hint)| Hint::Dict(key, hint)),
            1 => vec(inner.clone(), 1..3).prop_map(Hint::Tuple),
            1 => boxed().prop_map(Hint::Repeated),
            1 => alternatives.clone().prop_map(|(first, mut rest)| {
                rest.push(first);
                let mut kinds = BTreeSet::new();
                rest.retain(|hint| kinds.insert(hint.kind()));
                Hint::Union(rest)
            }),
        ]
    })
    .boxed()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Positional,
    Either,
    Keyword,
}

#[derive(Clone, Debug)]
struct Parameter {
    name: &'static str,
    place: Place,
    hint: Hint,
    /// Has `None` as default.
    is_optional: bool,
}

/// One handler, and what it is called with.
#[derive(Clone, Debug)]
struct Handler {
    parameters: Vec<Parameter>,
    takes_session: bool,
    takes_rest: bool,
    is_method: bool,
    is_async: bool,
    is_postponed: bool,
    /// Values that suit, one row a call, `None` for one that is left out.
    calls: Vec<Vec<Option<Sent>>>,
    /// Values that do not.
    wrong: Vec<Option<Value>>,
}

const NAMES: [&str; 12] = [
    "a",
    "b",
    "sku",
    "count",
    "ürün",
    "数量",
    "class_",
    "_x",
    "sessions",
    "self_",
    "type",
    "arguments",
];

fn parameter(name: &'static str) -> impl Strategy<Value = Parameter> {
    let place = select(vec![
        Place::Positional,
        Place::Either,
        Place::Either,
        Place::Keyword,
    ]);
    let hint = prop_oneof![1 => Just(Hint::Unhinted), 12 => hint()];
    (place, hint, proptest::bool::weighted(0.3)).prop_map(move |(place, hint, is_optional)| {
        Parameter {
            name,
            place,
            hint,
            is_optional,
        }
    })
}

fn handler() -> impl Strategy<Value = Handler> {
    let parameters = proptest::sample::subsequence(NAMES.to_vec(), 0..6)
        .prop_shuffle()
        .prop_flat_map(|names| names.into_iter().map(parameter).collect::<Vec<_>>())
        .prop_map(|mut parameters| {
            parameters.sort_by_key(|parameter| parameter.place);
            let mut began = false;
            for parameter in &mut parameters {
                if parameter.place != Place::Keyword {
                    // After one with a default, all that have a position have one.
                    began |= parameter.is_optional;
                    parameter.is_optional = began;
                }
            }
            parameters
        });
    (parameters, any::<[bool; 5]>())
        .prop_flat_map(|(parameters, flags)| {
            let row: Vec<_> = parameters
                .iter()
                .map(|parameter| match parameter.hint.value() {
                    value if parameter.is_optional => {
                        proptest::option::weighted(0.7, value).boxed()
                    }
                    value => value.prop_map(Some).boxed(),
                })
                .collect();
            let wrong: Vec<BoxedStrategy<Option<Value>>> = parameters
                .iter()
                .map(|parameter| match parameter.hint.wrong() {
                    Some(wrong) => wrong.prop_map(Some).boxed(),
                    None => Just(None).boxed(),
                })
                .collect();
            (Just(parameters), Just(flags), vec(row, 3), wrong)
        })
        .prop_map(|(parameters, flags, calls, wrong)| {
            let [takes_session, takes_rest, is_method, is_async, is_postponed] = flags;
            Handler {
                parameters,
                takes_session,
                takes_rest,
                is_method,
                is_async,
                is_postponed,
                calls,
                wrong,
            }
        })
}

impl Handler {
    fn source(&self, name: &str) -> String {
        let mut words = Vec::new();
        words.extend(self.is_method.then(|| "self".to_owned()));
        words.extend(self.takes_session.then(|| "session".to_owned()));
        let mut before = None;
        for parameter in &self.parameters {
            if before == Some(Place::Positional) && parameter.place != Place::Positional {
                words.push("/".into());
            }
            if parameter.place == Place::Keyword && before != Some(Place::Keyword) {
                words.push("*".into());
            }
            before = Some(parameter.place);
            let mut word = parameter.name.to_owned();
            match &parameter.hint {
                Hint::Unhinted => {}
                hint if self.is_postponed => write!(word, ": {:?}", hint.text()).unwrap(),
                hint => write!(word, ": {}", hint.text()).unwrap(),
            }
            if parameter.is_optional {
                word.push_str(" = None");
            }
            words.push(word);
        }
        if before == Some(Place::Positional) {
            words.push("/".into());
        }
        words.extend(self.takes_rest.then(|| "**rest".to_owned()));
        let mut seen: Vec<_> = self.parameters.iter().map(|one| one.name).collect();
        seen.extend(self.takes_session.then_some("session"));
        seen.extend(self.takes_rest.then_some("rest"));
        let seen: Vec<_> = seen.iter().map(|name| format!("{name}={name}")).collect();
        let (words, seen) = (words.join(", "), seen.join(", "));
        let asynchronous = if self.is_async { "async " } else { "" };
        if self.is_method {
            format!(
                "class C_{name}:\n    {asynchronous}def act({words}):\n        return report({seen})\n\
                 app.handler('{name}')(C_{name}().act)\n"
            )
        } else {
            format!(
                "@app.handler('{name}')\n{asynchronous}def {name}({words}):\n    return report({seen})\n"
            )
        }
    }

    /// Returns true if members that no parameter is named after are let through.
    fn is_open(&self) -> bool {
        self.takes_rest || (self.takes_session && self.parameters.is_empty())
    }

    /// Calls it in all ways. Returns how many of them it was to see.
    async fn check(
        &self,
        app: &Running,
        tools: &ToolSet,
        name: &str,
    ) -> Result<u64, TestCaseError> {
        let tool = tools.get(name).unwrap();
        let schema = tool.input_schema();
        prop_assert!(jsonschema::draft202012::meta::is_valid(schema), "{schema}");
        prop_assert_eq!(tool.is_async(), self.is_async);
        let named: Vec<_> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        let names: Vec<_> = self
            .parameters
            .iter()
            .map(|one| one.name.to_owned())
            .collect();
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        prop_assert_eq!(sorted(named), sorted(names));
        let required = self
            .parameters
            .iter()
            .filter(|one| !one.is_optional)
            .map(|one| one.name);
        let required: Vec<_> = required.collect();
        prop_assert_eq!(
            schema.get("required").cloned().unwrap_or(json!([])),
            json!(required)
        );
        prop_assert_eq!(&schema["additionalProperties"], &json!(self.is_open()));

        let mut full = Map::new();
        for row in &self.calls {
            let mut arguments = Map::new();
            let mut expected = Map::new();
            for (parameter, value) in self.parameters.iter().zip(row) {
                let told = match value {
                    Some((sent, told)) => {
                        arguments.insert(parameter.name.into(), sent.clone());
                        told.clone()
                    }
                    None => json!(["NoneType", null]),
                };
                expected.insert(parameter.name.into(), told);
            }
            if self.is_open() {
                arguments.insert("more".into(), json!([1, "x"]));
            }
            let given = Value::from(arguments.clone());
            let Ok(checked) = tool.check(Bytes::from(given.to_string())) else {
                let told = tool.check(Bytes::from(given.to_string())).unwrap_err();
                return Err(TestCaseError::fail(format!(
                    "{given} refused by {schema}: {told:?}"
                )));
            };
            drop(checked);
            let mut seen = app.json(name, given.clone()).await;
            let seen = seen.as_object_mut().unwrap();
            if self.takes_rest {
                let mut rest = arguments.clone();
                rest.retain(|name, _| !self.parameters.iter().any(|one| one.name == name));
                prop_assert_eq!(normal(seen.remove("rest").unwrap()), told(&rest.into()));
            }
            if self.takes_session {
                let session = seen.remove("session").unwrap();
                if !arguments.is_empty() {
                    prop_assert_eq!(normal(session), normal(told(&given)));
                }
            }
            for (parameter, told) in expected {
                let told = normal(told);
                prop_assert_eq!(
                    normal(seen.remove(&parameter).unwrap()),
                    told,
                    "{} in {}",
                    parameter,
                    given
                );
            }
            prop_assert!(seen.is_empty());
            full = arguments;
        }

        let refused = |arguments: &Map<String, Value>| {
            let text = Value::from(arguments.clone()).to_string();
            let error = tool.check(Bytes::from(text.clone())).err();
            prop_assert!(error.is_some(), "{text} was let through by {schema}");
            Ok(())
        };
        for (parameter, wrong) in self.parameters.iter().zip(&self.wrong) {
            if let Some(wrong) = wrong {
                let mut arguments = full.clone();
                arguments.insert(parameter.name.into(), wrong.clone());
                refused(&arguments)?;
            }
            if !parameter.is_optional {
                let mut arguments = full.clone();
                arguments.remove(parameter.name);
                refused(&arguments)?;
            }
        }
        if !self.is_open() {
            for name in ["more", "session", "self"] {
                let mut arguments = full.clone();
                arguments.insert(name.into(), json!(1));
                refused(&arguments)?;
            }
        }
        Ok(self.calls.len() as u64)
    }
}

async fn check_application(handlers: &[Handler]) -> Result<(), TestCaseError> {
    let mut body = PRELUDE.to_owned();
    for (number, handler) in handlers.iter().enumerate() {
        body.push_str(&handler.source(&format!("h{number}")));
    }
    let app = App::new(&common::app_with(&body));
    let running = Running::start(app.options()).await;
    let (tools, problems) = ToolSet::collect(running.python.tools());
    prop_assert_eq!(problems, []);
    let mut expected = 0;
    for (number, handler) in handlers.iter().enumerate() {
        let name = format!("h{number}");
        let seen = handler.check(&running, &tools, &name).await;
        expected += seen
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}", handler.source(&name))))?;
    }
    // What was refused has reached nobody.
    prop_assert_eq!(running.json("calls", json!({})).await, json!(expected));
    running.python.shutdown().await;
    Ok(())
}

proptest! {
    // Each of these is an application of 40 handlers, each of which is called in three ways and
    // refuses several.
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_signature_says_its_schema_says_and_its_handler_gets(handlers in vec(handler(), HANDLERS)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check_application(&handlers))?;
    }
}
