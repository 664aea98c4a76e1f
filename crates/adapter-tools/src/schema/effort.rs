//! Estimate of the work that checking a value takes, made before the work is done.
//!
//! A validator has no bound of its own. References that are used twice, and twice again by what they
//! refer to, double the work with every level; a schema as honest as that of an expression, whose
//! operands are one of several kinds of expression, does so with every level of the *value*, so that
//! a few hundred bytes from a stranger could keep a thread busy for years. Here the work is counted,
//! every pair of subschema and value once, and what would take too long is refused.

use super::SchemaError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The most steps that checking one value against a schema may take, everything inside it included.
/// A step is some tens of nanoseconds.
pub(crate) const MAX_STEPS: u64 = 2_000_000;
/// The most subschemas that one value, what is inside it apart, may have to be checked against.
const MAX_STEPS_IN_PLACE: u64 = 10_000;
/// The deepest that subschemas may apply one inside the other: recursion needs stack.
const MAX_HEIGHT: usize = 400;
/// The same for one value, what is inside it apart.
const MAX_HEIGHT_IN_PLACE: usize = 64;
/// Number of passes for `unevaluatedProperties` and `unevaluatedItems`: to see whether the value
/// fits, which parts of it have been evaluated, and once more where they are inside one another.
const LOOKS: u64 = 3;
/// Steps counted for one match that an engine without backtracking cannot do, at its worst.
const BACKTRACKING_STEPS: u64 = 500;
/// The most distinct pairs of subschema and value that are looked at.
const MAX_PAIRS: usize = 1_000_000;

type Index = usize;

/// Facts about a schema.
#[derive(Debug)]
pub(super) struct Effort {
    nodes: Vec<Node>,
    /// Steps for a value at most, per node of the value; `u64::MAX` where that depends on the value.
    weight: u64,
    /// Steps for a value at most, by subschema, what is inside the value apart.
    in_place: Vec<u64>,
    /// True if some `pattern` may backtrack.
    backtracks: bool,
}

/// One subschema.
#[derive(Debug, Default)]
struct Node {
    /// Subschemas that apply to the same value.
    in_place: Vec<Index>,
    properties: HashMap<String, Index>,
    /// Subschemas that may apply to any member, and to those that `properties` does not name.
    patterned: Vec<Index>,
    rest: Vec<Index>,
    /// Subschemas that apply to the names of members.
    names: Vec<Index>,
    prefix: Vec<Index>,
    items: Vec<Index>,
    /// Steps for a value of its own, whatever it is.
    own: u64,
    has_pattern: bool,
    /// `unevaluatedProperties` and `unevaluatedItems` look at everything again.
    looks_again: bool,
}

impl Effort {
    /// Reads a schema that is known to be valid.
    pub(super) fn of(schema: &Value, backtracks: bool) -> Result<Self, SchemaError> {
        let (nodes, pointers) = Reader::read(schema)?;
        let in_place = expanded(&nodes, MAX_HEIGHT_IN_PLACE, |node| node.in_place.clone())
            .map_err(|refused| match refused {
                // Undefined behaviour in JSON Schema 2020-12, core §9.4.1; validators follow such
                // references as often as there are ways around.
                NotExpanded::Circular(index) => SchemaError::Circular {
                    pointer: pointers[index].clone(),
                },
                NotExpanded::TooHigh => SchemaError::TooIntricate,
            })?;
        if in_place.iter().any(|&weight| MAX_STEPS_IN_PLACE < weight) {
            return Err(SchemaError::TooIntricate);
        }
        let weight = expanded(&nodes, MAX_HEIGHT, |node| node.all().collect())
            .map_or(u64::MAX, |all| all[0]);
        Ok(Self {
            nodes,
            weight,
            in_place,
            backtracks,
        })
    }

    /// Returns true if checking any value, the JSON of which has `bytes` bytes, takes at most `max` steps.
    pub(super) fn is_little(&self, bytes: usize, max: u64) -> bool {
        // There is a node for every two bytes at most.
        let most = self.weight.saturating_mul(bytes as u64 / 2 + 1);
        most <= max && !(self.backtracks && 128 < bytes)
    }

