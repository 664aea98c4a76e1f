use super::TemplateError;
use crate::InvalidArguments;
use serde_json::{Map, Value};

/// The most bytes that one argument of a program may have. Linux takes 128 KiB.
const MAX_ARGUMENT: usize = 100_000;
/// The most bytes that all arguments of a program may have together.
const MAX_ARGUMENTS: usize = 512 * 1024;

/// A program and its arguments, with placeholders for what callers give.
///
/// One placeholder fills one argument, or a part of one, whatever the value is: nothing is split,
/// expanded or unquoted, and no shell is asked.
///
/// * `{name}` stands for the argument `name`. Texts are taken as they are, numbers and booleans as
///   JSON writes them, objects and arrays as their JSON. Without a value the element is left out; a
///   group is left out as a whole. `null` is no value.
/// * `{name...}` is an element of its own and becomes one for each item of an array.
/// * `{name?}` stands for nothing and leaves its element out unless the argument is `true`; alone in a
///   group it leaves the group out.
/// * `{{` and `}}` stand for braces.
///
/// A value cannot become an option: where an element begins with a placeholder, one that begins with
/// `-` is refused, unless an element `--` comes before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    program: String,
    arguments: Vec<Vec<Element>>,
}

/// An element of a command line before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// One element.
    One(String),
    /// Several that are left out together.
    Group(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Element {
    pieces: Vec<Piece>,
    /// True if `--` came before, after which nothing is an option.
    is_operand: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Value(String),
    Items(String),
    IfTrue(String),
}

impl CommandLine {
    /// Reads the elements, the program first.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] when there is no program, when it would be the caller's choice, when braces
    /// do not make placeholders, and when a value could become an option.
    pub fn parse(words: &[Word]) -> Result<Self, TemplateError> {
        let (first, rest) = words.split_first().ok_or(TemplateError::NoProgram)?;
        let program = match first {
            Word::One(text) => match &pieces(text)?[..] {
                [Piece::Literal(program)] if program.is_empty() => {
                    return Err(TemplateError::NoProgram);
                }
                [Piece::Literal(program)] => program.clone(),
                _ => return Err(TemplateError::ProgramIsChosen(text.clone())),
            },
            Word::Group(_) => return Err(TemplateError::NoProgram),
        };
        let mut options_are_over = false;
        let mut arguments = Vec::new();
        for word in rest {
            let (group, is_group) = match word {
                Word::One(text) => (std::slice::from_ref(text), false),
                Word::Group(texts) => (&texts[..], true),
            };
            let mut is_operand = options_are_over;
            let mut elements = Vec::new();
            for text in group {
                elements.push(element(text, is_operand)?);
                is_operand |= text == "--";
            }
            // A `--` that may be left out ends nothing beyond its group.
            if !is_group {
                options_are_over = is_operand;
            }
            arguments.push(elements);
        }
        Ok(Self { program, arguments })
    }

    /// Program to run: a path, or a name.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns true if any part depends on the caller.
    pub fn has_placeholders(&self) -> bool {
        self.placeholders().next().is_some()
    }

    /// Checks that every placeholder is a property of `schema` whose values fit its place.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] for the first that is not.
    pub fn check(&self, schema: &Value) -> Result<(), TemplateError> {
        let properties = schema.get("properties").and_then(Value::as_object);
        for piece in self.placeholders() {
            let (name, wanted) = match piece {
                Piece::Literal(_) => continue,
                Piece::Value(name) => (name, None),
                Piece::Items(name) => (name, Some("array")),
                Piece::IfTrue(name) => (name, Some("boolean")),
            };
            let Some(property) = properties.and_then(|all| all.get(name)) else {
                let known = properties.into_iter().flatten();
                return Err(TemplateError::Unknown {
                    name: name.clone(),
                    known: known.map(|(name, _)| name.clone()).collect(),
                });
            };
            let declared = property.get("type").and_then(Value::as_str);
            if let (Some(wanted), Some(declared)) = (wanted, declared)
                && wanted != declared
            {
                return Err(TemplateError::WrongType {
                    name: name.clone(),
                    wanted,
                    declared: declared.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The arguments of one call of the program.
    pub(super) fn render(
        &self,
        given: &Map<String, Value>,
    ) -> Result<Vec<String>, InvalidArguments> {
        let mut all = Vec::new();
        let mut bytes = 0;
        for group in &self.arguments {
            let mut rendered = Vec::new();
            let is_whole = group.iter().try_fold(true, |is_whole, element| {
                Ok(is_whole && element.render(given, &mut rendered)?)
            })?;
            if is_whole {
                bytes += rendered.iter().map(|text| text.len() + 1).sum::<usize>();
                if MAX_ARGUMENTS < bytes {
                    return Err(InvalidArguments::because(format!(
                        "the program takes at most {MAX_ARGUMENTS} bytes of arguments"
                    )));
                }
                all.append(&mut rendered);
            }
        }
        Ok(all)
    }

    fn placeholders(&self) -> impl Iterator<Item = &Piece> {
        let pieces = self.arguments.iter().flatten().flat_map(|it| &it.pieces);
        pieces.filter(|piece| !matches!(piece, Piece::Literal(_)))
    }
}

impl Element {
    /// Adds what the element becomes to `rendered`; `false` if it is left out.
    fn render(
        &self,
        given: &Map<String, Value>,
        rendered: &mut Vec<String>,
    ) -> Result<bool, InvalidArguments> {
        let given = |name: &str| given.get(name).filter(|value| !value.is_null());
        if let [Piece::Items(name)] = &self.pieces[..] {
            let Some(value) = given(name) else {
                return Ok(false);
            };
            let one = std::slice::from_ref(value);
            for (index, item) in value
                .as_array()
                .map_or(one, Vec::as_slice)
                .iter()
                .enumerate()
            {
                let place = format!("{name}/{index}");
                if item.is_null() {
                    return Err(refused(&place, "expected a value, found null"));
                }
                rendered.push(self.admitted(text_of(item), &place)?);
            }
            return Ok(true);
        }
        let mut text = String::new();
        let mut filled_by = "";
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::IfTrue(name) => {
                    if given(name) != Some(&Value::Bool(true)) {
                        return Ok(false);
                    }
                }
                Piece::Value(name) | Piece::Items(name) => {
                    let Some(value) = given(name) else {
                        return Ok(false);
                    };
                    filled_by = name;
                    text.push_str(&text_of(value));
                }
            }
        }
        // A condition alone says something of its group and is no argument.
        if self.beginning().is_some() {
            rendered.push(self.admitted(text, filled_by)?);
        }
        Ok(true)
    }

    /// The first piece that becomes text.
    fn beginning(&self) -> Option<&Piece> {
        let mut pieces = self.pieces.iter();
        pieces.find(|piece| !matches!(piece, Piece::IfTrue(_)))
    }

    /// The text, unless a program might take it for something else than the caller was asked for.
    fn admitted(&self, text: String, place: &str) -> Result<String, InvalidArguments> {
        let begins_literally = matches!(self.beginning(), None | Some(Piece::Literal(_)));
        if !begins_literally && !self.is_operand && text.starts_with('-') {
            let why = "expected a value that does not begin with `-`, which would be an option";
            return Err(refused(place, why));
        }
        if text.contains('\0') {
            return Err(refused(place, "expected a text without zero characters"));
        }
        if MAX_ARGUMENT < text.len() {
            let why = format!(
                "expected at most {MAX_ARGUMENT} bytes, found {}",
                text.len()
            );
            return Err(refused(place, &why));
        }
        Ok(text)
    }
}

/// Names have no character that a JSON pointer would have to escape.
fn refused(place: &str, why: &str) -> InvalidArguments {
    InvalidArguments::at(format!("/{place}"), why)
}

/// Text of a value on a command line.
fn text_of(value: &Value) -> String {
    /// Up to here every integer is a double, and every double without a fraction that integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            // To JSON Schema `5.0` is an integer, and to most programs it is none.
            Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() <= EXACT => {
                format!("{double:.0}")
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn element(text: &str, is_operand: bool) -> Result<Element, TemplateError> {
    let pieces = pieces(text)?;
    let has_items = pieces.iter().any(|piece| matches!(piece, Piece::Items(_)));
    if has_items && 1 < pieces.len() {
        return Err(TemplateError::ItemsNotAlone(text.to_owned()));
    }
    let mut texts = pieces
        .iter()
        .filter(|piece| !matches!(piece, Piece::IfTrue(_)));
    if let (Some(Piece::Literal(prefix)), Some(Piece::Value(_))) = (texts.next(), texts.next())
        && prefix.bytes().all(|byte| byte == b'-')
        && !is_operand
    {
        return Err(TemplateError::OptionIsChosen(text.to_owned()));
    }
    Ok(Element { pieces, is_operand })
}

/// Literal text and placeholders, no two literals beside each other.
fn pieces(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let stray = || TemplateError::StrayBrace(text.to_owned());
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{") {
            literal.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            literal.push('}');
            rest = after;
        } else {
            let inner = rest.strip_prefix('{').ok_or_else(stray)?;
            let (name, after) = inner.split_once('}').ok_or_else(stray)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            let piece = if let Some(name) = name.strip_suffix("...") {
                Piece::Items(name.to_owned())
            } else if let Some(name) = name.strip_suffix('?') {
                Piece::IfTrue(name.to_owned())
            } else {
                Piece::Value(name.to_owned())
            };
            let (Piece::Items(name) | Piece::IfTrue(name) | Piece::Value(name)) = &piece else {
                unreachable!("a literal was not made here");
            };
            let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            if name.is_empty() || !name.chars().all(legal) {
                return Err(stray());
            }
            pieces.push(piece);
            rest = after;
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() || (pieces.is_empty() && text.is_empty()) {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests;
