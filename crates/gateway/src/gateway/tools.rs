//! Tools of upstreams as tools of this server.

use super::{Gateway, locked, named};
use crate::{
    catalogue::Catalogue,
    names::MAX_GONE,
    store::with_causes,
    text::OURS,
    upstream::{Upstream, call::UpstreamTool},
};
use adapter_tools::{Annotations, TaskSupport, Tool, ToolKind, ToolSet};
use mcp_protocol::{RawJson, model};
use mcp_server::{NotOffered, SourceTools, UPSTREAM_META};
use serde_json::{Value, json, value::RawValue};
use std::{collections::BTreeMap, sync::Arc};

impl Gateway {
    /// True if tools that were made of a catalogue are those of `known`.
    fn is_made(upstream: &Upstream, made_of: &Arc<Catalogue>, known: &Arc<Catalogue>) -> bool {
        // Who has a name that another would have had may have given it up.
        Arc::ptr_eq(made_of, known) && locked(&upstream.twins).is_empty()
    }

    /// Makes the tools of an upstream unless they are made.
    pub(super) fn make_tools(&self, upstream: &Arc<Upstream>, known: &Arc<Catalogue>) {
        let is_made = {
            let made = locked(&upstream.made);
            let made = made.as_ref();
            made.is_some_and(|(made_of, _)| Self::is_made(upstream, made_of, known))
        };
        if !is_made {
            drop(self.tools_of(upstream, known));
        }
    }

    pub(super) fn tools_of(&self, upstream: &Arc<Upstream>, known: &Arc<Catalogue>) -> SourceTools {
        let mut made = locked(&upstream.made);
        if let Some((made_of, tools)) = &*made
            && Self::is_made(upstream, made_of, known)
        {
            return tools.clone();
        }
        let template = self.template(upstream);
        let mut own: Vec<&model::Tool> = known
            .tools
            .iter()
            .filter(|it| upstream.spec.offers(&it.name))
            .collect();
        // So that new names are given in an order that depends on nothing else.
        own.sort_by(|one, other| one.name.cmp(&other.name));
        own.dedup_by(|one, other| one.name == other.name);
        let mut found = SourceTools::default();
        let server = &upstream.spec.name;
        let named: Vec<_> = self.naming(|names| {
            let is_there = |item: &str| own.binary_search_by(|it| (*it.name).cmp(item)).is_ok();
            names.tools.forget(server, MAX_GONE, is_there);
            let mut name =
                |tool: &model::Tool| named(&mut names.tools, &template, server, &tool.name);
            own.iter().copied().map(&mut name).collect()
        });
        let mut twins = BTreeMap::new();
        for (tool, (name, taken)) in own.into_iter().zip(named) {
            let key = format!("tool/{}", tool.name);
            let held = known.held.get(&key);
            if let Some(why) = &taken {
                twins.insert(key.clone(), why.clone());
            }
            match self.tool(upstream, tool, name.clone()) {
                Ok(mut tool) => {
                    if let Some(digest) = known.pins.get(&key) {
                        tool = tool.with_recorded_definition(*digest);
                    }
                    found.tools.push(match held.cloned().or(taken) {
                        Some(why) => tool.with_hold(why),
                        None => tool,
                    });
                }
                Err(why) => found.lost.push(NotOffered {
                    tool: name,
                    place: Some(format!("upstreams.{server}")),
                    why,
                }),
            }
        }
        *locked(&upstream.twins) = twins;
        let (_, problems) = ToolSet::collect(found.tools.iter().cloned());
        let unusable = problems.iter().map(|it| {
            let reason = with_causes(&it.reason);
            format!("tool `{}` cannot be offered: {reason}", it.name)
        });
        let lost = found.lost.iter();
        let lost = lost.map(|it| format!("tool `{}` cannot be offered: {}", it.tool, it.why));
        *locked(&upstream.unusable) = unusable.chain(lost).collect();
        let is_listed = |name: &str| known.tools.iter().any(|it| it.name == name);
        for (item, why) in &known.held {
            if let Some(tool) = item.strip_prefix("tool/")
                && upstream.spec.offers(tool)
                && !is_listed(tool)
            {
                found.lost.push(NotOffered {
                    tool: tool.to_owned(),
                    place: Some(format!("upstreams.{server}")),
                    why: why.clone(),
                });
            }
        }
        // What is told of a name must not be about the tool that has it.
        let unfit = known.left_out.iter().filter(|it| it.kind == "tool");
        found.lost.extend(unfit.filter_map(|it| {
            let tool = it.name.clone()?;
            (!is_listed(&tool) && upstream.spec.offers(&tool)).then(|| NotOffered {
                tool,
                place: Some(format!("upstreams.{server}")),
                why: it.why.clone(),
            })
        }));
        *made = Some((Arc::clone(known), found.clone()));
        found
    }

    fn tool(
        &self,
        upstream: &Arc<Upstream>,
        tool: &model::Tool,
        name: String,
    ) -> Result<Tool, String> {
        let unfit = |error| format!("its schema is no JSON: {error}");
        let raw =
            |schema: &RawJson| RawValue::from_string(schema.as_str().to_owned()).map_err(unfit);
        let input = raw(&tool.input_schema)?;
        let output = tool.output_schema.as_ref().map(raw).transpose()?;
        let executor = UpstreamTool {
            upstream: Arc::clone(upstream),
            tool: tool.name.clone(),
        };
        let spec = &upstream.spec;
        let hints = tool.annotations.as_ref();
        let mut origin = json!({ "name": spec.name, "tool": tool.name });
        let mut made = Tool::new(name, Value::Null, executor)
            .with_written_schemas(&input, output.as_deref())
            .describe(self.describe(&spec.name, tool.description.as_deref().unwrap_or_default()))
            .with_kind(ToolKind::Upstream)
            .with_source(format!("upstreams.{}", spec.name))
            .with_timeout(spec.timeout)
            .with_task_support(TaskSupport::Optional)
            .with_risk(spec.risk_of(&tool.name, hints));
        if spec.unresolved.is_some() {
            made = made.with_hold(format!(
                "a secret of `upstreams.{}` is missing, which `owlclaw-mcp upstream list` names",
                spec.name
            ));
        } else if let Some(pattern) = spec.holds(&tool.name) {
            let place = format!("upstreams.{}.hold", spec.name);
            made = made.with_hold(format!(
                "its operator holds it back: `{place}` has `{pattern}`"
            ));
        }
        if let Some(micros) = spec.cost_of(&tool.name) {
            made = made.with_estimated_cost_micros(micros);
        }
        let icons = tool.icons.iter().map(|it| json!(it));
        made = made.with_icons(icons.collect());
        let title = tool.title.as_ref().or_else(|| hints?.title.as_ref());
        if let Some(title) = title {
            made = made.with_title(title.clone());
        }
        if let Some(hints) = hints {
            match spec.trust_annotations {
                true => {
                    made = made.with_annotations(Annotations {
                        read_only: hints.read_only_hint,
                        destructive: hints.destructive_hint,
                        idempotent: hints.idempotent_hint,
                        open_world: hints.open_world_hint,
                    });
                }
                // They are told as what they are: the word of another.
                false => origin["annotations"] = json!(hints),
            }
        }
        for (key, value) in tool.meta.iter() {
            if !key.starts_with(OURS)
                && let Ok(value) = value.parse::<Value>()
            {
                made = made.with_meta(key, upstream.with_offered_ui(value));
            }
        }
        Ok(made.with_meta(UPSTREAM_META, origin))
    }
}