    /// Returns true if checking `value`, the JSON of which has `bytes` bytes, takes at most `max`
    /// steps.
    pub(super) fn is_within(&self, value: &Value, bytes: usize, max: u64) -> bool {
        if self.is_little(bytes, max) {
            return true;
        }
        let mut count = Count {
            effort: self,
            known: HashMap::new(),
            max,
        };
        count.steps(0, value, 0).is_some_and(|steps| steps <= max)
    }
}

/// The reason why the steps of a schema have no bound of their own.
enum NotExpanded {
    /// A subschema is inside itself.
    Circular(Index),
    TooHigh,
}

/// The steps of every node with all that `children` names in their places.
fn expanded(
    nodes: &[Node],
    max_height: usize,
    children: impl Fn(&Node) -> Vec<Index>,
) -> Result<Vec<u64>, NotExpanded> {
    let mut known = vec![Known::Unseen; nodes.len()];
    (0..nodes.len())
        .map(|index| Ok(expand(nodes, index, max_height, &children, &mut known)?.0))
        .collect()
}

#[derive(Clone, Copy)]
enum Known {
    Unseen,
    Open,
    Of { weight: u64, height: usize },
}

/// The weight and the height of one node.
fn expand(
    nodes: &[Node],
    index: Index,
    room: usize,
    children: &impl Fn(&Node) -> Vec<Index>,
    known: &mut [Known],
) -> Result<(u64, usize), NotExpanded> {
    match known[index] {
        Known::Of { height, .. } if room < height => return Err(NotExpanded::TooHigh),
        Known::Of { weight, height } => return Ok((weight, height)),
        Known::Open => return Err(NotExpanded::Circular(index)),
        Known::Unseen => known[index] = Known::Open,
    }
    let below = room.checked_sub(1).ok_or(NotExpanded::TooHigh)?;
    let node = &nodes[index];
    let (mut weight, mut height) = (node.own, 1);
    for child in children(node) {
        let (its_weight, its_height) = expand(nodes, child, below, children, known)?;
        weight = weight.saturating_add(its_weight);
        height = height.max(its_height + 1);
    }
    if node.looks_again {
        weight = weight.saturating_mul(LOOKS);
    }
    known[index] = Known::Of { weight, height };
    Ok((weight, height))
}

impl Node {
    /// All subschemas that apply to a value or to a part of it.
    fn all(&self) -> impl Iterator<Item = Index> {
        let lists = [
            &self.in_place,
            &self.patterned,
            &self.rest,
            &self.names,
            &self.prefix,
            &self.items,
        ];
        lists
            .into_iter()
            .flatten()
            .chain(self.properties.values())
            .copied()
    }
}

/// Counts the steps for one value.
struct Count<'a> {
    effort: &'a Effort,
    /// The steps of a subschema and a value.
    known: HashMap<(Index, *const Value), u64>,
    max: u64,
}

