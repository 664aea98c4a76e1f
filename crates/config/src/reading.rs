//! Texts of a configuration, checked value by value against the shape of [`Config`](crate::Config).

pub(crate) mod coerce;
pub(crate) mod document;
pub(crate) mod file;
pub(crate) mod layers;
pub(crate) mod overrides;
pub(crate) mod shape;
pub(crate) mod variables;

use std::io::{self, Read};
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
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    match file.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)) {
        Ok(_) => {}
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
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the configuration file is longer than {MAX_FILE_BYTES} bytes");
        problems.push(Problem::error(origin(), message));
        return None;
    }
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
