//! The example messages that the specification itself gives, for revision 2026-07-28.

use std::{fs, path::PathBuf};

use serde_json::Value;

/// One official example.
#[derive(Debug, Clone)]
pub struct Example {
    /// The definition it illustrates, such as `CallToolResult`.
    pub definition: String,
    /// The file's name without its ending.
    pub name: String,
    /// The file's text, byte for byte.
    pub text: String,
    /// The same, parsed.
    pub value: Value,
}

/// All official examples, ordered by definition and name.
///
/// # Panics
///
/// If the files beside this crate cannot be read.
pub fn examples() -> impl Iterator<Item = Example> {
    let root = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/mcp-schema/2026-07-28/examples"
    ));
    let mut files: Vec<PathBuf> = entries(&root)
        .into_iter()
        .flat_map(|it| entries(&it))
        .collect();
    files.sort();
    files.into_iter().map(|path| {
        let part = |part: Option<&std::ffi::OsStr>| {
            part.and_then(|name| name.to_str())
                .expect("names are UTF-8")
                .to_owned()
        };
        let text = fs::read_to_string(&path).expect("the example was just listed");
        Example {
            definition: part(path.parent().and_then(|it| it.file_name())),
            name: part(path.file_stem()),
            value: serde_json::from_str(&text).expect("an example is JSON"),
            text,
        }
    })
}

fn entries(directory: &PathBuf) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .expect("the examples stand beside this crate")
        .map(|entry| entry.expect("a directory can be read to its end").path())
        .collect()
}
