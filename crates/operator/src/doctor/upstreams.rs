//! Checks of upstreams: each is connected, all at once.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, printable};
use gateway::{Gateway, GatewayOptions, NameTemplate, Pins, State, Status, UpstreamSpec};
use server::Finding;

const AREA: &str = "upstream";
/// Time that all upstreams have together for connecting and telling their lists.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let declared = match server::declared_upstreams(config) {
        Ok(declared) => declared,
        Err(failure) => {
            let finding = |line: &str| {
                Finding::error(AREA, line)
                    .hint("set the variable that it names, for the server too")
            };
            return failure.to_string().lines().map(finding).collect();
        }
    };
    let warnings = declared.warnings.iter();
    let mut findings: Vec<_> = warnings
        .map(|it| Finding::warning(AREA, it.clone()))
        .collect();
    let specs: Vec<_> = declared.upstreams.into_iter().map(|it| it.spec).collect();
    findings.extend(held(config, &specs));
    match tried(config, specs) {
        Ok(status) => {
            findings.extend(status.iter().flat_map(twins));
            findings.extend(status.into_iter().filter_map(finding));
        }
        Err(error) => findings.push(Finding::error(AREA, error.to_string())),
    }
    findings
}

/// Held items of upstreams that are on: definitions that wait for an operator, and tools that the configuration names.
fn held(config: &Config, specs: &[UpstreamSpec]) -> Vec<Finding> {
    let specs = specs.iter().filter(|it| it.enabled);
    let pins = match Pins::new(Some(server::upstreams_directory(config))).items() {
        Ok(pins) => pins,
        // Without upstreams nobody asks for pins.
        Err(_) if specs.clone().next().is_none() => return Vec::new(),
        Err(error) => return vec![Finding::error(AREA, error.to_string())],
    };
    let mut findings = Vec::new();
    for spec in specs {
        let name = &spec.name;
        let of_upstream = pins.iter().filter(|it| it.upstream == *name);
        for item in of_upstream {
            let (kind, own, pin) = (item.kind.as_str(), &item.name, &item.pin);
            let why = match (&pin.stopped, &pin.held) {
                (Some(by), _) => format!("{} holds it ({})", by.by, by.reason),
                (None, Some(held)) => {
                    let changes: Vec<_> = held.changes.iter().map(|it| it.as_str()).collect();
                    format!(
                        "its definition waits for an operator ({})",
                        changes.join(", ")
                    )
                }
                (None, None) => continue,
            };
            findings.push(
                Finding::warning(AREA, printable(&format!("{name}: {kind} `{own}` is held: {why}"))).hint(format!(
                    "`owlclaw-mcp upstream pins {name} --held` and `upstream diff {name}` show it, and `owlclaw-mcp \
                     upstream approve {name} {kind}/{} --digest DIGITS --by NAME --reason TEXT` approves it",
                    printable(own)
                )),
            );
        }
        let patterns: Vec<_> = spec.hold.iter().map(|it| format!("`{it}`")).collect();
        if !patterns.is_empty() {
            let patterns = patterns.join(", ");
            let message = format!("{name}: `upstreams.{name}.hold` holds {patterns}");
            findings.push(Finding::ok(AREA, printable(&message)));
        }
    }
    findings
}

/// The states of upstreams that were connected for this alone; nothing of them is stored.
fn tried(config: &Config, specs: Vec<UpstreamSpec>) -> std::io::Result<Vec<Status>> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(async {
        let options = GatewayOptions {
            names: NameTemplate::parse(&config.gateway.names).unwrap_or_default(),
            clients: Some(Arc::new(config.vault_place().clients())),
            ..GatewayOptions::default()
        };
        let gateway = Gateway::new(options, specs);
        gateway.connect_all(PATIENCE).await;
        let status = gateway.status();
        gateway.shut_down().await;
        status
    }))
}

/// Items whose names others have. Nothing else is held where nothing is stored.
fn twins(status: &Status) -> impl Iterator<Item = Finding> {
    let (name, held) = (status.name.clone(), status.held.clone());
    held.into_iter().map(move |why| {
        Finding::warning(AREA, printable(&format!("{name}: an item is held: {why}")))
            .hint(format!("set upstreams.{name}.prefix"))
    })
}

/// Finding about an upstream; none about one that its operator holds, which is stated with the pattern.
fn finding(status: Status) -> Option<Finding> {
    let name = &status.name;
    Some(match status.state {
        State::Held if status.error.is_none() => return None,
        State::Off => Finding::ok(AREA, format!("{name} is switched off")),
        State::Ready | State::Known => {
            let server = status
                .server
                .as_deref()
                .unwrap_or("a server without a name");
            let revision = status.revision.unwrap_or("an unknown revision");
            let tools = status.tools;
            let mut unfit = status.left_out.iter().chain(&status.unusable);
            if let Some(first) = unfit.next() {
                let what = match 1 + unfit.count() {
                    1 => format!("an item of its lists is of no use: {first}"),
                    count => {
                        format!("{count} items of its lists are of no use, the first: {first}")
                    }
                };
                return Some(Finding::warning(AREA, format!("{name}: {what}")).hint(format!(
                    "`owlclaw-mcp upstream why {name}` lists them; the author of the upstream can correct them"
                )));
            }
            Finding::ok(
                AREA,
                format!("{name}: {server} speaks {revision}, {tools} tools are offered"),
            )
        }
        State::Configured | State::Connecting => {
            let seconds = PATIENCE.as_secs();
            Finding::warning(AREA, format!("{name}: no answer within {seconds} s")).hint(format!(
                "a first start may take long, as programs are fetched: try `owlclaw-mcp upstream recheck {name}`"
            ))
        }
        State::Degraded | State::LoginNeeded | State::Held => {
            let why = status.error.unwrap_or(status.reason);
            let finding = Finding::error(AREA, format!("{name} ({}): {why}", status.place));
            match status.cure {
                Some(cure) => finding.hint(cure),
                None => finding,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use gateway::Reach;
    use server::State as Told;

    #[test]
    fn an_operators_own_hold_is_stated_and_a_missing_secret_is_an_error() {
        let reach = Reach::Child {
            program: "/nothing/here".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        };
        let own = UpstreamSpec {
            hold: vec!["*".to_owned()],
            ..UpstreamSpec::new("own", reach.clone())
        };
        let lacking = UpstreamSpec {
            unresolved: Some("`${NOVAR}` is not set".to_owned()),
            ..UpstreamSpec::new("lacking", reach)
        };
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.gateway.directory = Some(directory.path().to_owned());
        let specs = vec![own, lacking];
        let stated = held(&config, &specs);
        assert!(
            matches!(&*stated, [one] if one.state == Told::Ok && one.message.contains("holds `*`"))
        );
        let status = tried(&config, specs).unwrap();
        let found: Vec<_> = status.into_iter().filter_map(finding).collect();
        assert!(
            matches!(&*found, [one] if one.state == Told::Error && one.message.contains("`${NOVAR}` is not set")),
            "{found:?}"
        );
    }
}
