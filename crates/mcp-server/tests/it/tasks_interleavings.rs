//! Tasks end once and stay as they ended, under all interleavings of steps.

use crate::{
    house::{Client, House, block_on, pass},
    tasks_house::{
        about, accept, ask, begin, calls, created, idle, modern, options, setup, update,
    },
};
use mcp_server::TaskOptions;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

const MAX_TASKS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Begin(&'static str),
    Get(usize),
    /// Answers what was seen last to be asked, all of it or a part.
    Update(usize, bool),
    Cancel(usize),
    /// Lets those end that wait for the gate.
    Open,
    /// Without an answer in between.
    AtOnce(usize),
    Pass,
    Settle,
}

fn step() -> impl Strategy<Value = Step> {
    let task = 0..MAX_TASKS;
    let tool = vec!["long", "both", "twice", "job_failed", "job_panics"];
    prop_oneof![
        3 => proptest::sample::select(tool).prop_map(Step::Begin),
        4 => task.clone().prop_map(Step::Get),
        4 => (task.clone(), any::<bool>()).prop_map(|(task, all)| Step::Update(task, all)),
        1 => task.clone().prop_map(Step::Cancel),
        2 => Just(Step::Open),
        1 => task.prop_map(Step::AtOnce),
        1 => Just(Step::Pass),
        2 => Just(Step::Settle),
    ]
}

/// States seen of a task, in the order in which they were seen.
#[derive(Debug, Default)]
struct Seen {
    fetched: Vec<Value>,
    told: Vec<Value>,
    /// All questions so far, by key.
    asked: BTreeMap<String, Value>,
}

fn is_over(task: &Value) -> bool {
    !matches!(task["status"].as_str(), Some("working" | "input_required"))
}

fn bare(task: &Value) -> Value {
    let mut task = task.clone();
    let members = task.as_object_mut().unwrap();
    members.remove("_meta");
    members.remove("resultType");
    task
}

impl Seen {
    fn note_questions(&mut self, task: &Value) {
        let requests = task["inputRequests"].as_object();
        for (key, request) in requests.into_iter().flatten() {
            let before = self.asked.insert(key.clone(), request.clone());
            assert!(
                before.is_none_or(|before| before == *request),
                "{key} is used for something else"
            );
        }
    }

    fn fetch(&mut self, task: &Value) {
        self.note_questions(task);
        self.fetched.push(bare(task));
    }

    fn tell(&mut self, task: &Value) {
        self.note_questions(task);
        self.told.push(bare(task));
    }

    fn check(&self) {
        for history in [&self.fetched, &self.told] {
            for pair in history.windows(2) {
                assert!(!is_over(&pair[0]) || pair[0] == pair[1], "{pair:?}");
                let updated = |task: &Value| task["lastUpdatedAt"].as_str().unwrap().to_owned();
                assert!(updated(&pair[0]) <= updated(&pair[1]), "{pair:?}");
            }
        }
        for pair in self.told.windows(2) {
            assert_ne!(pair[0], pair[1], "nothing has changed");
        }
        let told = self.told.iter().find(|it| is_over(it));
        let fetched = self.fetched.iter().find(|it| is_over(it));
        if let (Some(told), Some(fetched)) = (told, fetched) {
            assert_eq!(told, fetched);
        }
        // Fewer questions, or other ones, or none: what was answered is not asked again.
        let asked = |task: &Value| -> Vec<String> {
            let requests = task["inputRequests"].as_object();
            requests
                .into_iter()
                .flatten()
                .map(|(key, _)| key.clone())
                .collect()
        };
        for history in [&self.fetched, &self.told] {
            let mut gone = Vec::new();
            let mut before = Vec::new();
            for task in history {
                let now = asked(task);
                gone.extend(before.into_iter().filter(|key| !now.contains(key)));
                assert!(now.iter().all(|key| !gone.contains(key)), "{task}");
                before = now;
            }
        }
    }
}

struct Run {
    house: House,
    client: Client,
    ears: Client,
    ids: Vec<String>,
    seen: BTreeMap<String, Seen>,
    passed: u32,
}

impl Run {
    async fn step(&mut self, step: &Step) {
        match step {
            Step::Begin(tool) => self.begin(tool).await,
            Step::Get(index) => self.get(*index).await,
            Step::Update(index, all) => self.update(*index, *all).await,
            Step::Cancel(index) => {
                if let Some(id) = self.ids.get(*index) {
                    about(&mut self.client, "tasks/cancel", id).await;
                }
            }
            Step::AtOnce(index) => self.at_once(*index).await,
            Step::Open => self.house.bench.gate.notify_waiters(),
            Step::Pass => {
                self.passed += 1;
                pass(Duration::from_secs(1_500));
            }
            Step::Settle => {
                self.client.settle().await;
                self.listen().await;
            }
        }
    }

    async fn begin(&mut self, tool: &str) {
        if self.ids.len() == MAX_TASKS {
            return;
        }
        let id = begin(&mut self.client, tool).await;
        let wanted = json!({ "notifications": { "taskIds": [id] } });
        self.ears.begin("subscriptions/listen", wanted).await;
        self.seen.insert(id.clone(), Seen::default());
        self.ids.push(id);
    }