impl Count<'_> {
    /// `None` when there are too many to say.
    fn steps(&mut self, index: Index, value: &Value, height: usize) -> Option<u64> {
        if MAX_HEIGHT <= height || MAX_PAIRS <= self.known.len() {
            return None;
        }
        let effort = self.effort;
        let node = &effort.nodes[index];
        let key = (index, std::ptr::from_ref(value));
        let is_leaf = node.in_place.is_empty() && !(value.is_object() || value.is_array());
        if !is_leaf && let Some(&steps) = self.known.get(&key) {
            return Some(steps);
        }
        let mut steps = node.own;
        for &same in &node.in_place {
            steps = self.add(steps, same, value, height)?;
        }
        match value {
            Value::String(text) if node.has_pattern => {
                steps = steps.saturating_add(self.match_steps(text));
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    if let Some(&prefix) = node.prefix.get(at) {
                        steps = self.add(steps, prefix, item, height)?;
                    }
                    for &each in &node.items {
                        steps = self.add(steps, each, item, height)?;
                    }
                }
            }
            Value::Object(members) => steps = self.members(steps, node, members, height)?,
            _ => {}
        }
        if node.looks_again {
            steps = steps.saturating_mul(LOOKS);
        }
        if !is_leaf {
            self.known.insert(key, steps);
        }
        (steps <= self.max).then_some(steps)
    }

    fn members(
        &mut self,
        mut steps: u64,
        node: &Node,
        members: &Map<String, Value>,
        height: usize,
    ) -> Option<u64> {
        for (name, member) in members {
            steps = steps.saturating_add(1);
            let named = node.properties.get(name);
            if let Some(&named) = named {
                steps = self.add(steps, named, member, height)?;
            }
            for &patterned in &node.patterned {
                steps = steps.saturating_add(self.match_steps(name));
                steps = self.add(steps, patterned, member, height)?;
            }
            if named.is_none() {
                for &rest in &node.rest {
                    steps = self.add(steps, rest, member, height)?;
                }
            }
            for &names in &node.names {
                let most = self.effort.in_place[names];
                steps = steps.saturating_add(most.saturating_mul(self.match_steps(name)));
            }
        }
        Some(steps)
    }

    fn add(&mut self, steps: u64, index: Index, value: &Value, height: usize) -> Option<u64> {
        let more = self.steps(index, value, height + 1)?;
        let steps = steps.saturating_add(more);
        (steps <= self.max).then_some(steps)
    }

    fn match_steps(&self, text: &str) -> u64 {
        let length = text.len() as u64;
        if self.effort.backtracks {
            BACKTRACKING_STEPS.saturating_add(length.saturating_mul(length) / 16)
        } else {
            1 + length / 16
        }
    }
}

