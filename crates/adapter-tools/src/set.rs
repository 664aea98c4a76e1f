use crate::{SchemaError, Tool, tool::SchemaProblem};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, sync::Arc};

/// An immutable set of tools with distinct, legal names and usable schemas. A change of the tools on
/// offer is a new set. Cheap to clone.
///
/// The order is the one in which the tools were given, and so the same whenever the same tools are
/// given in the same order; whoever collects them from somewhere unordered sorts them first.
#[derive(Clone, Debug, Default)]
pub struct ToolSet(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tools: Vec<Tool>,
    by_name: HashMap<String, usize>,
}

/// Reason why a tool cannot be part of a set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool `{name}` cannot be offered")]
pub struct ToolProblem {
    /// The tool's name, as it was given.
    pub name: String,
    /// Place of its code, if that is known.
    pub tool_source: Option<String>,
    /// Kind of the problem.
    #[source]
    pub reason: ToolProblemReason,
}

/// Kind of a problem of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolProblemReason {
    /// An earlier one has the same name.
    #[error("another tool has the same name")]
    Duplicate,
    /// A name that is not 1 to 128 of `A-Z a-z 0-9 _ . -`.
    #[error("a tool's name is 1 to 128 of the characters A-Z a-z 0-9 _ . -")]
    IllegalName,
    /// The source of the tool says why it cannot be offered.
    #[error("{0}")]
    Refused(String),
    /// The schema of its arguments cannot be used.
    #[error("the schema of its arguments cannot be used")]
    InputSchema(#[source] SchemaError),
    /// The schema of its answers cannot be used.
    #[error("the schema of its answers cannot be used")]
    OutputSchema(#[source] SchemaError),
}

impl ToolSet {
    /// The most characters in a tool's name.
    pub const MAX_NAME: usize = 128;

    /// Makes a set of all of `tools`, in the order given.
    ///
    /// # Errors
    ///
    /// The first [`ToolProblem`]: a set is never silently incomplete.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Result<Self, ToolProblem> {
        let (set, problems) = Self::collect(tools);
        match problems.into_iter().next() {
            None => Ok(set),
            Some(problem) => Err(problem),
        }
    }

    /// Makes a set of those of `tools` that can be offered, in the order given, and tells why the
    /// others cannot. Of two with the same name the first one is offered.
    ///
    /// A name that is not 1 to 128 of `A-Z a-z 0-9 _ . -` is replaced by one that is made of it alone,
    /// whatever else is on offer: its letters in ASCII, and eight digits of its SHA-256.
    /// [`Tool::own_name`] still has it.
    pub fn collect(tools: impl IntoIterator<Item = Tool>) -> (Self, Vec<ToolProblem>) {
        let mut set = Inner::default();
        let mut problems = Vec::new();
        for tool in tools {
            let tool = match is_legal(tool.name()) || tool.name().trim().is_empty() {
                true => tool,
                false => {
                    let name = derived_name(tool.name());
                    tracing::warn!(
                        tool = tool.name(),
                        offered_as = name,
                        "a tool is offered under another name, which clients and rules use: its own is not 1 to 128 of \
                         A-Z a-z 0-9 _ . -"
                    );
                    tool.offered_as(name)
                }
            };
            match problem(&set, &tool) {
                None => {
                    set.by_name.insert(tool.name().to_owned(), set.tools.len());
                    set.tools.push(tool);
                }
                Some(reason) => problems.push(ToolProblem {
                    name: tool.own_name().to_owned(),
                    tool_source: tool.source().map(ToOwned::to_owned),
                    reason,
                }),
            }
        }
        (Self(Arc::new(set)), problems)
    }

    /// The tool named `name`.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.0.by_name.get(name).map(|&index| &self.0.tools[index])
    }

    /// All tools, in the order in which they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.0.tools.iter()
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.0.tools.len()
    }

    /// Returns true if there are no tools.
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }
}

fn problem(set: &Inner, tool: &Tool) -> Option<ToolProblemReason> {
    let name = tool.name();
    if !is_legal(name) {
        return Some(ToolProblemReason::IllegalName);
    }
    if set.by_name.contains_key(name) {
        return Some(ToolProblemReason::Duplicate);
    }
    if let Some(reason) = tool.refusal() {
        return Some(ToolProblemReason::Refused(reason.to_owned()));
    }
    tool.schema_problem().map(|problem| match problem {
        SchemaProblem::Input(error) => ToolProblemReason::InputSchema(error),
        SchemaProblem::Output(error) => ToolProblemReason::OutputSchema(error),
    })
}