    async fn get(&mut self, index: usize) {
        if let Some(id) = self.ids.get(index) {
            let answer = about(&mut self.client, "tasks/get", id).await;
            self.fetched(&answer);
        }
    }

    fn fetched(&mut self, answer: &Value) {
        match answer.get("result") {
            Some(task) => {
                let id = task["taskId"].as_str().unwrap();
                self.seen.get_mut(id).unwrap().fetch(task);
            }
            None => {
                assert_eq!(answer["error"]["code"], -32602, "{answer}");
                assert!(3 <= self.passed, "it has not expired");
            }
        }
    }

    async fn update(&mut self, index: usize, all: bool) {
        let Some(id) = self.ids.get(index) else {
            return;
        };
        // Answers to what is asked no more among them.
        let keys = self.seen[id].asked.keys().rev();
        let keys = keys.take(if all { usize::MAX } else { 1 });
        let answers = keys.map(|key| (key.clone(), accept(key))).collect();
        update(&mut self.client, id, Value::Object(answers)).await;
    }

    /// All steps that a task allows, at once.
    async fn at_once(&mut self, index: usize) {
        let Some(id) = self.ids.get(index) else {
            return;
        };
        let answers = self.seen[id]
            .asked
            .keys()
            .map(|key| (key.clone(), accept(key)));
        let update = json!({ "taskId": id, "inputResponses": Value::Object(answers.collect()) });
        let params = json!({ "taskId": id });
        let client = &mut self.client;
        self.house.bench.gate.notify_waiters();
        let first = client.begin("tasks/get", params.clone()).await;
        let others = [
            client.begin("tasks/update", update).await,
            client.begin("tasks/cancel", params.clone()).await,
        ];
        let last = client.begin("tasks/get", params).await;
        let fetched = [
            client.receive_answer(&first).await,
            client.receive_answer(&last).await,
        ];
        for request in &others {
            client.receive_answer(request).await;
        }
        // They are handled at the same time: the order of the answers is no order of events.
        let over = fetched[0]["result"].get("status").is_some() && is_over(&fetched[0]["result"]);
        for answer in fetched.iter().rev().take(if over { 1 } else { 2 }).rev() {
            self.fetched(answer);
        }
    }

    async fn listen(&mut self) {
        for message in self.ears.settle().await {
            if message["method"] == "notifications/tasks" {
                let task = &message["params"];
                let id = task["taskId"].as_str().unwrap();
                self.seen.get_mut(id).unwrap().tell(task);
            }
        }
    }

    async fn finish(mut self) {
        let expired = 3 <= self.passed;
        if expired {
            // The clock that ends them is another one here.
            self.house
                .mcp_server
                .tasks()
                .unwrap()
                .close(Duration::ZERO)
                .await;
        } else {
            for id in &self.ids {
                about(&mut self.client, "tasks/cancel", id).await;
            }
        }
        idle(&self.house).await;
        for index in 0..self.ids.len() {
            self.get(index).await;
        }
        self.listen().await;
        for seen in self.seen.values() {
            seen.check();
            // Who comes to listen too late is not told.
            assert!(seen.told.last().map_or(expired, is_over), "{seen:?}");
        }
        // Each start has one end, which the house looks after.
        let record = calls(&self.house).await;
        assert!(self.ids.len() <= record.len());
        assert!(record.len() <= 16 * self.ids.len());
        if expired {
            return;
        }
        // And every place is free again.
        for _ in 0..MAX_TASKS {
            begin(&mut self.client, "both").await;
        }
        let params = json!({ "name": "both", "arguments": {} });
        let answer = ask(&mut self.client, "tools/call", params).await;
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_task_ends_once_whatever_comes_when(
        script in proptest::collection::vec(step(), 1..40),
    ) {
        block_on(async move {
            let options = TaskOptions {
                max_running_per_principal: MAX_TASKS,
                ..options()
            };
            let house = setup(options).await.build();
            let mut run = Run {
                client: modern(&house, "anna").await,
                ears: modern(&house, "anna").await,
                house,
                ids: Vec::new(),
                seen: BTreeMap::new(),
                passed: 0,
            };
            for step in &script {
                run.step(step).await;
            }
            run.finish().await;
        });
    }
}

/// Tasks of the two revisions, told apart by whoever begins them, share their bounds.
#[tokio::test]
async fn places_are_given_back_however_a_task_ends() {
    let options = TaskOptions {
        max_running: 1,
        ..options()
    };
    let house = setup(options).await.build();
    let mut client = modern(&house, "anna").await;
    for tool in ["job_failed", "job_panics", "job_broken", "both", "long"] {
        let answer = client.call(tool, json!({})).await;
        let id = created(&answer);
        if matches!(tool, "both" | "long") {
            about(&mut client, "tasks/cancel", &id).await;
        }
        idle(&house).await;
    }
    assert_eq!(calls(&house).await.len(), 5);
}
