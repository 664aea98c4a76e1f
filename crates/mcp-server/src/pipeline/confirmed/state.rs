//! State that travels with a call which is made again with answers.

use crate::invocation::Invocation;
use adapter_tools::{Answers, Needed};
use ledger::{ApprovalId, CallId, Digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The state of every question that leaves: what its asker wants to find again, and beside it, where
/// no asker can reach, what is ours. For modern clients it is sealed, and bound to the call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Carried {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confirmation: Option<Confirming>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asker: Option<Value>,
    /// The call that has asked, as the ledger has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
}

/// Progress of the confirmation of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirming {
    /// An approval, by name.
    approval: String,
    /// The binding of the approval.
    binding: Digest,
    pub(crate) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// The client was asked for it.
    Asked,
    /// The call was confirmed and has begun, and has asked something itself: this is for going on.
    GoingOn {
        /// The approval it began with, by name.
        after: String,
    },
}

impl Confirming {
    pub(crate) fn new(approval: ApprovalId, binding: Digest, stage: Stage) -> Self {
        Self {
            approval: approval.to_string(),
            binding,
            stage,
        }
    }

    /// The approval, if it is for this.
    pub(crate) fn approval_for(&self, binding: Digest) -> Option<ApprovalId> {
        self.approval
            .parse()
            .ok()
            .filter(|_| self.binding == binding)
    }
}

/// Takes what is ours off the answers of a call, so that its handler finds what it left.
pub(crate) fn unpack(invocation: &mut Invocation) -> Option<Confirming> {
    let answers = invocation.answers.as_ref()?;
    let state = answers.state.clone()?;
    // Nothing else is ever sent out; what cannot be read is of another version, and means nothing.
    let carried: Carried = serde_json::from_value(state).unwrap_or_default();
    invocation.answers = Some(Arc::new(Answers {
        responses: answers.responses.clone(),
        state: carried.asker,
    }));
    if let Some(call) = carried.call.and_then(|it| it.parse().ok()) {
        invocation.report.follows(call);
    }
    carried.confirmation
}

/// Puts what is ours beside what the asker of a question wants to find again: `call` is the one that asks.
pub(crate) fn pack(
    mut needed: Needed,
    confirmation: Option<Confirming>,
    call: Option<CallId>,
) -> Needed {
    let carried = Carried {
        confirmation,
        asker: needed.state.take(),
        call: call.map(|it| it.to_string()),
    };
    if carried != Carried::default() {
        needed.state = serde_json::to_value(carried).ok();
    }
    needed
}

/// The same answers without a confirmation, for a call that is begun again: what was confirmed was
/// another one.
pub(crate) fn forget(answers: &Answers) -> Answers {
    let mut carried: Carried = answers
        .state
        .clone()
        .and_then(|state| serde_json::from_value(state).ok())
        .unwrap_or_default();
    carried.confirmation = None;
    let state = (carried != Carried::default()).then(|| serde_json::to_value(carried).ok());
    Answers {
        responses: answers.responses.clone(),
        state: state.flatten(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::Offer;
    use adapter_tools::ToolSet;
    use jsonrpc_core::RawJson;
    use serde_json::json;
    use std::time::Duration;

    fn invocation(state: Option<Value>) -> Invocation {
        let tools = ToolSet::new(Vec::new()).unwrap();
        let offer = Arc::new(Offer::of_tools(tools, Duration::ZERO));
        Invocation {
            answers: Some(Arc::new(Answers {
                state,
                ..Answers::default()
            })),
            ..Invocation::tool(offer, "t", RawJson::EMPTY_OBJECT)
        }
    }

    fn found(invocation: &Invocation) -> Option<Value> {
        invocation.answers.as_ref().unwrap().state.clone()
    }

    #[test]
    fn what_is_ours_is_out_of_reach_of_whoever_asks() {
        let ours = Confirming::new(ApprovalId::random(), [7; 32], Stage::Asked);
        let forged = json!({ "confirmation": ours });
        for asker in [None, Some(json!({ "step": 2 })), Some(forged)] {
            for confirmation in [None, Some(ours.clone())] {
                let needed = Needed {
                    state: asker.clone(),
                    ..Needed::default()
                };
                let needed = pack(needed, confirmation.clone(), None);
                let mut again = invocation(needed.state.clone());
                assert_eq!(unpack(&mut again), confirmation);
                assert_eq!(found(&again), asker);
                let answers = Answers {
                    state: needed.state,
                    ..Answers::default()
                };
                let mut forgotten = invocation(forget(&answers).state);
                assert_eq!(unpack(&mut forgotten), None);
                assert_eq!(found(&forgotten), asker);
            }
        }
        assert_eq!(pack(Needed::default(), None, None).state, None);
        let mut strange = invocation(Some(json!({ "step": 2 })));
        assert_eq!(unpack(&mut strange), None);
        assert_eq!(found(&strange), None);
    }

    #[test]
    fn an_approval_is_for_one_thing() {
        let id = ApprovalId::random();
        let ours = Confirming::new(id, [7; 32], Stage::Asked);
        assert_eq!(ours.approval_for([7; 32]), Some(id));
        assert_eq!(ours.approval_for([8; 32]), None);
    }
}