fn is_legal(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && name.len() <= ToolSet::MAX_NAME && name.bytes().all(legal)
}

/// A legal name for what is called `name`. The digits are always there: without them, a tool that
/// comes later could take the name away, and with it what rules say of it.
fn derived_name(name: &str) -> String {
    // Some clients take no more than 64 characters.
    const MAX_LETTERS: usize = 48;
    let mut letters = String::new();
    for word in deunicode::deunicode_with_tofu(name, "-")
        .to_ascii_lowercase()
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
    {
        if !letters.is_empty() {
            letters.push('-');
        }
        letters.push_str(word);
    }
    letters.truncate(MAX_LETTERS);
    let letters = letters.trim_end_matches('-');
    let mut derived = match letters.is_empty() {
        true => "tool".to_owned(),
        false => letters.to_owned(),
    };
    derived.push('-');
    HEXLOWER.encode_append(&Sha256::digest(name)[..4], &mut derived);
    derived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoArguments, ToolCx};
    use serde_json::json;

    fn tool(name: &str) -> Tool {
        Tool::native(name.to_owned(), |_: ToolCx, _: NoArguments| async {
            Ok("x")
        })
    }

    #[test]
    fn a_set_keeps_the_order_and_finds_by_name() {
        let set = ToolSet::new([tool("b"), tool("a.c"), tool("A-1_")]).unwrap();
        let names: Vec<_> = set.iter().map(Tool::name).collect();
        assert_eq!(names, ["b", "a.c", "A-1_"]);
        assert_eq!(set.get("a.c").unwrap().name(), "a.c");
        assert!(set.get("c").is_none());
    }

    #[test]
    fn what_cannot_be_offered_is_told_and_the_others_are_offered() {
        let broken = tool("broken").with_output_schema(json!({"type": "object", "$ref": "#/no"}));
        let tools = [tool("a"), tool(""), tool("a"), broken];
        let (set, problems) = ToolSet::collect(tools.into_iter().chain([tool("z")]));
        let names: Vec<_> = set.iter().map(Tool::name).collect();
        assert_eq!(names, ["a", "z"]);
        let named: Vec<_> = problems
            .iter()
            .map(|problem| problem.name.as_str())
            .collect();
        assert_eq!(named, ["", "a", "broken"]);
        assert_eq!(problems[1].reason, ToolProblemReason::Duplicate);
        assert!(matches!(
            problems[2].reason,
            ToolProblemReason::OutputSchema(_)
        ));
        assert!(ToolSet::new([tool("a"), tool("a")]).is_err());
    }

    #[test]
    fn a_derived_name_depends_on_the_original_name_alone() {
        let long = "x".repeat(ToolSet::MAX_NAME + 1);
        let rows = [
            ("退款", "tui-kuan-"),
            ("Überweisung (neu)", "uberweisung-neu-"),
            ("a b", "a-b-"),
            ("a/b", "a-b-"),
            ("🦉", "owl-"),
            ("\u{e000}", "tool-"),
            (long.as_str(), "xxxx"),
        ];
        let alone: Vec<String> = rows
            .iter()
            .map(|(name, begins)| {
                let set = ToolSet::new([tool(name)]).unwrap();
                let offered = set.iter().next().unwrap();
                assert!(offered.name().starts_with(begins), "{}", offered.name());
                assert!(offered.name().len() <= 64, "{}", offered.name());
                assert_eq!((offered.own_name(), offered.title()), (*name, Some(*name)));
                offered.name().to_owned()
            })
            .collect();
        let distinct: std::collections::BTreeSet<_> = alone.iter().collect();
        assert_eq!(distinct.len(), rows.len(), "{alone:?}");
        let others = ["a-b", "tui-kuan"].map(tool).into_iter();
        let (set, problems) = ToolSet::collect(others.chain(rows.map(|(name, _)| tool(name))));
        assert!(problems.is_empty(), "{problems:?}");
        let names: Vec<&str> = set.iter().skip(2).map(Tool::name).collect();
        assert_eq!(names, alone);
        // A set of tools that have such names already leaves them as they are.
        let again = ToolSet::new(set.iter().cloned()).unwrap();
        assert_eq!(again.get(&alone[0]).unwrap().own_name(), "退款");
    }
}
