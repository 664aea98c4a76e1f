//! Texts of a configuration, checked value by value against the shape of [`Config`](crate::Config).

pub(crate) mod coerce;
pub(crate) mod document;
pub(crate) mod file;
pub(crate) mod layers;
pub(crate) mod overrides;
pub(crate) mod shape;
pub(crate) mod variables;

use std::io;
use std::path::Path;

use crate::problem::{Origin, Position, Problem};

/// A longer file is refused: it is not a configuration.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// `None` if there is no file to read, or if it cannot be read and `problems` says why.
pub(crate) fn text(
    name: &Path,
    path: &Path,
    is_named: bool,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let origin = || {
        let file = name.display().to_string();
        Origin::File(Position {
            file,
            line: 0,
            column: 0,
            snippet: None,
        })
    };
    let read = match path == Path::new("/dev/null") {
        // The usual way to say that there is nothing.
        true => Ok(Vec::new()),
        false => regular_file::read(path, MAX_FILE_BYTES),
    };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => return None,
        Err(error) => {
            let message = format!("the configuration file cannot be read: {error}");
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    let name = name.display();
                    Some(format!(
                        "name the file that is there, or write one: owlclaw-mcp config init --output {name}"
                    ))
                }
                io::ErrorKind::PermissionDenied => {
                    Some("let the user who runs this read it and its directory".to_owned())
                }
                _ => None,
            };
            problems.push(Problem::error(origin(), message).hint_if(hint));
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
            let message = format!("the configuration file is not UTF-8: see line {line}");
            problems.push(Problem::error(origin(), message));
            None
        }
    }
}