/// Reads the subschemas of a schema.
struct Reader<'a> {
    root: &'a Value,
    base: Option<&'a str>,
    nodes: Vec<Node>,
    /// The first pointer to each node.
    pointers: Vec<String>,
    indices: HashMap<*const Value, Index>,
    anchors: HashMap<&'a str, Index>,
    /// Subschemas not read yet, and where they are.
    open: Vec<(Index, &'a Value, String)>,
    /// References not followed yet: whose, where, and where to.
    references: Vec<(Index, String, &'a str)>,
}

impl<'a> Reader<'a> {
    fn read(schema: &'a Value) -> Result<(Vec<Node>, Vec<String>), SchemaError> {
        let mut reader = Self {
            root: schema,
            base: schema.get("$id").and_then(Value::as_str),
            nodes: Vec::new(),
            pointers: Vec::new(),
            indices: HashMap::new(),
            anchors: HashMap::new(),
            open: Vec::new(),
            references: Vec::new(),
        };
        reader.index(schema, String::new());
        loop {
            while let Some((index, schema, pointer)) = reader.open.pop() {
                reader.subschema(index, schema, &pointer)?;
            }
            let Some((index, pointer, reference)) = reader.references.pop() else {
                return Ok((reader.nodes, reader.pointers));
            };
            let target = reader.follow(reference, &pointer)?;
            reader.nodes[index].in_place.push(target);
        }
    }

    fn index(&mut self, schema: &'a Value, pointer: String) -> Index {
        let key = std::ptr::from_ref(schema);
        if let Some(&index) = self.indices.get(&key) {
            return index;
        }
        let index = self.nodes.len();
        self.nodes.push(Node {
            own: 1,
            ..Node::default()
        });
        self.pointers.push(pointer.clone());
        self.indices.insert(key, index);
        self.open.push((index, schema, pointer));
        index
    }

    fn subschema(
        &mut self,
        index: Index,
        schema: &'a Value,
        pointer: &str,
    ) -> Result<(), SchemaError> {
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        let mut node = Node {
            own: 1,
            ..Node::default()
        };
        for (keyword, value) in keywords {
            let at = format!("{pointer}/{}", escape(keyword));
            match keyword.as_str() {
                "$id" if !pointer.is_empty() => {
                    return Err(SchemaError::Invalid {
                        pointer: at,
                        message: "only the root may have an `$id`".to_owned(),
                    });
                }
                "$ref" | "$dynamicRef" => {
                    if let Some(reference) = value.as_str() {
                        self.references.push((index, at, reference));
                    }
                }
                "$anchor" | "$dynamicAnchor" => {
                    if let Some(name) = value.as_str() {
                        self.anchors.insert(name, index);
                    }
                }
                "allOf" | "anyOf" | "oneOf" => node.in_place.extend(self.list(value, &at)),
                "not" | "if" | "then" | "else" => node.in_place.push(self.index(value, at)),
                "dependentSchemas" => {
                    node.in_place
                        .extend(self.map(value, &at).map(|(_, index)| index));
                }
                "properties" => {
                    let all = self.map(value, &at);
                    node.properties
                        .extend(all.map(|(name, index)| (name.to_owned(), index)));
                }
                "patternProperties" => {
                    node.patterned
                        .extend(self.map(value, &at).map(|(_, index)| index));
                }
                "additionalProperties" | "unevaluatedProperties" => {
                    node.looks_again |= keyword == "unevaluatedProperties";
                    node.rest.push(self.index(value, at));
                }
                "propertyNames" => node.names.push(self.index(value, at)),
                "prefixItems" => node.prefix.extend(self.list(value, &at)),
                "items" | "contains" | "unevaluatedItems" => {
                    node.looks_again |= keyword == "unevaluatedItems";
                    node.items.push(self.index(value, at));
                }
                "$defs" | "definitions" => {
                    // Not applied, but anchors may be in there.
                    self.map(value, &at).for_each(drop);
                }
                "pattern" => node.has_pattern = true,
                "enum" => node.own += value.as_array().map_or(0, |all| enumeration_steps(all)),
                "required" => node.own += value.as_array().map_or(0, Vec::len) as u64,
                _ => {}
            }
        }
        let followed = std::mem::take(&mut self.nodes[index].in_place);
        node.in_place.extend(followed);
        self.nodes[index] = node;
        Ok(())
    }

    fn list(&mut self, value: &'a Value, at: &str) -> impl Iterator<Item = Index> {
        let all = value.as_array().map_or(&[][..], Vec::as_slice);
        let indices: Vec<_> = all
            .iter()
            .enumerate()
            .map(|(number, one)| self.index(one, format!("{at}/{number}")))
            .collect();
        indices.into_iter()
    }

    fn map(
        &mut self,
        value: &'a Value,
        at: &str,
    ) -> impl Iterator<Item = (&'a str, Index)> + use<'a> {
        let members: Vec<_> = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, one)| {
                let index = self.index(one, format!("{at}/{}", escape(name)));
                (name.as_str(), index)
            })
            .collect();
        members.into_iter()
    }

    fn follow(&mut self, reference: &'a str, at: &str) -> Result<Index, SchemaError> {
        let local = match self.base.and_then(|base| reference.strip_prefix(base)) {
            Some(rest) if rest.is_empty() || rest.starts_with('#') => rest,
            _ => reference,
        };
        let fragment = match local.strip_prefix('#') {
            Some(fragment) => fragment,
            None if local.is_empty() => "",
            None => {
                return Err(SchemaError::Outside {
                    pointer: at.to_owned(),
                    reference: reference.chars().take(128).collect(),
                });
            }
        };
        let nowhere = || SchemaError::Invalid {
            pointer: at.to_owned(),
            message: format!(
                "the reference `{}` leads nowhere",
                reference.chars().take(128).collect::<String>()
            ),
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(fragment).copied().ok_or_else(nowhere);
        }
        let decoded = percent_decoded(fragment).ok_or_else(nowhere)?;
        let target = self.root.pointer(&decoded).ok_or_else(nowhere)?;
        Ok(self.index(target, decoded))
    }
}

/// Comparing with numbers and texts is next to nothing; with arrays and objects it is not.
fn enumeration_steps(all: &[Value]) -> u64 {
    let deep = all.iter().filter(|one| one.is_array() || one.is_object());
    deep.count() as u64 + all.len() as u64 / 64
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            decoded.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}
