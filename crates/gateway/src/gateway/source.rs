//! The gateway as a source of tools, resources and prompts: what it offers, and how it is.

use super::{
    COMPONENT, Gateway, locked, named, prompts::UpstreamPrompts, resources::UpstreamResources,
};
use crate::{State, names::MAX_GONE, text::without_ours};
use adapter_skills::SkillCatalog;
use adapter_tools::ToolError;
use futures_util::future::BoxFuture;
use mcp_protocol::{ProtocolVersion, model::Prompt};
use mcp_server::{
    ComponentState, Prompts, Resources, Sought, SourceTools, ToolSource, UPSTREAM_META,
};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::watch;

impl ToolSource for Gateway {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        let upstreams = self.0.upstreams();
        self.naming(|names| {
            let is_kept = |server: &str| upstreams.contains_key(server);
            names.tools.keep(is_kept);
            names.prompts.keep(is_kept);
        });
        let known = self.known();
        if known.iter().any(|(it, _)| !locked(&it.twins).is_empty()) {
            // An upstream that is looked at later may give up the name of one before it.
            for (upstream, known) in &known {
                drop(self.tools_of(upstream, known));
            }
        }
        let mut found = SourceTools::default();
        for (upstream, known) in known {
            let SourceTools { tools, lost } = self.tools_of(&upstream, &known);
            found.tools.extend(tools);
            found.lost.extend(lost);
        }
        self.store_names();
        found
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        let mut resources = UpstreamResources::default();
        for (upstream, known) in self.known() {
            if known.offer.resources.is_some() {
                resources.add(upstream, known);
            }
        }
        (!resources.upstreams.by_key.is_empty()).then(|| Arc::new(resources) as Arc<dyn Resources>)
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        let mut prompts = UpstreamPrompts::default();
        for (upstream, known) in self.known() {
            let template = self.template(&upstream);
            let server = &upstream.spec.name;
            let own = known.prompts.iter();
            let own: Vec<_> = own.filter(|it| upstream.spec.offers(&it.name)).collect();
            let named: Vec<_> = self.naming(|names| {
                let is_there = |item: &str| own.iter().any(|it| it.name == item);
                names.prompts.forget(server, MAX_GONE, is_there);
                let mut name = |it: &Prompt| named(&mut names.prompts, &template, server, &it.name);
                own.iter().copied().map(&mut name).collect()
            });
            for (prompt, (name, taken)) in own.into_iter().zip(named) {
                if prompts.origins.contains_key(&name) {
                    continue;
                }
                let mut entry = prompt.clone();
                entry.name.clone_from(&name);
                entry.description = entry.description.map(|it| self.describe(server, &it));
                without_ours(&mut entry.meta);
                entry.meta.insert(
                    UPSTREAM_META,
                    &json!({ "name": server, "prompt": prompt.name }),
                );
                let key = format!("prompt/{}", prompt.name);
                let pin = known.pins.get(&key);
                prompts.pins.extend(pin.map(|it| (name.clone(), *it)));
                let held = known.held.get(&key).cloned().or(taken);
                prompts.held.extend(held.map(|why| (name.clone(), why)));
                prompts.entries.push(entry);
                prompts
                    .origins
                    .insert(name, (Arc::clone(&upstream), prompt.name.clone()));
            }
            // Servers of 2024-11-05 had no capability to declare it by.
            let completes =
                known.offer.completions.is_some() || known.version == ProtocolVersion::V2024_11_05;
            if completes {
                prompts.completing.add(upstream);
            }
        }
        self.store_names();
        // Sessions are told at their beginning that there are prompts, when no upstream may have told its own yet.
        (!self.0.upstreams().is_empty()).then(|| Arc::new(prompts) as Arc<dyn Prompts>)
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.changes.subscribe())
    }

    /// Fails while an upstream cannot be used; the detail names those, with the reason.
    fn health(&self) -> Option<ComponentState> {
        let status = self.status();
        let of_pins = self.0.upstreams().into_values().filter_map(|it| {
            let (held, name) = (it.held(), &it.spec.name);
            let (count, names) = (held.len(), named_shortly(held.keys()));
            let see = "see `owlclaw-mcp upstream diff";
            (count != 0)
                .then(|| format!("{name}: {count} definitions are held ({names}), {see} {name}`"))
        });
        let twins = self.0.upstreams().into_values().filter_map(|it| {
            let (twins, name) = (locked(&it.twins), &it.spec.name);
            let (count, names) = (twins.len(), named_shortly(twins.keys()));
            let see = "see `owlclaw-mcp upstream why";
            (count != 0).then(|| {
                format!("{name}: {count} items are held, whose names others have ({names}), {see} {name}`")
            })
        });
        let held = of_pins.chain(twins);
        let unfit = status
            .iter()
            .filter(|it| it.state != State::Off)
            .filter_map(|it| {
                let (name, first) = (&it.name, it.left_out.first()?);
                let see = "see `owlclaw-mcp upstream why";
                Some(match it.left_out.len() {
                    1 => format!("{name}: an item of its lists is left out ({first}), {see} {name}`"),
                    count => format!(
                        "{name}: {count} items of its lists are left out (the first: {first}), {see} {name}`"
                    ),
                })
            });
        let wrong: Vec<_> = status
            .iter()
            .filter(|it| match it.state {
                State::Degraded | State::LoginNeeded => true,
                // An operator's own hold is no fault.
                State::Held => it.error.is_some(),
                _ => false,
            })
            .map(|it| {
                format!(
                    "{} {}: {}",
                    it.name,
                    it.state.as_str(),
                    it.error.as_deref().unwrap_or("no reason known")
                )
            })
            .chain(held)
            .chain(unfit)
            .collect();
        // That is the clients' own affair, and no fault of the server.
        let refused = status.iter().filter(|it| !it.refused_clients.is_empty());
        let refused = refused.map(|it| {
            let (name, count) = (&it.name, it.refused_clients.len());
            format!("{name}: {count} clients need a credential of their own, see `owlclaw-mcp upstream why {name}`")
        });
        let ok = wrong.is_empty();
        let told: Vec<_> = wrong.into_iter().chain(refused).collect();
        Some(ComponentState {
            name: COMPONENT,
            ok,
            detail: (!told.is_empty()).then(|| told.join("; ")),
        })
    }

    /// Names that begin like those of an upstream whose lists were never read may be its own.
    fn absent(&self, sought: Sought<'_>) -> Option<ToolError> {
        let upstreams = self.0.upstreams().into_values();
        let unheard = upstreams.filter(|it| it.spec.enabled && it.catalogue().is_none());
        let mut found = unheard.filter_map(|it| {
            let beginning = match sought {
                Sought::Tool(_) | Sought::Prompt(_) => self.template(&it).beginning(&it.spec.name),
                Sought::Resource(_) => format!("mcp.{}+", it.scheme_key),
            };
            let (Sought::Tool(name) | Sought::Prompt(name) | Sought::Resource(name)) = sought;
            let own = name.strip_prefix(&beginning).filter(|it| !it.is_empty())?;
            let is_its = !beginning.is_empty() && it.spec.offers(own);
            is_its.then_some((beginning.len(), it))
        });
        // `mcp_a_b_x` is rather of `a-b` than of `a`.
        let first = found.next()?;
        let (_, upstream) = found.fold(first, |one, other| match one.0 < other.0 {
            true => other,
            false => one,
        });
        Some(upstream.absent())
    }

    /// A tool of an upstream takes no name away.
    fn gives_way(&self) -> bool {
        true
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shut_down())
    }
}

/// A few of these names, and how many more there are.
fn named_shortly<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const MOST: usize = 5;
    let more = names.len().saturating_sub(MOST);
    let names: Vec<_> = names
        .take(MOST)
        .map(|it| format!("`{}`", it.escape_debug()))
        .collect();
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
