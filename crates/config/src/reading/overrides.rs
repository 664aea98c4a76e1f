//! The layer of the command line.

use std::path::{Path, PathBuf};

use crate::layer::{Layer, join};
use crate::problem::{Origin, Problem};
use crate::reading::shape::{Keys, Shape, settings};
use crate::reading::variables::written_out;
use crate::sections::Transport;

/// Settings given on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--config`: the file to read. It must exist, other than the default one.
    pub config: Option<PathBuf>,
    /// `--transport`.
    pub transport: Option<Transport>,
    /// `--host`.
    pub host: Option<String>,
    /// `--port`.
    pub port: Option<u16>,
    /// `--skills-dir`.
    pub skills_dir: Option<String>,
    /// `--app`.
    pub app: Option<String>,
}

/// `base` is where relative paths begin.
pub(crate) fn layer(
    overrides: &Overrides,
    keys: &Keys,
    base: &Path,
    problems: &mut Vec<Problem>,
) -> Layer {
    let transport = overrides.transport.map(|transport| match transport {
        Transport::Stdio => "stdio".to_owned(),
        Transport::Http => "http".to_owned(),
    });
    let flags: [(&str, &[&str], Option<String>); 5] = [
        ("--transport", &["transport"], transport),
        ("--host", &["http", "host"], overrides.host.clone()),
        (
            "--port",
            &["http", "port"],
            overrides.port.map(|port| port.to_string()),
        ),
        (
            "--skills-dir",
            &["resources", "skills_dir"],
            overrides.skills_dir.clone(),
        ),
        ("--app", &["app"], overrides.app.clone()),
    ];
    let settings = settings(keys);
    let mut layer = Layer::empty("command line");
    for (flag, path, text) in flags {
        let shape = settings
            .iter()
            .find(|(known, _)| known == path)
            .map(|(_, shape)| *shape);
        let (Some(text), Some(Shape::Single(leaf))) = (text, shape) else {
            continue;
        };
        let origin = Origin::CommandLine(flag.to_owned());
        match written_out(&text).and_then(|()| leaf.coerce(&text, base)) {
            Ok(value) => layer.set(path, value, origin),
            Err(misfit) => {
                let found = crate::reading::document::shorten(&text);
                let message = format!("`{flag}` {}, found `{found}`", misfit.expected);
                let problem = Problem::error(origin, message).key(join(path));
                problems.push(problem.hint_if(misfit.hint));
            }
        }
    }
    layer
}
