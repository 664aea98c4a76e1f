use std::path::PathBuf;

/// Reason why a text is not a command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The first element is missing, empty, or a group.
    #[error("no program is named")]
    NoProgram,
    /// The first element has placeholders.
    #[error("the caller would choose the program: `{0}`")]
    ProgramIsChosen(String),
    /// A brace that is no part of a placeholder, and is not doubled.
    #[error("`{0}` has a brace that belongs to no placeholder")]
    StrayBrace(String),
    /// An element has `{name...}` and something else.
    #[error("`{0}` becomes several arguments and cannot hold anything else")]
    ItemsNotAlone(String),
    /// A placeholder after nothing but dashes, which could choose an option.
    #[error("the caller would choose the option: `{0}`")]
    OptionIsChosen(String),
    /// A placeholder is no property of the tool's schema.
    #[error("`{{{name}}}` is none of the tool's arguments")]
    Unknown {
        /// The placeholder.
        name: String,
        /// The properties that the schema has.
        known: Vec<String>,
    },
    /// A placeholder is a property of another type than its form wants.
    #[error(
        "`{{{name}{}}}` wants the type {wanted}, and `{name}` has the type {declared}",
        if *.wanted == "array" { "..." } else { "?" }
    )]
    WrongType {
        /// The placeholder.
        name: String,
        /// The type that its form is for.
        wanted: &'static str,
        /// The type that the schema gives it.
        declared: String,
    },
}

/// Reason why a program cannot be a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no such file.
    #[error("there is no program `{}`", .0.display())]
    NoProgram(PathBuf),
    /// No directory of the search path has such a program.
    #[error("there is no program `{0}` on the search path")]
    NotOnPath(String),
    /// The file may not be executed, or is no file.
    #[error("`{}` cannot be executed", .0.display())]
    NotExecutable(PathBuf),
    /// The directory to run it in is none.
    #[error("there is no directory `{}` to run it in", .0.display())]
    NoDirectory(PathBuf),
    /// A command line that does not fit the schema of its arguments.
    #[error("its command line does not fit its arguments")]
    Template(#[source] TemplateError),
}
